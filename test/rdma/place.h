// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <string_view>

// Memory that goes and comes back at the same address.
namespace remapped {

constexpr size_t kPage = 4096;
constexpr size_t kPlacePages = 8;
constexpr size_t kPlaceSize = kPlacePages * kPage;

[[noreturn]] inline void give_up(const char* what) {
    std::fprintf(stderr, "%s\n", what);
    std::exit(2);
}

inline void check(bool is_right, const char* what) {
    if (!is_right) give_up(what);
}

// How memory went, counted.
struct Ways {
    enum Way {
        kMunmap,
        kMunmapByNumber,
        kMapFixed,
        kMadvise,
        kMremapAway,
        kMremapOnto,
        kShmdt,
        kFree,
        kBreak,
        kFork,
        kCount
    };
    static constexpr const char* kNames[kCount] = {"munmap",       "munmap by number",
                                                   "mmap over it", "madvise",
                                                   "mremap away",  "mremap onto",
                                                   "shmdt",        "free",
                                                   "brk",          "fork"};

    std::string text() const {
        std::string text;
        for (size_t i = 0; i < kCount; ++i)
            text += (i > 0 ? ", " : "") + std::string(kNames[i]) + " " + std::to_string(times[i]);
        return text;
    }

    void count(Way way) { ++times[way]; }

    std::array<uint64_t, kCount> times{};
};

// An address range whose pages change.
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

    // What to transfer next: mostly a little, now and then pages that are new and pages that are
    // not; always some of a page that was transferred before and has been renewed since.
    // @param from_hot  none before that page
    std::span<char> choose(std::mt19937_64& random, bool from_hot) const {
        constexpr size_t kLengths[] = {64, 256, 1024};
        constexpr size_t kLongest = 1024, kGrain = 64;
        if (random() % 16 != 0) {
            char* const at = page(hot_) + kGrain * (random() % ((kPage - kLongest) / kGrain));
            return {at, kLengths[random() % 3]};
        }
        const size_t first = from_hot ? hot_ : random() % (hot_ + 1);
        const size_t end = hot_ + 1 + random() % (kPlacePages - hot_);
        return {page(first), (end - first) * kPage};
    }
    // It was transferred. @return whether that is a round: it was before, and was renewed since
    bool transferred(std::span<const char> bytes, std::mt19937_64& random) {
        const bool is_round = was_transferred_ && is_other_;
        was_transferred_ = true;
        is_other_ = false;
        const auto begin = static_cast<size_t>(bytes.data() - start_);
        const size_t first = begin / kPage, last = (begin + bytes.size() - 1) / kPage;
        hot_ = first + random() % (last - first + 1);
        return is_round;
    }

    // A forked child has a copy of it; a segment is shared.
    bool is_copied() const { return kind_ != Kind::kSegment; }
    // A number for what is there.
    uint64_t sum() const { return std::hash<std::string_view>()({start_, kPlaceSize}); }
    // Other pages, at the same address if the allocator has a say and agrees: then it counts.
    void renew(std::mt19937_64& random, Ways& ways) {
        switch (kind_) {
            case Kind::kMapped:
                renew_mapping(random, ways);
                break;
            case Kind::kSegment:
                check(shmdt(start_) == 0, "shmdt");
                attach();
                count(ways, Ways::kShmdt);
                break;
            case Kind::kBlock: {
                const char* const before = start_;
                std::free(block_);
                allocate();
                if (start_ == before) count(ways, Ways::kFree);
                break;
            }
            case Kind::kBreak:
                // Only while nobody allocates there: what lies above is ours.
                if (sbrk(0) != start_ + kPlaceSize) return;
                check(brk(start_) == 0 && brk(start_ + kPlaceSize) == 0, "brk");
                count(ways, Ways::kBreak);
                break;
        }
    }

  private:
    char* page(size_t index) const { return start_ + index * kPage; }
    void count(Ways& ways, Ways::Way way) {
        ways.count(way);
        is_other_ = true;
    }
    void map(char* at, size_t bytes, int flags) {
        check(mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0) ==
                  at,
              "mmap at an address");
    }
    void renew_mapping(std::mt19937_64& random, Ways& ways) {
        const size_t first = random() % (hot_ + 1);
        const size_t end = hot_ + 1 + random() % (kPlacePages - hot_);
        char* const at = page(first);
        const size_t bytes = (end - first) * kPage;
        const auto way = static_cast<Ways::Way>(random() % Ways::kShmdt);
        count(ways, way);
        switch (way) {
            case Ways::kMunmap:
                check(munmap(at, bytes) == 0, "munmap");
                map(at, bytes, MAP_FIXED_NOREPLACE);
                break;
            case Ways::kMunmapByNumber:
                check(syscall(SYS_munmap, at, bytes) == 0, "munmap by number");
                map(at, bytes, MAP_FIXED_NOREPLACE);
                break;
            case Ways::kMapFixed:
                map(at, bytes, MAP_FIXED);
                break;
            case Ways::kMadvise:
                check(madvise(at, bytes, MADV_DONTNEED) == 0, "madvise");
                break;
            case Ways::kMremapAway:
                // One page: the range may be several mappings by now.
                check(mremap(page(hot_), kPage, kPage, MREMAP_MAYMOVE | MREMAP_FIXED, aside()) ==
                          aside(),
                      "mremap away");
                map(page(hot_), kPage, MAP_FIXED_NOREPLACE);
                break;
            default: {
                void* const other = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                check(other != MAP_FAILED, "mmap");
                *static_cast<char*>(other) = 1;
                check(mremap(other, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at,
                      "mremap onto");
                break;
            }
        }
    }
    static void* aside() {
        static void* const room =
            mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
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
        start_ = static_cast<char*>(block_) + -reinterpret_cast<uintptr_t>(block_) % kPage;
    }

    Kind kind_;
    char* start_ = nullptr;
    void* block_ = nullptr;
    size_t hot_ = 0;  // a page that was transferred last
    bool was_transferred_ = false, is_other_ = false;
};

}  // namespace remapped
