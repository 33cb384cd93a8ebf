// SPDX-License-Identifier: BSD-3-Clause

// process_soak [--processes N] [--seconds S] [--patience S] [--seed SEED] [--static]
//              [--stop S] [--shake S] [--kill | --die N]
//
// With --shake the link (lo, of a network namespace of its own) goes away for less than S seconds
// and comes back for three to six, again and again.
//
// Processes over the shared libraries, each with the traffic of traffic.h to all others, while
// lanes are switched all the time; not with --static, for transports without. With --kill one is
// killed half way: the others must notice, and go on with each other. With --die it is killed by
// its adapter, from within the N-th operation that this executes. With --stop another one stands
// still (SIGSTOP) for S seconds, from an eighth of the time on: nothing of it may be lost, and
// those who do not wait for it go on. What has not been seen by then, and what is under way at the
// end, may each take as many seconds more as --patience says (30).

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string_view>
#include <vector>

#include "system/traffic.h"
#include "ucs/sys/random.h"

namespace ucp::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostProcesses = 16;
constexpr size_t kMostBytes = 4096;

struct Settings {
    size_t processes = 8;
    unsigned seconds = 15;
    unsigned patience = 30;
    uint64_t seed = 1;
    bool is_static = false;
    unsigned stop = 0;   // seconds
    unsigned shake = 0;  // seconds
    bool kill = false;
    uint64_t die = 0;  // operation at which it kills itself; 0: it is killed

    bool is_doomed(size_t index) const { return kill && index == processes - 1; }
};

// An address or key, of so many bytes.
struct Packed {
    size_t length;
    uint64_t address;
    char bytes[kMostBytes];
};

// What the processes share beside the fabric; made before they are.
struct Board {
    std::atomic<size_t> arrived[4];
    std::atomic<uint64_t> messages, bytes, operations, promotions, demotions;
    Packed addresses[kMostProcesses];
    Packed regions[kMostProcesses][kMostProcesses];  // of owner, for user
};

class Process {
  public:
    Process(const Settings& settings, Board& board, size_t index)
        : settings_(settings), board_(board), index_(index), failures_(settings.processes) {}

    int run() {
        if (!start()) return 1;
        const auto end = Clock::now() + std::chrono::seconds(settings_.seconds);
        const auto seen_by = end + std::chrono::seconds(settings_.patience);
        const auto limit = seen_by + std::chrono::seconds(settings_.patience);
        // So long, and until what this is about has happened: a machine may stand still meanwhile.
        while (Clock::now() < end || (!has_seen_all() && Clock::now() < seen_by)) turn(true);
        party_->stop();
        while (!party_->is_done() && party_->errors().empty() && Clock::now() < limit) turn(true);
        // After an error nothing is waited for: that something is under way says nothing then.
        if (!party_->is_done() && party_->errors().empty()) {
            complain("hangs:\n" + party_->describe());
        }
        // Others may still need this one's answers.
        meet(1, limit);
        check_end();
        for (const std::string& error : party_->errors()) complain(error);
        party_->abandon();
        is_over_ = true;
        for (int count = 0; count < 100; ++count) ucp_worker_progress(worker_);
        meet(2, limit);
        ucp_worker_destroy(worker_);
        party_.reset();
        ucp_cleanup(context_);
        return status_;
    }

  private:
    // An endpoint's error handler leaves its word here.
    struct Failure {
        unsigned calls = 0;
    };

    bool start() {
        ucp_params_t params{};
        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_RMA | UCP_FEATURE_AMO32 |
                          UCP_FEATURE_AMO64;
        ucp_worker_params_t worker_params{};
        ucp_address_t* address = nullptr;
        size_t length = 0;
        if (ucp_init(&params, nullptr, &context_) != UCS_OK ||
            ucp_worker_create(context_, &worker_params, &worker_) != UCS_OK ||
            ucp_worker_get_address(worker_, &address, &length) != UCS_OK) {
            return complain("cannot start"), false;
        }
        store(board_.addresses[index_], {reinterpret_cast<char*>(address), length}, 0);
        ucp_worker_release_address(worker_, address);
        TrafficOptions options;
        options.seed = settings_.seed;
        options.workers = settings_.processes;
        options.operations = ~0u;
        options.max_length = size_t{4} << 20;
        options.slots = 2;
        options.slot_bytes = size_t{256} << 10;
        party_ = std::make_unique<Party>(options, index_, context_, worker_);
        for (size_t peer = 0; peer < settings_.processes; ++peer) {
            if (peer == index_) continue;
            const TrafficRegion region = party_->region_for(peer);
            store(board_.regions[index_][peer], region.key, region.address);
        }
        meet(0, Clock::now() + std::chrono::seconds(60));
        for (size_t peer = 0; peer < settings_.processes; ++peer) {
            if (peer != index_ && !connect(peer)) return complain("cannot connect"), false;
        }
        return true;
    }

