// SPDX-License-Identifier: BSD-3-Clause

// settling [--seconds S] [--rounds N] [--sizes BYTES,...] [--patterns alone,window,exchange]
//          [--operations tag,am,put,get] [--apart] [--cpus A,B]
//
// How soon long messages, puts and gets take the time that they take once costs are learned
// (UCX_COSTS), within a host, or over what UCX_TLS says: microseconds of one in the first moments,
// and period by period from then on, beside the last period with the machine's own learned costs in
// the same round. Contestants run in turn, each time in two new processes with a cache folder of
// their own: all by the first way (messages at once; puts and gets as copies, long ones by zero
// copy), all by the second one (announced; by zero copy, long ones in slices), with the learned
// costs, without any, with those of another machine, and with those of messages of that size wrong
// by 4 times, the better way's times 4 and the other one's divided by 4.
//
// alone: one message back and forth; window: 16 one way, then an answer; exchange: one each way at
// the same time. The buffer that is sent is the one received into, unless --apart says otherwise;
// announced active messages are received into 16 in turn. Of puts and gets one process has the
// memory, and the other one waits for each and flushes (alone), or for 16 (window); there is no
// exchange.

#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ucp/api/ucp.h"
#include "ucp/select/cost_file.h"
#include "ucs/runtime/runtime.h"

namespace {

using Clock = std::chrono::steady_clock;
namespace select = ucp::select;

constexpr unsigned kWindow = 16;
constexpr unsigned kDataId = 1, kAnswerId = 2;
constexpr double kPeriods[] = {0, 0.02, 0.1, 0.5, 1};  // their begins, in seconds
constexpr size_t kCount = std::size(kPeriods);

enum class Pattern : uint8_t { kAlone, kWindow, kExchange };
constexpr std::string_view kPatternNames[] = {"alone", "window", "exchange"};

enum class File : uint8_t { kNone, kOwn, kOther, kWrong };

// How a contestant's messages, puts or gets go.
enum class Choice : uint8_t { kFirst, kSecond, kLibrarys };

struct Contestant {
    const char* name;
    const char* costs;
    Choice choice;
    File file;
};
constexpr Contestant kContestants[] = {
    {"all by the first way", "measured", Choice::kFirst, File::kNone},
    {"all by the second way", "measured", Choice::kSecond, File::kNone},
    {"measured", "measured", Choice::kLibrarys, File::kNone},
    {"adapt", "adapt", Choice::kLibrarys, File::kNone},
    {"learn", "learn", Choice::kLibrarys, File::kOwn},
    {"learn, no file", "learn", Choice::kLibrarys, File::kNone},
    {"learn, another machine's", "learn", Choice::kLibrarys, File::kOther},
    {"learn, wrong by 4 times", "learn", Choice::kLibrarys, File::kWrong},
};
constexpr size_t kContestantCount = std::size(kContestants);
constexpr size_t kFirstWay = 0, kSecondWay = 1, kOwn = 4;

struct Settings {
    double seconds = 2;
    unsigned rounds = 3;
    std::vector<size_t> sizes{24576, 98304, 393216, 1572864};
    std::vector<Pattern> patterns{Pattern::kAlone, Pattern::kWindow};
    std::vector<size_t> operations{0, 1};  // in kOperations
    bool is_apart = false;
    int cpus[2] = {-1, -1};
};

constexpr std::string_view kOperationNames[] = {"tag", "am", "put", "get"};
constexpr select::Operation kOperations[] = {select::Operation::kTag,
                                             select::Operation::kActiveMessage,
                                             select::Operation::kPut, select::Operation::kGet};

// What is measured at a time.
struct Point {
    size_t operation;  // in kOperations
    Pattern pattern;
    size_t length;

