// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace uct {

// What peers may do with registered memory. Atomics need both rights.
enum class PeerRights : uint8_t { kNone = 0, kRead = 1, kWrite = 2, kAll = 3 };

constexpr bool allows(PeerRights rights, PeerRights wanted) {
    return (static_cast<uint8_t>(rights) & static_cast<uint8_t>(wanted)) ==
           static_cast<uint8_t>(wanted);
}

// Memory of a peer as a remote key grants it, mapped into this process, if `local` is not null:
// this processor reads and writes it in place, and its atomics hold there.
//
// Constant. That its owner withdraws it shows in a word of the owner's, which is looked at before
// each access; one that has begun still runs to its end.
struct MappedRegion {
    uint64_t address;  // at the owner
    uint64_t length;
    std::byte* local;
    const std::atomic<uint64_t>* granted;
    uint64_t number;  // that stands in that word while the region may be accessed
    PeerRights rights;

    // May these bytes be accessed like this, now?
    [[gnu::always_inline]] bool allows(PeerRights wanted, uint64_t at, size_t size) const {
        const uint64_t offset = at - address;  // before the region: more than any length
        return offset <= length && size <= length - offset && uct::allows(rights, wanted) &&
               granted->load(std::memory_order_acquire) == number;
    }
    // Where an address of the owner's is here.
    std::byte* at(uint64_t remote) const { return local + (remote - address); }
};

}  // namespace uct
