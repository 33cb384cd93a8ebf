// SPDX-License-Identifier: BSD-3-Clause

// remapped [--rounds N] [--seconds S] [--seed N] [--events none]
//
// Memory is sent from, received into, put from and got into, and between transfers it goes and
// comes back at the same address with other pages, by every way that a process has; now and then
// the process forks, and parent and child go on. What arrives must be what is there. On a device
// that pins pages, a registration that outlives its memory shows: it carries the old pages' bytes.
// With --events none the program claims to report memory events, and does not: then the test must
// fail.
//
// A round is: a page was transferred, was replaced, and was transferred again. Many places are
// transferred at a time, in random order, as a processor that waits for one at a time does little
// else. Ends with status 1 at the first stale transfer.

#include <malloc.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <string_view>
#include <vector>

#include "rdma/place.h"
#include "ucm/api/ucm.h"
#include "ucp/api/ucp.h"

namespace remapped {
namespace {

constexpr size_t kPlaces = 64;
constexpr uint64_t kRoundsOfChild = 100;

struct Options {
    uint64_t rounds = 1000;
    uint64_t seconds = UINT64_MAX;
    uint64_t seed = 1;
    bool has_events = true;
    bool is_child = false;  // says nothing while all is right, and has no children
};

// One end: a context of its own, as if it were another process.
class Side {
  public:
    Side() {
        ucp_params_t params{};
        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features = UCP_FEATURE_TAG | UCP_FEATURE_RMA;
        check(ucp_init(&params, nullptr, &context_) == UCS_OK, "ucp_init");
        ucp_worker_params_t worker{};
        check(ucp_worker_create(context_, &worker, &worker_) == UCS_OK, "ucp_worker_create");
    }
    void connect(Side& other) {
        ucp_address_t* address = nullptr;
        size_t length = 0;
        check(ucp_worker_get_address(other.worker_, &address, &length) == UCS_OK, "address");
        ucp_ep_params_t params{};
        params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        params.address = address;
        check(ucp_ep_create(worker_, &params, &endpoint_) == UCS_OK, "ucp_ep_create");
        ucp_worker_release_address(other.worker_, address);
    }
    ucp_context_h context() const { return context_; }
    ucp_worker_h worker() const { return worker_; }
    ucp_ep_h endpoint() const { return endpoint_; }

  private:
    ucp_context_h context_ = nullptr;
    ucp_worker_h worker_ = nullptr;
    ucp_ep_h endpoint_ = nullptr;
};

// Bytes that must be the same at both ends when it is done.
struct Transfer {
    const char* what;
    const char* from;
    const char* to;
    size_t length;
};

class Test {
  public:
    explicit Test(const Options& options) : options_(options), random_(options.seed) {
        a_.connect(b_);
        b_.connect(a_);
        target_.resize(kPlaces * kPlaceSize);
        ucp_mem_map_params_t params{};
        params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
        params.address = target_.data();
        params.length = target_.size();
        check(ucp_mem_map(b_.context(), &params, &mapped_) == UCS_OK, "ucp_mem_map");
        void* packed = nullptr;
        size_t length = 0;
        check(ucp_rkey_pack(b_.context(), mapped_, &packed, &length) == UCS_OK, "ucp_rkey_pack");
        check(ucp_ep_rkey_unpack(a_.endpoint(), packed, &key_) == UCS_OK, "ucp_ep_rkey_unpack");
        ucp_rkey_buffer_release(packed);
        using Kind = Place::Kind;
        places_.reserve(kPlaces);
        for (const Kind kind : {Kind::kBreak, Kind::kSegment, Kind::kBlock})
            places_.emplace_back(kind);
        while (places_.size() < kPlaces) places_.emplace_back(Kind::kMapped);
        for (size_t i = 0; i < kPlaces; ++i) order_.push_back(i);
    }

