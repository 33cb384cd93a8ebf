// SPDX-License-Identifier: BSD-3-Clause

// What runs on the device. Each kernel is loaded before the program's kernels can stand in its way
// (copy_engine.h).

#include <cstdint>

#include "uct/cuda/kernels.h"

using uct::cuda::KernelPiece;

/** Blocks take pieces in turn; sixteen bytes a thread and step where both ends are aligned so. */
extern "C" __global__ void swiftlane_copy_pieces(const KernelPiece* pieces, unsigned count) {
    for (unsigned i = blockIdx.x; i < count; i += gridDim.x) {
        auto* const to = reinterpret_cast<unsigned char*>(pieces[i].to);
        const auto* const from = reinterpret_cast<const unsigned char*>(pieces[i].from);
        const uint64_t length = pieces[i].length;
        const bool is_aligned =
            ((reinterpret_cast<uint64_t>(to) | reinterpret_cast<uint64_t>(from)) & 15) == 0;
        const uint64_t whole = is_aligned ? length / 16 : 0;
        for (uint64_t at = threadIdx.x; at < whole; at += blockDim.x)
            reinterpret_cast<uint4*>(to)[at] = reinterpret_cast<const uint4*>(from)[at];
        for (uint64_t at = whole * 16 + threadIdx.x; at < length; at += blockDim.x)
            to[at] = from[at];
    }
}