    bool is_one_sided() const { return select::is_one_sided(kOperations[operation]); }
    bool is_tag() const { return kOperations[operation] == select::Operation::kTag; }
    // Puts and gets that may go in slices (docs/design/selection.md).
    bool is_long() const { return length >= size_t{64} << 10; }
    select::Way first() const {
        if (!is_one_sided()) return select::Way::kEager;
        return is_long() ? select::Way::kZeroCopy : select::Way::kCopy;
    }
    select::Way second() const {
        if (!is_one_sided()) return select::Way::kRendezvous;
        return is_long() ? select::Way::kBulk : select::Way::kZeroCopy;
    }
    // The variable that says how they go, and its values.
    const char* variable() const {
        if (!is_one_sided()) return "UCX_RNDV_THRESH";
        return is_long() ? "UCX_BULK_THRESH" : "UCX_ZCOPY_THRESH";
    }
    const char* value(Choice choice) const {
        if (choice == Choice::kLibrarys) return "auto";
        if (choice == Choice::kFirst) return "inf";
        return is_one_sided() ? "1k" : "8k";
    }
};

struct Times {
    double seconds[kCount] = {};
    uint64_t messages[kCount] = {};

    double of(size_t period) const {
        return messages[period] == 0 ? NAN
                                     : seconds[period] / static_cast<double>(messages[period]);
    }
};

// What the two processes tell each other without a message.
struct Board {
    std::atomic<unsigned> ready{0}, connected{0}, finished{0};
    std::atomic<uint64_t> last{UINT64_MAX};  // the turn after which both end
    size_t address_length[2];
    std::byte address[2][8192];
    // Of the memory that is put into and got from.
    size_t key_length;
    std::byte key[8192];
    uint64_t memory;
    Times times;
};

void check(ucs_status_t status, const char* what) {
    if (status != UCS_OK)
        throw std::runtime_error(fmt::format("{}: {}", what, ucs_status_string(status)));
}

// One of the two processes.
class End {
  public:
    End(const Point& point, bool is_apart, Board& board, unsigned index)
        : point_(point), board_(board), index_(index), first_receive_(is_apart ? kWindow : 0) {
        buffers_.assign(2 * kWindow, std::vector<std::byte>(point.length, std::byte{1}));
        ucp_config_t* config = nullptr;
        check(ucp_config_read(nullptr, nullptr, &config), "configuration");
        ucp_params_t params{};
        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_RMA;
        check(ucp_init(&params, config, &context_), "context");
        ucp_config_release(config);
        const ucp_worker_params_t worker_params{};
        check(ucp_worker_create(context_, &worker_params, &worker_), "worker");
        for (const unsigned id : {kDataId, kAnswerId}) {
            ucp_am_handler_param_t handler{};
            handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                                 UCP_AM_HANDLER_PARAM_FIELD_ARG;
            handler.id = id;
            handler.cb = arrived;
            handler.arg = this;
            check(ucp_worker_set_am_recv_handler(worker_, &handler), "handler");
        }
        ucp_address_t* address = nullptr;
        size_t length = 0;
        check(ucp_worker_get_address(worker_, &address, &length), "address");
        if (length > sizeof(board.address[index])) throw std::runtime_error("a long address");
        std::memcpy(board.address[index], address, length);
        board.address_length[index] = length;
        ucp_worker_release_address(worker_, address);
        if (point.is_one_sided() && index == 1) offer_memory();
        meet(board.ready);
        ucp_ep_params_t peer{};
        peer.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        peer.address = reinterpret_cast<ucp_address_t*>(board.address[1 - index]);
        check(ucp_ep_create(worker_, &peer, &endpoint_), "endpoint");
        if (point.is_one_sided() && index == 0)
            check(ucp_ep_rkey_unpack(endpoint_, board.key, &key_), "key");
        meet(board.connected);
    }
    ~End() {
        if (key_ != nullptr) ucp_rkey_destroy(key_);
        ucp_worker_destroy(worker_);
        if (memory_ != nullptr) ucp_mem_unmap(context_, memory_);
        ucp_cleanup(context_);
    }
    End(const End&) = delete;

    void run(double seconds) {
        if (point_.is_one_sided() && index_ == 1) return meet(board_.finished);
        const auto begin = Clock::now();
        auto before = begin;
        for (uint64_t turn = 1;; ++turn) {
            const unsigned messages = take_turn();
            if (turn == board_.last) break;
            if (index_ != 0) continue;
            const auto now = Clock::now();
            const double at = std::chrono::duration<double>(before - begin).count();
            size_t period = kCount - 1;
            while (at < kPeriods[period]) --period;
            board_.times.seconds[period] += std::chrono::duration<double>(now - before).count();
            board_.times.messages[period] += messages;
            // The other one may be a turn ahead, and no more.
            if (at >= seconds && board_.last == UINT64_MAX) board_.last = turn + 2;
            before = now;
        }
        meet(board_.finished);
    }

