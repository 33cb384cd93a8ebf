// SPDX-License-Identifier: BSD-3-Clause

// remapped [--rounds N] [--seconds S] [--seed N] [--events none]
//
// Memory is sent from, received into, put from and got into, and between transfers it goes and
// comes back at the same address with other pages, by every way that a process has. What arrives
// must be what is there. On a device that pins pages, a registration that outlives its memory
// shows: it carries the old pages' bytes. With --events none the program claims to report memory
// events, and does not: then the test must fail.
//
// Ends with status 1 at the first stale transfer.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string_view>
#include <vector>

#include "ucm/api/ucm.h"
#include "ucp/api/ucp.h"

namespace {

constexpr size_t kPage = 4096;
constexpr size_t kPlaceSize = 8 * kPage;
constexpr size_t kTarget = 1 << 16;

[[noreturn]] void give_up(const char* what) {
    std::fprintf(stderr, "%s\n", what);
    std::exit(2);
}

void check(bool is_right, const char* what) {
    if (!is_right) give_up(what);
}

struct Options {
    uint64_t rounds = 1000;
    uint64_t seconds = UINT64_MAX;
    uint64_t seed = 1;
    bool has_events = true;
};

/** One end: a context of its own, as if it were another process. */
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

/** An address range whose pages change. */
class Place {
  public:
    enum class Kind { kMapped, kSegment, kBlock, kBreak };

