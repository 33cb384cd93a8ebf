// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ucs {

// The allocations that operations under way work on, by the numbers that the driver gives them.
//
// A program may not free memory before the operation that it was handed over for has ended. So as
// long as one is under way, an address in its allocation is still that allocation's, and the driver
// need not be asked what lies there now. Without locks; any thread.
class HeldAllocations {
  public:
    // One more operation works on it. @return false: there is no place for it, and nothing to
    //  release
    bool hold(uint64_t allocation) {
        if (allocation == 0 || allocation >> kNumberBits != 0) return false;
        std::atomic<uint64_t>& place = place_of(allocation);
        uint64_t before = place.load(std::memory_order_relaxed);
        uint64_t after = 0;
        do {
            const bool is_free = users_in(before) == 0;
            if (!is_free && (number_in(before) != allocation || users_in(before) == kMostUsers))
                return false;
            after = is_free ? allocation << kUserBits | 1 : before + 1;
        } while (!place.compare_exchange_weak(before, after, std::memory_order_acq_rel,
                                              std::memory_order_relaxed));
        return true;
    }
    void release(uint64_t allocation) {
        place_of(allocation).fetch_sub(1, std::memory_order_release);
    }
    bool is_held(uint64_t allocation) const {
        const uint64_t value = places_[allocation % kPlaces].load(std::memory_order_acquire);
        return users_in(value) != 0 && number_in(value) == allocation;
    }

  private:
    static constexpr size_t kPlaces = 256;
    static constexpr unsigned kUserBits = 16, kNumberBits = 64 - kUserBits;
    static constexpr uint64_t kMostUsers = (uint64_t{1} << kUserBits) - 1;

    static uint64_t users_in(uint64_t value) { return value & kMostUsers; }
    static uint64_t number_in(uint64_t value) { return value >> kUserBits; }
    std::atomic<uint64_t>& place_of(uint64_t allocation) { return places_[allocation % kPlaces]; }

    // A number and how many operations; those of 0 operations are free.
    std::atomic<uint64_t> places_[kPlaces]{};
};

}  // namespace ucs
