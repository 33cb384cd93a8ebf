// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ucs/memory/memory_type.h"

namespace ucs {

class HeldAllocations;
class MemoryDetector;

struct MemoryInfo {
    ucs_memory_type_t type = UCS_MEMORY_TYPE_HOST;
    // The allocation that the address lies in; null and 0 where that is not known (host memory).
    const void* base = nullptr;
    size_t length = 0;
    int device = -1;
    // The number of the allocation, which the detector gives to no other; 0: not known.
    uint64_t allocation = 0;
    // Where those that operations work on are counted; null: they are not.
    HeldAllocations* held = nullptr;
    // Who knows how to copy it; null for host memory.
    MemoryDetector* owner = nullptr;

    // An operation works on the allocation, so that what is said here holds.
    bool is_held() const;
    bool holds(const void* address) const {
        return reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(base) < length;
    }
};

// The allocations that operations under way work on, by the numbers that the driver gives them.
//
// A program may not free memory before the operation that it was handed over for has ended. So as
// long as one is under way, an address in its allocation is still that allocation's, and the driver
// need not be asked what lies there now: what was found out of it stays here. Without locks; any
// thread.
class HeldAllocations {
  public:
    // One more operation works on the allocation, of which this is known.
    // @return what is known of it, until release(); null: there is no place for it, and nothing to
    //  release
    const MemoryInfo* hold(const MemoryInfo& memory) {
        const uint64_t allocation = memory.allocation;
        if (allocation == 0 || allocation >> kNumberBits != 0) return nullptr;
        Place& place = place_of(allocation);
        uint64_t before = place.users.load(std::memory_order_relaxed);
        for (;;) {
            const bool is_free = users_in(before) == 0;
            if (!is_free && (number_in(before) != allocation || users_in(before) == kMostUsers))
                return nullptr;
            if (!place.users.compare_exchange_weak(before, is_free ? kBeingFilled : before + 1,
                                                   std::memory_order_acquire,
                                                   std::memory_order_relaxed))
                continue;
            if (is_free) {
                place.memory = memory;
                place.users.store(allocation << kUserBits | 1, std::memory_order_release);
            }
            return &place.memory;
        }
    }
    // The same where one works on it already. @return null also where none does
    const MemoryInfo* hold_again(uint64_t allocation) {
        Place& place = place_of(allocation);
        uint64_t before = place.users.load(std::memory_order_relaxed);
        while (number_in(before) == allocation && users_in(before) - 1 < kMostUsers - 1) {
            if (place.users.compare_exchange_weak(before, before + 1, std::memory_order_acquire,
                                                  std::memory_order_relaxed))
                return &place.memory;
        }
        return nullptr;
    }
    void release(uint64_t allocation) {
        place_of(allocation).users.fetch_sub(1, std::memory_order_release);
    }
    bool is_held(uint64_t allocation) const {
        const uint64_t value = places_[allocation % kPlaces].users.load(std::memory_order_acquire);
        return users_in(value) != 0 && number_in(value) == allocation;
    }

  private:
    static constexpr size_t kPlaces = 256;
    static constexpr unsigned kUserBits = 16, kNumberBits = 64 - kUserBits;
    static constexpr uint64_t kMostUsers = (uint64_t{1} << kUserBits) - 1;
    static constexpr uint64_t kBeingFilled = 1;  // in use, and of no allocation

    struct alignas(64) Place {
        // A number and how many operations; one of 0 operations is free.
        std::atomic<uint64_t> users{0};
        MemoryInfo memory;  // stays as it is while there are users
    };

    static uint64_t users_in(uint64_t value) { return value & kMostUsers; }
    static uint64_t number_in(uint64_t value) { return value >> kUserBits; }
    Place& place_of(uint64_t allocation) { return places_[allocation % kPlaces]; }

    Place places_[kPlaces];
};

inline bool MemoryInfo::is_held() const {
    return held != nullptr && held->is_held(allocation);
}

}  // namespace ucs