    explicit Place(Kind kind) : kind_(kind) {
        if (kind == Kind::kBreak) {
            start_ = static_cast<char*>(sbrk(0));
            start_ += -reinterpret_cast<uintptr_t>(start_) % kPage;
            check(brk(start_ + kPlaceSize) == 0, "brk");
            return;
        }
        start_ = static_cast<char*>(
            mmap(nullptr, kPlaceSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        check(start_ != MAP_FAILED, "mmap");
        if (kind == Kind::kSegment) attach();
        if (kind == Kind::kBlock) {
            munmap(start_, kPlaceSize);
            allocate();
        }
    }

    char* start() const { return start_; }

    /** Other pages, at the same address if the allocator has a say and agrees. */
    void renew(std::mt19937_64& random) {
        switch (kind_) {
            case Kind::kMapped:
                renew_mapping(random);
                break;
            case Kind::kSegment:
                check(shmdt(start_) == 0, "shmdt");
                attach();
                break;
            case Kind::kBlock:
                std::free(block_);
                allocate();
                break;
            case Kind::kBreak:
                // Only while nobody allocates there: what lies above is ours.
                if (sbrk(0) != start_ + kPlaceSize) return;
                check(brk(start_) == 0 && brk(start_ + kPlaceSize) == 0, "brk");
                break;
        }
    }

  private:
    void map(size_t first, size_t pages, int flags) {
        void* const at = start_ + first * kPage;
        check(mmap(at, pages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags,
                   -1, 0) == at,
              "mmap at an address");
    }
    void renew_mapping(std::mt19937_64& random) {
        constexpr size_t kPages = kPlaceSize / kPage;
        const size_t first = random() % kPages;
        const size_t pages = random() % 2 == 0 ? kPages - first : 1 + random() % (kPages - first);
        char* const at = start_ + first * kPage;
        const size_t bytes = pages * kPage;
        switch (random() % 6) {
            case 0:
                check(munmap(at, bytes) == 0, "munmap");
                map(first, pages, MAP_FIXED_NOREPLACE);
                break;
            case 1:
                map(first, pages, MAP_FIXED);
                break;
            case 2:
                check(madvise(at, bytes, MADV_DONTNEED) == 0, "madvise");
                break;
            case 3:
                // Page by page: the range may be several mappings by now.
                for (size_t i = 0; i < bytes; i += kPage) {
                    check(mremap(at + i, kPage, kPage, MREMAP_MAYMOVE | MREMAP_FIXED, aside()) ==
                              aside(),
                          "mremap away");
                }
                map(first, pages, MAP_FIXED_NOREPLACE);
                break;
            case 4: {
                void* const other = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                check(other != MAP_FAILED, "mmap");
                std::memset(other, 0, bytes);
                check(mremap(other, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at,
                      "mremap onto");
                break;
            }
            default:
                check(syscall(SYS_munmap, at, bytes) == 0, "munmap by number");
                map(first, pages, MAP_FIXED_NOREPLACE);
                break;
        }
    }
    static void* aside() {
        static void* const room =
            mmap(nullptr, kPlaceSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return room;
    }
    void attach() {
        const int id = shmget(IPC_PRIVATE, kPlaceSize, IPC_CREAT | 0600);
        check(id != -1, "shmget");
        check(shmat(id, start_, SHM_REMAP) == start_, "shmat");
        shmctl(id, IPC_RMID, nullptr);
    }
    void allocate() {
        constexpr size_t kLarge = 40 << 20;  // mapped by the C library for itself
        block_ = std::malloc(kLarge);
        check(block_ != nullptr, "malloc");
        start_ = static_cast<char*>(block_);
    }

    Kind kind_;
    char* start_ = nullptr;
    void* block_ = nullptr;
};

class Test {
  public:
    explicit Test(const Options& options) : options_(options), random_(options.seed) {
        a_.connect(b_);
        b_.connect(a_);
        target_.resize(kTarget);
        ucp_mem_map_params_t params{};
        params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
        params.address = target_.data();
        params.length = kTarget;
        check(ucp_mem_map(b_.context(), &params, &mapped_) == UCS_OK, "ucp_mem_map");
        void* packed = nullptr;
        size_t length = 0;
        check(ucp_rkey_pack(b_.context(), mapped_, &packed, &length) == UCS_OK, "ucp_rkey_pack");
        check(ucp_ep_rkey_unpack(a_.endpoint(), packed, &key_) == UCS_OK, "ucp_ep_rkey_unpack");
        ucp_rkey_buffer_release(packed);
        using Kind = Place::Kind;
        places_.emplace_back(Kind::kBreak);
        for (const Kind kind : {Kind::kMapped, Kind::kMapped, Kind::kMapped, Kind::kMapped,
                                Kind::kSegment, Kind::kBlock})
            places_.emplace_back(kind);
    }

    int run() {
        const auto end = std::chrono::steady_clock::now() +
                         std::chrono::seconds(std::min<uint64_t>(options_.seconds, 1000000));
        uint64_t round = 0;
        for (; round < options_.rounds; ++round) {
            if (round % 16 == 0 && std::chrono::steady_clock::now() > end) break;
            if (!transfer()) {
                std::printf("stale: round %llu, %s\n", static_cast<unsigned long long>(round),
                            what_);
                return 1;
            }
            // Some stay, so that registrations are found again.
            if (random_() % 3 != 0) any_place().renew(random_);
            if ((round + 1) % 50000 == 0) {
                std::printf("%llu rounds\n", static_cast<unsigned long long>(round + 1));
                std::fflush(stdout);
            }
        }
        std::printf("figure: %llu rounds, no stale transfer\n",
                    static_cast<unsigned long long>(round));
        return 0;
    }

  private:
    Place& any_place() { return places_[random_() % places_.size()]; }

    void fill(char* at, size_t length) {
        const uint64_t seed = random_();
        for (size_t i = 0; i < length; i += sizeof(uint64_t)) {
            const uint64_t value = seed + i;
            std::memcpy(at + i, &value, sizeof(value));
        }
    }

    void wait(ucs_status_ptr_t operation) {
        if (operation == nullptr) return;
        check(!UCS_PTR_IS_ERR(operation), "an operation was refused");
        ucs_status_t status;
        while ((status = ucp_request_check_status(operation)) == UCS_INPROGRESS) progress();
        check(status == UCS_OK, ucs_status_string(status));
        ucp_request_free(operation);
    }
    void progress() {
        ucp_worker_progress(a_.worker());
        ucp_worker_progress(b_.worker());
    }

    bool transfer() {
        const size_t pages = 1 + random_() % (kPlaceSize / kPage);
        const size_t offset = kPage * (random_() % (kPlaceSize / kPage - pages + 1));
        const size_t length = pages * kPage;
        const ucp_request_param_t params{};
        const size_t which = random_() % places_.size();
        char* const buffer = places_[which].start() + offset;
        switch (random_() % 3) {
            case 0:
                what_ = "put";
                fill(buffer, length);
                wait(ucp_put_nbx(a_.endpoint(), buffer, length, target(), key_, &params));
                wait(ucp_ep_flush_nbx(a_.endpoint(), &params));
                return std::memcmp(target_.data(), buffer, length) == 0;
            case 1:
                what_ = "get";
                fill(target_.data(), length);
                wait(ucp_get_nbx(a_.endpoint(), buffer, length, target(), key_, &params));
                return std::memcmp(target_.data(), buffer, length) == 0;
            default: {
                what_ = "message";
                const size_t other =
                    (which + 1 + random_() % (places_.size() - 1)) % places_.size();
                char* const received = places_[other].start();
                fill(buffer, length);
                auto* const receive =
                    ucp_tag_recv_nbx(b_.worker(), received, length, 7, ~uint64_t{0}, &params);
                wait(ucp_tag_send_nbx(a_.endpoint(), buffer, length, 7, &params));
                wait(receive);
                return std::memcmp(received, buffer, length) == 0;
            }
        }
    }
    uint64_t target() const { return reinterpret_cast<uintptr_t>(target_.data()); }

    const Options options_;
    std::mt19937_64 random_;
    Side a_, b_;
    std::vector<char> target_;
    ucp_mem_h mapped_ = nullptr;
    ucp_rkey_h key_ = nullptr;
    std::vector<Place> places_;
    const char* what_ = "";
};

Options parse(int argc, char** argv) {
    Options options;
    for (int i = 1; i + 1 < argc; i += 2) {
        const std::string_view name = argv[i];
        const char* const value = argv[i + 1];
        if (name == "--rounds")
            options.rounds = std::strtoull(value, nullptr, 10);
        else if (name == "--seconds")
            options.seconds = std::strtoull(value, nullptr, 10);
        else if (name == "--seed")
            options.seed = std::strtoull(value, nullptr, 10);
        else if (name == "--events" && value == std::string_view("none"))
            options.has_events = false;
        else
            give_up("usage: remapped [--rounds N] [--seconds S] [--seed N] [--events none]");
    }
    return options;
}

}  // namespace

int main(int argc, char** argv) {
    const Options options = parse(argc, argv);
    setenv("UCX_ZCOPY_THRESH", "0", 0);
    setenv("UCX_RNDV_THRESH", "1k", 0);
    setenv("UCX_RCACHE_ENABLE", "y", 0);
    if (!options.has_events) ucm_set_external_event(UCM_EVENT_VM_UNMAPPED);
    return Test(options).run();
}
