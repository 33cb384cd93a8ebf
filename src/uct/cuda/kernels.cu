// SPDX-License-Identifier: BSD-3-Clause

// What runs on the device. Each kernel is loaded before the program's kernels can stand in its way
// (copy_engine.h).

#include <cstdint>

#include "uct/cuda/kernels.h"

using uct::cuda::KernelPiece;

/** Sixteen bytes a thread and step where both ends are aligned so. */
static __device__ void copy_piece(const KernelPiece& piece) {
    auto* const to = reinterpret_cast<unsigned char*>(piece.to);
    const auto* const from = reinterpret_cast<const unsigned char*>(piece.from);
    const bool is_aligned =
        ((reinterpret_cast<uint64_t>(to) | reinterpret_cast<uint64_t>(from)) & 15) == 0;
    const uint64_t whole = is_aligned ? piece.length / 16 : 0;
    for (uint64_t at = threadIdx.x; at < whole; at += blockDim.x)
        reinterpret_cast<uint4*>(to)[at] = reinterpret_cast<const uint4*>(from)[at];
    for (uint64_t at = whole * 16 + threadIdx.x; at < piece.length; at += blockDim.x)
        to[at] = from[at];
}

/**
 * Blocks take pieces in turn. The list lies in the host's memory, a microsecond away: a block reads
 * what its next turns need at once.
 */
extern "C" __global__ void swiftlane_copy_pieces(const KernelPiece* pieces, unsigned count) {
    constexpr unsigned kTurns = 16;
    __shared__ KernelPiece ahead[kTurns];
    for (unsigned first = blockIdx.x; first < count; first += kTurns * gridDim.x) {
        __syncthreads();
        const unsigned mine = first + threadIdx.x * gridDim.x;
        if (threadIdx.x < kTurns && mine < count) ahead[threadIdx.x] = pieces[mine];
        __syncthreads();
        for (unsigned turn = 0; turn < kTurns && first + turn * gridDim.x < count; ++turn)
            copy_piece(ahead[turn]);
    }
}

/** What StopWords::enqueue() says in operations of a stream. */
extern "C" __global__ void swiftlane_stop(volatile uint32_t* reached, volatile uint32_t* go,
                                          unsigned is_captured) {
    if (is_captured != 0)
        while ((*go & uct::cuda::kStopIdle) == 0) continue;
    __threadfence_system();
    *reached = uct::cuda::kStopReached;
    while ((*go & uct::cuda::kStopGo) == 0) continue;
    __threadfence_system();
    *reached = uct::cuda::kStopPassed;
}