  private:
    // @return messages of that turn
    unsigned take_turn() {
        const bool is_first = index_ == 0;
        if (point_.is_one_sided()) {
            const unsigned count = point_.pattern == Pattern::kAlone ? 1 : kWindow;
            for (unsigned i = 0; i < count; ++i) transfer(i);
            finish();
            const ucp_request_param_t none{};
            keep(ucp_ep_flush_nbx(endpoint_, &none));
            finish();
            return count;
        }
        switch (point_.pattern) {
            case Pattern::kAlone:
                for (const bool sends : {is_first, !is_first}) {
                    sends ? send(1) : receive(1);
                    finish();
                }
                return 2;
            case Pattern::kWindow:
                is_first ? send(kWindow) : receive(kWindow);
                finish();
                is_first ? receive_answer() : send_answer();
                finish();
                return kWindow;
            case Pattern::kExchange:
                break;
        }
        receive(1);
        send(1);
        finish();
        return 2;
    }

    void transfer(unsigned place) {
        const ucp_request_param_t none{};
        const uint64_t there = board_.memory + place * point_.length;
        std::byte* const here = buffers_[place].data();
        keep(kOperations[point_.operation] == select::Operation::kPut
                 ? ucp_put_nbx(endpoint_, here, point_.length, there, key_, &none)
                 : ucp_get_nbx(endpoint_, here, point_.length, there, key_, &none));
    }
    // The memory of this end for the other one.
    void offer_memory() {
        region_.assign(kWindow * point_.length, std::byte{1});
        ucp_mem_map_params_t params{};
        params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
        params.address = region_.data();
        params.length = region_.size();
        check(ucp_mem_map(context_, &params, &memory_), "memory");
        void* key = nullptr;
        size_t length = 0;
        check(ucp_rkey_pack(context_, memory_, &key, &length), "key");
        if (length > sizeof(board_.key)) throw std::runtime_error("a long key");
        std::memcpy(board_.key, key, length);
        board_.key_length = length;
        board_.memory = reinterpret_cast<uintptr_t>(region_.data());
        ucp_rkey_buffer_release(key);
    }
    void send(unsigned count) {
        for (unsigned i = 0; i < count; ++i) send(buffers_[i].data(), point_.length, kDataId);
    }
    void send_answer() { send(&answer_, sizeof(answer_), kAnswerId); }
    void send(const void* bytes, size_t length, unsigned id) {
        const ucp_request_param_t none{};
        keep(point_.is_tag() ? ucp_tag_send_nbx(endpoint_, bytes, length, id, &none)
                             : ucp_am_send_nbx(endpoint_, id, nullptr, 0, bytes, length, &none));
    }
    void receive(unsigned count) {
        for (unsigned i = 0; i < count; ++i)
            receive(buffers_[first_receive_ + i].data(), point_.length, kDataId);
    }
    void receive_answer() { receive(&answer_, sizeof(answer_), kAnswerId); }
    void receive(void* bytes, size_t length, unsigned id) {
        const ucp_request_param_t none{};
        if (point_.is_tag()) {
            keep(ucp_tag_recv_nbx(worker_, bytes, length, id, UINT64_MAX, &none));
        } else {
            ++awaited_;
        }
    }
    void keep(ucs_status_ptr_t request) {
        if (UCS_PTR_IS_ERR(request)) check(UCS_PTR_STATUS(request), "message");
        if (request != nullptr) requests_.push_back(request);
    }
    void finish() {
        for (const ucs_status_ptr_t request : requests_) {
            while (ucp_request_check_status(request) == UCS_INPROGRESS) progress();
            check(ucp_request_check_status(request), "message");
            ucp_request_free(request);
        }
        requests_.clear();
        while (arrived_ < awaited_) progress();
    }
    void progress() { ucp_worker_progress(worker_); }