    static void store(Packed& packed, std::string_view bytes, uint64_t address) {
        if (bytes.size() > kMostBytes) std::abort();
        packed.length = bytes.size();
        packed.address = address;
        std::memcpy(packed.bytes, bytes.data(), bytes.size());
    }

    bool connect(size_t peer) {
        ucp_ep_params_t params{};
        params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                            UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
        params.address = reinterpret_cast<const ucp_address_t*>(board_.addresses[peer].bytes);
        params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
        params.err_handler.cb = [](void* arg, ucp_ep_h, ucs_status_t) {
            ++static_cast<Failure*>(arg)->calls;
        };
        params.err_handler.arg = &failures_[peer];
        ucp_ep_h endpoint = nullptr;
        if (ucp_ep_create(worker_, &params, &endpoint) != UCS_OK) return false;
        const Packed& key = board_.regions[peer][index_];
        party_->connect(peer, endpoint, {key.address, std::string(key.bytes, key.length)});
        if (is_doomed(peer)) party_->expect_failure(peer);
        return true;
    }

    bool is_doomed(size_t peer) const { return settings_.is_doomed(peer); }

    // Messages, a switch each way where lanes are switched, and the death of who must die.
    bool has_seen_all() const {
        if (is_doomed(index_)) return false;  // goes on until it is killed
        for (size_t peer = 0; peer < settings_.processes; ++peer) {
            if (is_doomed(peer) && failures_[peer].calls == 0) return false;
        }
        if (party_->totals().messages == 0) return false;
        ucpx_worker_attr_t attr{};
        attr.field_mask = UCPX_WORKER_ATTR_FIELD_SWITCHES;
        ucpx_worker_query(worker_, &attr);
        return settings_.is_static || (attr.promotions != 0 && attr.demotions != 0);
    }

    void turn(bool with_traffic) {
        if (with_traffic) {
            party_->step();
            if (++turns_ % 256 == 0 && !settings_.is_static) party_->force_switch();
        }
        const bool moved = ucp_worker_progress(worker_) != 0;
        for (size_t peer = 0; peer < settings_.processes; ++peer) {
            if (failures_[peer].calls == 0 || forgiven_[peer] || is_over_) continue;
            forgiven_[peer] = true;
            if (is_doomed(peer)) {
                party_->forgive(peer);
            } else {
                complain(fmt::format("the endpoint to {} failed", peer));
            }
        }
        // More processes than processors: one with nothing to do lets others run.
        idle_ = moved ? 0 : idle_ + 1;
        if (idle_ > 20) sched_yield();
    }

    void meet(size_t place, Clock::time_point limit) {
        const bool one_is_gone = settings_.kill && place != 0;
        board_.arrived[place].fetch_add(1);
        while (board_.arrived[place].load() < settings_.processes - (one_is_gone ? 1 : 0)) {
            if (Clock::now() > limit) return complain("waits for the others in vain");
            turn(place == 1);
            if (place == 0) sched_yield();
        }
    }

    void check_end() {
        ucpx_worker_attr_t attr{};
        attr.field_mask = UCPX_WORKER_ATTR_FIELD_SLOTS | UCPX_WORKER_ATTR_FIELD_SWITCHES |
                          UCPX_WORKER_ATTR_FIELD_NEGOTIATION;
        ucpx_worker_query(worker_, &attr);
        if (attr.dedicated_peak > attr.cap) complain("the cap was exceeded");
        if (attr.violations != 0) complain("a correct peer was taken for a wrong one");
        for (size_t peer = 0; peer < settings_.processes; ++peer) {
            const unsigned expected = is_doomed(peer) && peer != index_ ? 1 : 0;
            if (failures_[peer].calls != expected) {
                complain(fmt::format("the error handler for {} ran {} times", peer,
                                     failures_[peer].calls));
            }
        }
        board_.messages += party_->totals().messages;
        board_.bytes += party_->totals().bytes;
        board_.operations += party_->totals().operations;
        board_.promotions += attr.promotions;
        board_.demotions += attr.demotions;
    }

    void complain(const std::string& what) {
        fmt::print(stderr, "process {}: {}\n", index_, what);
        status_ = 1;
    }

    const Settings& settings_;
    Board& board_;
    const size_t index_;
    std::vector<Failure> failures_;
    bool forgiven_[kMostProcesses] = {};
    bool is_over_ = false;  // who comes first to the last meeting's end is gone for the others
    ucp_context_h context_ = nullptr;
    ucp_worker_h worker_ = nullptr;
    std::unique_ptr<Party> party_;
    uint64_t turns_ = 0, idle_ = 0;
    int status_ = 0;
};

// What is done to the processes, at a time since all have met.
struct Blow {
    std::chrono::milliseconds at;
    std::function<void()> deal;
};

void set_link(const char* state) {
    const std::string command = fmt::format("ip link set lo {}", state);
    if (std::system(command.c_str()) != 0) fmt::print(stderr, "the link cannot be set {}\n", state);
}

