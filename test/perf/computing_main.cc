// SPDX-License-Identifier: BSD-3-Clause

// computing [--bytes N] [--rounds N] [--workers N] [--cpu N] [--get] [--passive] [--netns NAME]
//
// What a put of many bytes costs a program that computes meanwhile and calls no progress
// (UCX_BULK_WORKERS), beside one that waits for it in progress and has no threads. UCX_TLS and the
// like choose the transport; with --netns the target is in that network namespace. With --passive
// the target of the one that waits does not call progress either, for transports that do without:
// it computes, so that both measurements keep two processors busy, which may be halves of one core.
//
// The program is bound to one processor, everything else to the others. What it computes fits in
// its first cache. The target says when the last byte has landed: it looks from time to time and
// makes no call either. Prints the medians: rates, and what of a core the program has lost.

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "ucp/api/ucp.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Settings {
    size_t bytes = 1 << 30;
    unsigned rounds = 5;
    std::string workers = "1";
    unsigned cpu = 0;
    bool is_get = false;
    bool is_passive = false;
    std::string network;
};

// What the processes tell each other without a call.
struct Board {
    enum Phase : int { kStart, kReady, kProgress, kCompute, kOver };
    std::atomic<int> phase{kStart};  // of the pair that is measured
    std::atomic<uint8_t> mark{0};    // that the bytes of this round have
    std::atomic<bool> has_landed{false};
    std::atomic<uint64_t> memory{0};
    size_t address_length[2];
    std::byte address[2][8192];
    size_t key_length;
    std::byte key[8192];
};

void check(ucs_status_t status, const char* what) {
    if (status != UCS_OK)
        throw std::runtime_error(fmt::format("{}: {}", what, ucs_status_string(status)));
}

double seconds(Clock::duration time) {
    return std::chrono::duration<double>(time).count();
}

// Some 20 us of arithmetic.
uint64_t compute() {
    static uint64_t table[512];
    uint64_t sum = 1;
    for (unsigned round = 0; round < 20; ++round) {
        for (uint64_t& each : table) {
            sum = sum * 6364136223846793005u + each;
            each ^= sum >> 7;
        }
    }
    return sum;
}

void bind(unsigned cpu, bool is_there) {
    cpu_set_t set;
    sched_getaffinity(0, sizeof(set), &set);
    if (is_there) CPU_ZERO(&set);
    is_there ? CPU_SET(cpu, &set) : CPU_CLR(cpu, &set);
    if (sched_setaffinity(0, sizeof(set), &set) != 0) throw std::runtime_error("no such processor");
}