    // Data of active messages: what was not announced is used where it lies.
    static ucs_status_t arrived(void* arg, const void*, size_t, void* data, size_t length,
                                const ucp_am_recv_param_t* param) {
        auto& self = *static_cast<End*>(arg);
        if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) {
            ++self.arrived_;
            return UCS_OK;
        }
        ucp_request_param_t params{};
        params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
        params.user_data = &self;
        params.cb.recv_am = [](void* request, ucs_status_t, size_t, void* user) {
            ++static_cast<End*>(user)->arrived_;
            ucp_request_free(request);
        };
        const size_t place = self.first_receive_ + self.next_receive_++ % kWindow;
        const ucs_status_ptr_t request =
            ucp_am_recv_data_nbx(self.worker_, data, self.buffers_[place].data(), length, &params);
        if (request == nullptr) ++self.arrived_;
        return UCS_OK;
    }

    void meet(std::atomic<unsigned>& count) {
        ++count;
        while (count < 2) {
            if (worker_ != nullptr) progress();
        }
    }

    const Point point_;
    Board& board_;
    const unsigned index_;
    const size_t first_receive_;
    std::vector<std::vector<std::byte>> buffers_;
    std::vector<ucs_status_ptr_t> requests_;
    uint64_t answer_ = 0, awaited_ = 0, arrived_ = 0;
    size_t next_receive_ = 0;
    ucp_context_h context_ = nullptr;
    ucp_worker_h worker_ = nullptr;
    ucp_ep_h endpoint_ = nullptr;
    std::vector<std::byte> region_;
    ucp_mem_h memory_ = nullptr;
    ucp_rkey_h key_ = nullptr;
};

// Two processors of the process, of two cores if there are.
void choose_processors(int (&chosen)[2]) {
    cpu_set_t set;
    sched_getaffinity(0, sizeof(set), &set);
    std::vector<std::pair<int, std::string>> all;  // processors and their cores
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(cpu, &set)) continue;
        std::ifstream siblings(
            fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu));
        std::string core;
        std::getline(siblings, core);
        all.emplace_back(cpu, core);
    }
    if (all.size() < 2) throw std::runtime_error("two processors are needed");
    const auto other = std::ranges::find_if(
        all, [&](const auto& each) { return each.second != all.front().second; });
    chosen[0] = all.front().first;
    chosen[1] = other == all.end() ? all[1].first : other->first;
}

void set(const char* name, const char* value) {
    setenv(name, value, 1);
}

// Runs a contestant in two processes.
Times run_pair(const Settings& settings, const Contestant& contestant, const std::string& folder,
               const Point& point) {
    void* shared =
        mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) throw std::runtime_error("no memory");
    auto* board = new (shared) Board;
    pid_t children[2];
    for (unsigned index = 0; index < 2; ++index) {
        children[index] = fork();
        if (children[index] != 0) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        cpu_set_t set_of_one;
        CPU_ZERO(&set_of_one);
        CPU_SET(settings.cpus[index], &set_of_one);
        sched_setaffinity(0, sizeof(set_of_one), &set_of_one);
        set("XDG_CACHE_HOME", folder.c_str());
        set("UCX_COSTS", contestant.costs);
        set(point.variable(), point.value(contestant.choice));
        setenv("UCX_TLS", "self,sm", 0);
        setenv("UCX_LOG_LEVEL", "error", 0);
        int code = 0;
        try {
            End end(point, settings.is_apart, *board, index);
            end.run(settings.seconds);
        } catch (const std::exception& error) {
            fmt::print(stderr, "{}\n", error.what());
            code = 1;
        }
        _exit(code);
    }
    bool is_good = true;
    for (unsigned left = 2; left != 0; --left) {
        int status = 0;
        const pid_t ended = wait(&status);
        is_good = is_good && WIFEXITED(status) && WEXITSTATUS(status) == 0;
        if (is_good) continue;
        for (const pid_t child : children)
            if (child != ended) kill(child, SIGKILL);
    }
    const Times times = board->times;
    munmap(shared, sizeof(Board));
    if (!is_good) throw std::runtime_error(fmt::format("{} failed", contestant.name));
    return times;
}

