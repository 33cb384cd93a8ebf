// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace uct::cuda {

// A piece for swiftlane_copy_pieces; addresses as the device sees them.
struct KernelPiece {
    uint64_t to;
    uint64_t from;
    uint64_t length;
};

// How the kernel tells that all is copied: by a number in a word of the host's memory.
struct ListEnd {
    uint64_t flag;  // 0: it does not tell
    uint32_t number;
    uint32_t lane;  // whose kernels run one after the other; below kLanes

    static constexpr unsigned kLanes = 4;
};

inline constexpr const char* kCopyPiecesKernel = "swiftlane_copy_pieces";

// A stop of one thread (stream_stops.h), for devices whose streams cannot wait for a word.
inline constexpr const char* kStopKernel = "swiftlane_stop";
// As ucs::StreamStop, which a kernel's compiler does not understand.
inline constexpr uint32_t kStopReached = 1, kStopPassed = 2, kStopGo = 1, kStopIdle = 2;

// The machine code of all kernels, for cuModuleLoadData().
extern const unsigned char kernel_image[] asm("swiftlane_kernel_image");

}  // namespace uct::cuda