    int run() {
        const auto end = std::chrono::steady_clock::now() +
                         std::chrono::seconds(std::min<uint64_t>(options_.seconds, 1000000));
        if (!options_.is_child) std::printf("seed %llu\n", number(options_.seed));
        uint64_t next_report = kReport, next_fork = kFirstFork;
        while (rounds_ < options_.rounds && std::chrono::steady_clock::now() < end) {
            if (!transfer_all()) return 1;
            // Some stay, so that registrations are found again.
            for (const size_t place : order_) {
                if (random_() % 8 != 0) places_[place].renew(random_, ways_);
            }
            if (!options_.is_child && rounds_ >= next_fork) {
                next_fork = rounds_ + kBetweenForks;
                if (!fork_and_go_on()) return 1;
            }
            if (rounds_ < next_report) continue;
            next_report += kReport;
            std::printf("%llu rounds\n", number(rounds_));
            std::fflush(stdout);
        }
        if (options_.is_child) return 0;
        std::printf("figure: %llu rounds with seed %llu, none of %llu transfers stale; %s\n",
                    number(rounds_), number(options_.seed), number(transfers_),
                    ways_.text().c_str());
        return 0;
    }

  private:
    static constexpr uint64_t kReport = 20000, kFirstFork = 200, kBetweenForks = 2000;
    static unsigned long long number(uint64_t value) { return value; }

    void fill(char* at, size_t length) {
        const uint64_t seed = random_();
        for (size_t i = 0; i < length; i += sizeof(uint64_t)) {
            const uint64_t value = seed + i;
            std::memcpy(at + i, &value, sizeof(value));
        }
    }

    void start(ucs_status_ptr_t operation) {
        if (operation == nullptr) return;
        check(!UCS_PTR_IS_ERR(operation), "an operation was refused");
        started_.push_back(operation);
    }
    void wait_for_all() {
        for (ucs_status_ptr_t operation : started_) {
            ucs_status_t status;
            while ((status = ucp_request_check_status(operation)) == UCS_INPROGRESS) {
                ucp_worker_progress(a_.worker());
                ucp_worker_progress(b_.worker());
            }
            check(status == UCS_OK, ucs_status_string(status));
            ucp_request_free(operation);
        }
        started_.clear();
    }

    void put_or_get(size_t index) {
        const ucp_request_param_t params{};
        const std::span<char> buffer = places_[index].choose(random_, false);
        char* const target = target_.data() + index * kPlaceSize;
        const auto remote = reinterpret_cast<uintptr_t>(target);
        if (random_() % 2 == 0) {
            fill(buffer.data(), buffer.size());
            start(ucp_put_nbx(a_.endpoint(), buffer.data(), buffer.size(), remote, key_, &params));
            current_.push_back({"put", buffer.data(), target, buffer.size()});
        } else {
            fill(target, buffer.size());
            start(ucp_get_nbx(a_.endpoint(), buffer.data(), buffer.size(), remote, key_, &params));
            current_.push_back({"get", target, buffer.data(), buffer.size()});
        }
        rounds_of_batch_ += places_[index].transferred(buffer, random_);
    }
    void message(size_t from, size_t to) {
        const ucp_request_param_t params{};
        std::span<char> sent = places_[from].choose(random_, true);
        std::span<char> received = places_[to].choose(random_, true);
        const size_t length = std::min(sent.size(), received.size());
        sent = sent.first(length);
        received = received.first(length);
        fill(sent.data(), length);
        start(ucp_tag_recv_nbx(b_.worker(), received.data(), length, from, ~uint64_t{0}, &params));
        start(ucp_tag_send_nbx(a_.endpoint(), sent.data(), length, from, &params));
        current_.push_back({"message", sent.data(), received.data(), length});
        rounds_of_batch_ += places_[from].transferred(sent, random_);
        rounds_of_batch_ += places_[to].transferred(received, random_);
    }