// The cost files of the contestants, below a folder that goes with this.
class Files {
  public:
    Files() {
        char name[] = "/tmp/settling-XXXXXX";
        if (mkdtemp(name) == nullptr) throw std::runtime_error("no folder");
        folder_ = name;
    }
    ~Files() {
        std::error_code ignored;
        std::filesystem::remove_all(folder_, ignored);
    }
    Files(const Files&) = delete;

    // The cache folder in which the machine's own costs are learned.
    std::string own() const { return folder_ + "/own"; }
    // A cache folder with what a contestant finds.
    // @param better  of that point
    std::string prepare(File file, const Point& point, select::Way better) {
        std::string folder = folder_ + "/next";
        std::filesystem::remove_all(folder);
        if (file == File::kNone) return folder;
        select::CostOwner owner = select::CostOwner::own();
        select::KeptCosts costs;
        must(select::load_costs(path(own()), owner, select::Origin::kKept, &costs));
        if (file == File::kOther) owner.processor += " of another kind";
        for (select::LearnedFigure& each : costs.learned) {
            if (file != File::kWrong || each.operation != kOperations[point.operation] ||
                each.size != select::LearnedCosts::size_of(point.length))
                continue;
            each.factor = each.way == better ? 4 * each.factor : each.factor / 4;
        }
        must(select::save_costs(path(folder), owner, costs));
        return folder;
    }
    // Is the file in the folder the machine's own by now?
    bool is_own(const std::string& folder) const {
        select::KeptCosts costs;
        return select::load_costs(path(folder), select::CostOwner::own(), select::Origin::kKept,
                                  &costs)
            .empty();
    }

  private:
    static void must(const std::string& problem) {
        if (!problem.empty()) throw std::runtime_error("file of costs: " + problem);
    }
    static std::string path(const std::string& folder) {
        set("XDG_CACHE_HOME", folder.c_str());
        return select::default_cost_file(*ucs::runtime().environment, select::CostOwner::own());
    }

    std::string folder_;
};

double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values[(values.size() - 1) / 2];
}

// Speeds of a contestant in a period, over all points.
struct Speeds {
    double logarithms = 0, least = INFINITY;
    unsigned count = 0;

    void add(double speed) {
        logarithms += std::log(speed);
        least = std::min(least, speed);
        ++count;
    }
    std::string text() const {
        return fmt::format("{:.2f} ({:.2f})", std::exp(logarithms / count), least);
    }
};

std::string title(const Point& point) {
    return fmt::format("{}, {}, {} bytes", kOperationNames[point.operation],
                       kPatternNames[static_cast<size_t>(point.pattern)], point.length);
}

class Measurement {
  public:
    explicit Measurement(const Settings& settings) : settings_(settings) {
        for (const size_t operation : settings.operations) {
            for (const Pattern pattern : settings.patterns) {
                for (const size_t length : settings.sizes)
                    points_.push_back({operation, pattern, length});
            }
        }
    }

    void run() {
        fmt::print("# on processors {} and {}, {} s each time, median of {} rounds\n",
                   settings_.cpus[0], settings_.cpus[1], settings_.seconds, settings_.rounds);
        for (const Point& point : points_)
            run_pair(settings_, kContestants[kOwn], files_.own(), point);
        for (const Point& point : points_) measure(point);
        fmt::print("\nspeed to that of learn in the last period, mean (least)\n{:26}", "");
        print_header();
        for (size_t i = 0; i < kContestantCount; ++i) {
            fmt::print("{:26}", kContestants[i].name);
            for (size_t period = 0; period < kCount; ++period)
                fmt::print("{:>14}", speeds_[i][period].text());
            fmt::print("\n");
        }
    }

  private:
    void print_header() const {
        for (size_t period = 0; period < kCount; ++period) {
            const double end = period + 1 < kCount ? kPeriods[period + 1] : settings_.seconds;
            fmt::print("{:>14}", fmt::format("{:g}-{:g} s", kPeriods[period], end));
        }
        fmt::print("\n");
    }