std::vector<Blow> blows_of(const Settings& settings, const std::vector<pid_t>& children) {
    using std::chrono::milliseconds;
    std::vector<Blow> blows;
    const auto add_signal = [&](milliseconds at, size_t index, int signal) {
        blows.push_back({at, [child = children[index], signal] { kill(child, signal); }});
    };
    if (settings.stop != 0) {
        const milliseconds from(settings.seconds * 125);
        add_signal(from, settings.processes - 2, SIGSTOP);
        add_signal(from + std::chrono::seconds(settings.stop), settings.processes - 2, SIGCONT);
    }
    if (settings.kill && settings.die == 0)
        add_signal(milliseconds(settings.seconds * 500), settings.processes - 1, SIGKILL);
    ucs::Random random(settings.seed);
    const auto less_than = [&](unsigned seconds) {
        return milliseconds(random.below(uint64_t{1000} * seconds));
    };
    const std::chrono::seconds end(settings.seconds);
    for (milliseconds at(1000); settings.shake != 0 && at < end;) {
        blows.push_back({at, [] { set_link("down"); }});
        at += less_than(settings.shake);
        blows.push_back({at, [] { set_link("up"); }});
        at += std::chrono::seconds(3) + less_than(3);
    }
    std::ranges::stable_sort(blows, {}, &Blow::at);
    return blows;
}

void strike(const Board& board, const Settings& settings, const std::vector<Blow>& blows) {
    if (blows.empty()) return;
    while (board.arrived[0].load() < settings.processes) poll(nullptr, 0, 10);
    const auto start = Clock::now();
    for (const Blow& blow : blows) {
        const auto wait =
            std::chrono::ceil<std::chrono::milliseconds>(start + blow.at - Clock::now());
        if (wait.count() > 0) poll(nullptr, 0, static_cast<int>(wait.count()));
        blow.deal();
    }
}

int launch(const Settings& settings) {
    void* memory =
        mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 1;
    Board& board = *new (memory) Board();
    std::vector<pid_t> children;
    const pid_t launcher = getpid();
    for (size_t index = 0; index < settings.processes; ++index) {
        const pid_t child = fork();
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != launcher) _exit(1);
            if (settings.is_doomed(index) && settings.die != 0) {
                const std::string faults = fmt::format("die={}", settings.die);
                setenv("SOFTHCA_FAULTS", faults.c_str(), 1);
            }
            // Not _exit(): the adapters leave their fabric in an exit handler.
            std::exit(Process(settings, board, index).run());
        }
        children.push_back(child);
    }
    const pid_t victim = settings.kill ? children.back() : 0;
    strike(board, settings, blows_of(settings, children));
    int failed = 0;
    for (const pid_t child : children) {
        int status = 0;
        waitpid(child, &status, 0);
        if (child == victim) {
            if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) ++failed;
        } else if (status != 0) {
            ++failed;
        }
    }
    fmt::print(
        "{} processes, {} s: {} failed; {} switches by each end ({} promotions, {} demotions); {} "
        "messages, {} operations, {} bytes\n",
        settings.processes, settings.seconds, failed,
        board.promotions.load() + board.demotions.load(), board.promotions.load(),
        board.demotions.load(), board.messages.load(), board.operations.load(), board.bytes.load());
    const bool were_switched = board.promotions != 0 && board.demotions != 0;
    const bool was_idle = were_switched == settings.is_static || board.messages == 0;
    return failed != 0 || was_idle ? 1 : 0;
}

}  // namespace
}  // namespace ucp::test

int main(int argc, char** argv) {
    ucp::test::Settings settings;
    for (int index = 1; index < argc; ++index) {
        const std::string_view name = argv[index];
        const bool has_value = index + 1 < argc;
        if (name == "--kill") {
            settings.kill = true;
        } else if (name == "--shake" && has_value) {
            settings.shake = static_cast<unsigned>(std::strtoul(argv[++index], nullptr, 10));
        } else if (name == "--static") {
            settings.is_static = true;
        } else if (name == "--die" && has_value) {
            settings.kill = true;
            settings.die = std::strtoull(argv[++index], nullptr, 10);
        } else if (name == "--stop" && has_value) {
            settings.stop = static_cast<unsigned>(std::strtoul(argv[++index], nullptr, 10));
        } else if (name == "--processes" && has_value) {
            settings.processes = std::strtoul(argv[++index], nullptr, 10);
        } else if (name == "--seconds" && has_value) {
            settings.seconds = static_cast<unsigned>(std::strtoul(argv[++index], nullptr, 10));
        } else if (name == "--patience" && has_value) {
            settings.patience = static_cast<unsigned>(std::strtoul(argv[++index], nullptr, 10));
        } else if (name == "--seed" && has_value) {
            settings.seed = std::strtoull(argv[++index], nullptr, 10);
        } else {
            fmt::print(stderr,
                       "process_soak [--processes N] [--seconds S] [--patience S] [--seed N] "
                       "[--static] [--stop S] [--shake S] [--kill | --die N]\n");
            return 2;
        }
    }
    if (settings.processes < 2 || settings.processes > ucp::test::kMostProcesses) return 2;
    return ucp::test::launch(settings);
}
