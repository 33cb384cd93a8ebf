// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace uct::cuda {

// One short copy for the resident kernel. Each half is read by the device at once; the copy is
// there when both have its number, which is written last.
struct alignas(32) ResidentSlot {
    uint64_t to;
    uint32_t length;
    uint32_t number;
    uint64_t from;
    uint32_t unused;
    uint32_t number_too;
};

// In pinned host memory. The slots are the host's to write, the rest is the kernel's.
struct ResidentQueue {
    static constexpr uint32_t kSlots = 64;

    ResidentSlot slots[kSlots];     // copy n is in the place n % kSlots
    alignas(128) uint32_t done;     // the number of the last copy
    alignas(128) uint32_t started;  // the run of the kernel that takes copies
    alignas(128) uint32_t ended;    // the run that takes none any more
};

inline constexpr const char* kResidentKernel = "swiftlane_resident_copies";

}  // namespace uct::cuda