    void measure(const Point& point) {
        std::vector<double> times[kContestantCount][kCount];
        for (unsigned round = 0; round < settings_.rounds; ++round) {
            for (size_t i = 0; i < kContestantCount; ++i) {
                const auto so_far = [&](size_t which) { return median(times[which][kCount - 1]); };
                const bool knows = i > kSecondWay;
                const select::Way better = knows && so_far(kSecondWay) < so_far(kFirstWay)
                                               ? point.second()
                                               : point.first();
                const std::string folder = files_.prepare(kContestants[i].file, point, better);
                const Times took = run_pair(settings_, kContestants[i], folder, point);
                if (kContestants[i].file == File::kOther && !files_.is_own(folder))
                    throw std::runtime_error("another machine's file was not replaced");
                for (size_t period = 0; period < kCount; ++period)
                    times[i][period].push_back(took.of(period));
            }
        }
        fmt::print("\n{:26}", title(point));
        print_header();
        // Beside its neighbour in time: a machine may change from round to round.
        const auto& own = times[kOwn][kCount - 1];
        const auto speed = [&](const std::vector<double>& its) {
            std::vector<double> speeds;
            for (size_t round = 0; round < its.size(); ++round)
                if (std::isfinite(its[round])) speeds.push_back(own[round] / its[round]);
            return speeds.empty() ? NAN : median(speeds);
        };
        for (size_t i = 0; i < kContestantCount; ++i) {
            fmt::print("{:26}", kContestants[i].name);
            for (size_t period = 0; period < kCount; ++period) {
                fmt::print("{:>14.2f}", 1e6 * median(times[i][period]));
                const double its_speed = speed(times[i][period]);
                if (std::isfinite(its_speed)) speeds_[i][period].add(its_speed);
            }
            fmt::print("    {:.2f}\n", speed(times[i][kCount - 1]));
        }
        std::fflush(stdout);
    }

    const Settings& settings_;
    Files files_;
    std::vector<Point> points_;
    Speeds speeds_[kContestantCount][kCount];
};

std::vector<std::string> words(const char* list) {
    std::vector<std::string> found;
    std::istringstream stream(list);
    for (std::string word; std::getline(stream, word, ',');) found.push_back(word);
    return found;
}

// @return false: there is no such option
bool take(std::string_view name, const char* value, Settings& settings) {
    if (name == "--seconds") {
        settings.seconds = std::max(std::atof(value), kPeriods[kCount - 1] + 0.1);
    } else if (name == "--rounds") {
        settings.rounds = static_cast<unsigned>(std::max(std::atoi(value), 1));
    } else if (name == "--sizes") {
        settings.sizes.clear();
        for (const std::string& each : words(value))
            settings.sizes.push_back(std::strtoull(each.c_str(), nullptr, 0));
    } else if (name == "--patterns") {
        settings.patterns.clear();
        for (const std::string& each : words(value)) {
            const auto* const found = std::ranges::find(kPatternNames, each);
            if (found == std::end(kPatternNames)) return false;
            settings.patterns.push_back(static_cast<Pattern>(found - kPatternNames));
        }
    } else if (name == "--operations") {
        settings.operations.clear();
        for (const std::string& each : words(value)) {
            const auto* const found = std::ranges::find(kOperationNames, each);
            if (found == std::end(kOperationNames)) return false;
            settings.operations.push_back(static_cast<size_t>(found - kOperationNames));
        }
    } else if (name == "--cpus") {
        const std::vector<std::string> cpus = words(value);
        if (cpus.size() != 2) return false;
        for (size_t i = 0; i < 2; ++i) settings.cpus[i] = std::atoi(cpus[i].c_str());
    } else {
        return false;
    }
    return true;
}

}  // namespace

int main(int argc, char** argv) {
    Settings settings;
    for (int at = 1; at < argc; ++at) {
        if (std::string_view(argv[at]) == "--apart") {
            settings.is_apart = true;
        } else if (at + 1 == argc || !take(argv[at], argv[at + 1], settings)) {
            fmt::print(stderr, "not understood: {}\n", argv[at]);
            return 2;
        } else {
            ++at;
        }
    }
    try {
        if (settings.cpus[0] < 0) choose_processors(settings.cpus);
        Measurement(settings).run();
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        return 1;
    }
    return 0;
}