// One end of a pair of processes.
class End {
  public:
    End(const Settings& settings, Board& board, unsigned index, const std::string& workers)
        : settings_(settings), board_(board) {
        void* memory = mmap(nullptr, settings.bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (memory == MAP_FAILED) throw std::runtime_error("no memory");
        bytes_ = static_cast<std::byte*>(memory);
        ucp_config_t* config = nullptr;
        check(ucp_config_read(nullptr, nullptr, &config), "configuration");
        check(ucp_config_modify(config, "BULK_WORKERS", workers.c_str()), "BULK_WORKERS");
        ucp_params_t params{};
        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features = UCP_FEATURE_RMA;
        check(ucp_init(&params, config, &context_), "context");
        ucp_config_release(config);
        const ucp_worker_params_t worker_params{};
        check(ucp_worker_create(context_, &worker_params, &worker_), "worker");
        ucp_mem_map_params_t map{};
        map.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
        map.address = memory;
        map.length = settings.bytes;
        check(ucp_mem_map(context_, &map, &memory_), "memory");
        ucp_address_t* address = nullptr;
        size_t length = 0;
        check(ucp_worker_get_address(worker_, &address, &length), "address");
        std::memcpy(board.address[index], address, std::min(length, sizeof(board.address[index])));
        board.address_length[index] = length;
        ucp_worker_release_address(worker_, address);
    }

    void connect(unsigned index) {
        ucp_ep_params_t params{};
        params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        params.address = reinterpret_cast<ucp_address_t*>(board_.address[index]);
        check(ucp_ep_create(worker_, &params, &endpoint_), "endpoint");
    }
    void pack_key() {
        void* packed = nullptr;
        check(ucp_rkey_pack(context_, memory_, &packed, &board_.key_length), "key");
        std::memcpy(board_.key, packed, board_.key_length);
        ucp_rkey_buffer_release(packed);
        board_.memory = reinterpret_cast<uintptr_t>(bytes_);
    }
    void unpack_key() { check(ucp_ep_rkey_unpack(endpoint_, board_.key, &key_), "key"); }

    void progress() { ucp_worker_progress(worker_); }
    std::byte* bytes() const { return bytes_; }

    ucs_status_ptr_t start() {
        const ucp_request_param_t params{};
        const uint64_t there = board_.memory;
        const ucs_status_ptr_t request =
            settings_.is_get
                ? ucp_get_nbx(endpoint_, bytes_, settings_.bytes, there, key_, &params)
                : ucp_put_nbx(endpoint_, bytes_, settings_.bytes, there, key_, &params);
        if (UCS_PTR_IS_ERR(request)) check(UCS_PTR_STATUS(request), "transfer");
        return request;
    }
    void finish(ucs_status_ptr_t request) {
        if (request == nullptr) return;
        while (ucp_request_check_status(request) == UCS_INPROGRESS) progress();
        check(ucp_request_check_status(request), "transfer");
        ucp_request_free(request);
    }

  private:
    const Settings& settings_;
    Board& board_;
    std::byte* bytes_ = nullptr;
    ucp_context_h context_ = nullptr;
    ucp_worker_h worker_ = nullptr;
    ucp_mem_h memory_ = nullptr;
    ucp_ep_h endpoint_ = nullptr;
    ucp_rkey_h key_ = nullptr;
};

// The bytes from the front that have come, as far as they are looked at.
class Landing {
  public:
    Landing(const std::byte* bytes, size_t length) : bytes_(bytes), length_(length) {}
    bool is_whole(uint8_t mark) {
        constexpr size_t kStep = 65536;  // to look costs a cache line
        for (; at_ < length_; at_ += kStep) {
            const auto* end = reinterpret_cast<const volatile uint8_t*>(bytes_ + at_ + kStep - 1);
            if (*end != mark) return false;
        }
        return true;
    }

  private:
    const std::byte* const bytes_;
    const size_t length_;
    size_t at_ = 0;
};

void be_target(const Settings& settings, Board& board, const std::string& workers) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!settings.network.empty()) {
        const int space = open(("/run/netns/" + settings.network).c_str(), O_RDONLY | O_CLOEXEC);
        if (space < 0 || setns(space, CLONE_NEWNET) != 0)
            throw std::runtime_error("no such network namespace");
    }
    bind(settings.cpu, false);
    End end(settings, board, 1, workers);
    end.pack_key();
    board.phase = Board::kReady;
    while (board.phase == Board::kReady) usleep(1000);
    end.connect(0);
    static volatile uint64_t sink = 0;
    while (board.phase != Board::kOver) {
        if (board.phase != Board::kCompute) {
            if (settings.is_passive && board.mark != 0) {
                sink = sink + compute();
            } else {
                end.progress();
            }
            continue;
        }
        if (settings.is_get) {
            usleep(1000);
            continue;
        }
        Landing landing(end.bytes(), settings.bytes);
        while (!landing.is_whole(board.mark)) usleep(500);
        board.has_landed = true;
        while (board.phase == Board::kCompute && board.has_landed) usleep(100);
    }
    _exit(0);
}

struct Pair {
    Pair(const Settings& settings, const std::string& workers) {
        void* shared =
            mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        board = new (shared) Board;
        child = fork();
        if (child == 0) {
            try {
                be_target(settings, *board, workers);
            } catch (const std::exception& error) {
                fmt::print(stderr, "target: {}\n", error.what());
                _exit(1);
            }
        }
        while (board->phase == Board::kStart) {
            if (waitpid(child, nullptr, WNOHANG) == child) throw std::runtime_error("no target");
            usleep(1000);
        }
        end = new End(settings, *board, 0, workers);
        board->phase = Board::kProgress;
        end->connect(1);
        end->unpack_key();
        // Connections and queue pairs come with the first transfers.
        for (unsigned count = 0; count < 2; ++count) end->finish(end->start());
        const auto until = Clock::now() + std::chrono::milliseconds(300);
        while (Clock::now() < until) end->progress();
        board->phase = Board::kCompute;
    }
    ~Pair() {
        board->phase = Board::kOver;
        waitpid(child, nullptr, 0);
    }
    Pair(const Pair&) = delete;