    bool transfer_all() {
        std::shuffle(order_.begin(), order_.end(), random_);
        current_.clear();
        rounds_of_batch_ = 0;
        for (size_t i = 0; i < order_.size();) {
            const size_t place = order_[i++];
            if (i < order_.size() && random_() % 3 == 0) {
                message(place, order_[i++]);
            } else {
                put_or_get(place);
            }
        }
        const ucp_request_param_t params{};
        start(ucp_ep_flush_nbx(a_.endpoint(), &params));
        wait_for_all();
        for (const Transfer& transfer : current_) {
            ++transfers_;
            if (std::memcmp(transfer.from, transfer.to, transfer.length) == 0) continue;
            std::printf("stale: after %llu rounds with seed %llu, %s of %zu bytes\n",
                        number(rounds_), number(options_.seed), transfer.what, transfer.length);
            return false;
        }
        rounds_ += rounds_of_batch_;
        return true;
    }

    // Both go on at once: the parent with what it has registered, whose pages the fork has made two
    // of, the child with a library of its own. What the parent's device writes must not appear in
    // the child.
    bool fork_and_go_on() {
        std::vector<uint64_t> before;
        for (const Place& place : places_) before.push_back(place.sum());
        std::fflush(stdout);
        const pid_t child = fork();
        check(child != -1, "fork");
        if (child == 0) {
            Options options;
            options.rounds = kRoundsOfChild;
            options.seed = random_();
            options.is_child = true;
            const int status = Test(options).run();
            for (size_t i = 0; i < kPlaces; ++i) {
                if (places_[i].is_copied() && places_[i].sum() != before[i])
                    give_up("a child's memory changes by itself");
            }
            std::fflush(stdout);
            _exit(status);
        }
        bool is_right = true;
        int status = 0;
        do {
            is_right = is_right && transfer_all();
        } while (waitpid(child, &status, WNOHANG) == 0);
        ways_.count(Ways::kFork);
        check(status == 0, "the child failed");
        return is_right;
    }

    const Options options_;
    std::mt19937_64 random_;
    Side a_, b_;
    std::vector<char> target_;
    ucp_mem_h mapped_ = nullptr;
    ucp_rkey_h key_ = nullptr;
    std::vector<Place> places_;
    std::vector<size_t> order_;
    std::vector<ucs_status_ptr_t> started_;
    std::vector<Transfer> current_;
    uint64_t rounds_ = 0, rounds_of_batch_ = 0, transfers_ = 0;
    Ways ways_;
};

Options parse(int argc, char** argv) {
    Options options;
    for (int i = 1; i + 1 < argc; i += 2) {
        const std::string_view name = argv[i];
        const char* const value = argv[i + 1];
        if (name == "--rounds") {
            options.rounds = std::strtoull(value, nullptr, 10);
        } else if (name == "--seconds") {
            options.seconds = std::strtoull(value, nullptr, 10);
        } else if (name == "--seed") {
            options.seed = std::strtoull(value, nullptr, 10);
        } else if (name == "--events" && value == std::string_view("none")) {
            options.has_events = false;
        } else {
            give_up("usage: remapped [--rounds N] [--seconds S] [--seed N] [--events none]");
        }
    }
    return options;
}

}  // namespace
}  // namespace remapped

int main(int argc, char** argv) {
    const remapped::Options options = remapped::parse(argc, argv);
    // Room in the heap for all that will be allocated: the break above it is for a place.
    mallopt(M_TOP_PAD, 16 << 20);
    mallopt(M_TRIM_THRESHOLD, INT_MAX);
    std::free(std::malloc(100 << 10));
    setenv("UCX_ZCOPY_THRESH", "0", 0);
    setenv("UCX_RNDV_THRESH", "256", 0);
    setenv("UCX_RCACHE_ENABLE", "y", 0);
    if (!options.has_events) ucm_set_external_event(UCM_EVENT_VM_UNMAPPED);
    return remapped::Test(options).run();
}