    Board* board;
    pid_t child;
    End* end;
};

double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
}

void measure(const Settings& settings) {
    Pair waits(settings, "0"), computes(settings, settings.workers);
    bind(settings.cpu, true);
    std::vector<double> waiting, computing, lost;
    uint64_t sum = 0;
    for (unsigned round = 0; round < settings.rounds; ++round) {
        const auto mark = static_cast<uint8_t>(round + 1);
        std::memset(waits.end->bytes(), mark, settings.bytes);
        std::memset(computes.end->bytes(), mark, settings.bytes);
        // The others stand still.
        waits.board->mark = mark;
        waits.board->phase = Board::kProgress;
        usleep(20000);
        auto begin = Clock::now();
        waits.end->finish(waits.end->start());
        waiting.push_back(static_cast<double>(settings.bytes) / seconds(Clock::now() - begin));
        waits.board->phase = Board::kCompute;

        computes.board->mark = mark;
        computes.board->has_landed = false;
        computes.board->phase = Board::kCompute;
        usleep(20000);
        begin = Clock::now();
        uint64_t alone = 0;
        for (; Clock::now() - begin < std::chrono::milliseconds(200); ++alone) sum += compute();
        const double rate = static_cast<double>(alone) / seconds(Clock::now() - begin);
        begin = Clock::now();
        const ucs_status_ptr_t request = computes.end->start();
        uint64_t done = 0;
        Landing landing(computes.end->bytes(), settings.bytes);
        const auto has_landed = [&] {
            return settings.is_get ? landing.is_whole(0) : computes.board->has_landed.load();
        };
        for (; !has_landed(); ++done) {
            sum += compute();
            if (seconds(Clock::now() - begin) > 30) throw std::runtime_error("nothing moves");
        }
        const double time = seconds(Clock::now() - begin);
        computing.push_back(static_cast<double>(settings.bytes) / time);
        lost.push_back(1 - static_cast<double>(done) / (rate * time));
        fmt::print("  round {}: {:.2f} GB/s, {:.2f} GB/s, {:.1f} %\n", round + 1,
                   waiting.back() / 1e9, computing.back() / 1e9, 100 * lost.back());
        computes.board->phase = Board::kProgress;
        computes.end->finish(request);
        computes.board->phase = Board::kCompute;
    }
    fmt::print(
        "{} bytes, {} worker threads: {:.2f} GB/s in progress, {:.2f} GB/s while the program "
        "computes ({:.2f} of it), which loses {:.1f} % of a core{}\n",
        settings.bytes, settings.workers, median(waiting) / 1e9, median(computing) / 1e9,
        median(computing) / median(waiting), 100 * median(lost), sum == 0 ? "." : "");
}

}  // namespace

int main(int argc, char** argv) {
    Settings settings;
    for (int at = 1; at < argc; ++at) {
        const std::string_view name = argv[at];
        if (name == "--get") {
            settings.is_get = true;
            continue;
        }
        if (name == "--passive") {
            settings.is_passive = true;
            continue;
        }
        if (at + 1 == argc) {
            fmt::print(stderr, "{} needs a value\n", name);
            return 2;
        }
        const char* const value = argv[++at];
        if (name == "--bytes") {
            settings.bytes = std::strtoull(value, nullptr, 0) & ~size_t{65535};
        } else if (name == "--rounds") {
            settings.rounds = static_cast<unsigned>(std::atoi(value));
        } else if (name == "--workers") {
            settings.workers = value;
        } else if (name == "--cpu") {
            settings.cpu = static_cast<unsigned>(std::atoi(value));
        } else if (name == "--netns") {
            settings.network = value;
        } else {
            fmt::print(stderr, "unknown: {}\n", name);
            return 2;
        }
    }
    try {
        measure(settings);
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        return 1;
    }
    return 0;
}
