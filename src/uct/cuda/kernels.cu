// SPDX-License-Identifier: BSD-3-Clause

// What runs on the device. Each kernel is loaded before the program's kernels can stand in its way
// (copy_engine.h).

#include <cstdint>

#include "uct/cuda/kernels.h"
#include "uct/cuda/resident_queue.h"

using uct::cuda::KernelPiece;
using uct::cuda::ListEnd;
using uct::cuda::ResidentQueue;
using uct::cuda::ResidentSlot;

// Sixteen bytes a thread and step where both ends are aligned so.
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

// What the block has done is there before the word is.
static __device__ void release(uint32_t* word, uint32_t value) {
    __threadfence_system();
    *const_cast<volatile uint32_t*>(word) = value;
}

// Blocks of the lane's kernel that have ended; 0 between kernels.
static __device__ unsigned ended_blocks[ListEnd::kLanes];

// The last block of all tells the end. What the block's threads have done, the barrier puts before
// what its first one does now, and that one's fences before the word.
static __device__ void end_list(const ListEnd& end) {
    if (end.flag == 0) return;
    __syncthreads();
    if (threadIdx.x != 0) return;
    __threadfence_system();
    unsigned* const ended = &ended_blocks[end.lane];
    if (atomicAdd(ended, 1) != gridDim.x - 1) return;
    *ended = 0;
    release(reinterpret_cast<uint32_t*>(end.flag), end.number);
}

// Blocks take pieces in turn. The list lies in the host's memory, a microsecond away: a block reads
// what its next turns need at once.
extern "C" __global__ void swiftlane_copy_pieces(const KernelPiece* pieces, unsigned count,
                                                 ListEnd end) {
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
    end_list(end);
}

// What StopWords::enqueue() says in operations of a stream.
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

// --- resident copies (resident.h) ---

static __device__ uint4 read_half(const void* address) {
    uint4 half;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(half.x), "=r"(half.y), "=r"(half.z), "=r"(half.w)
                 : "l"(address));
    return half;
}

static __device__ uint64_t nanoseconds() {
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

static __device__ uint64_t word_of(unsigned low, unsigned high) {
    return low | static_cast<uint64_t>(high) << 32;
}

// What other devices and copies have written meanwhile is read, not what a cache has of it.
static __device__ void copy_fresh(unsigned char* to, const unsigned char* from, unsigned length) {
    const bool is_aligned =
        ((reinterpret_cast<uint64_t>(to) | reinterpret_cast<uint64_t>(from)) & 15) == 0;
    const unsigned whole = is_aligned ? length / 16 : 0;
    for (unsigned at = threadIdx.x; at < whole; at += blockDim.x)
        reinterpret_cast<uint4*>(to)[at] = __ldcv(reinterpret_cast<const uint4*>(from) + at);
    for (unsigned at = whole * 16 + threadIdx.x; at < length; at += blockDim.x)
        to[at] = __ldcv(from + at);
}

// What the host did before it wrote the words that this thread has read is seen. A fence that orders
// stores as well, and waits for them, takes a microsecond longer.
static __device__ void acquire() {
#if __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1208
    asm volatile("fence.acquire.sys;" ::: "memory");
#else
    __threadfence_system();
#endif
}

// One thread. One read at a time: a fence waits for all that are under way.
// @return false: no copy number `next` has come until `idle`, or `life`
static __device__ bool wait_for_copy(const ResidentQueue* queue, unsigned next, uint64_t idle,
                                     uint64_t life, uint4 (&halves)[2]) {
    const ResidentSlot* const slot = &queue->slots[next % ResidentQueue::kSlots];
    for (;;) {
        halves[0] = read_half(&slot->to);
        halves[1] = read_half(&slot->from);
        if (halves[0].w == next && halves[1].w == next) return true;
        const uint64_t now = nanoseconds();
        if (now > idle || now > life) return false;
    }
}

// One block. Takes copies from number `next` on; ends when none came for `idle` ns, or after
// `life`.
extern "C" __global__ void swiftlane_resident_copies(ResidentQueue* queue, unsigned run,
                                                     unsigned next, unsigned long long idle,
                                                     unsigned long long life) {
    __shared__ uint4 halves[2];
    __shared__ bool goes_on;
    uint64_t last = nanoseconds();
    const uint64_t end = last + life;
    if (threadIdx.x == 0) release(&queue->started, run);
    for (;; ++next) {
        if (threadIdx.x == 0) {
            goes_on = wait_for_copy(queue, next, last + idle, end, halves);
            acquire();
        }
        __syncthreads();
        if (!goes_on) break;
        copy_fresh(reinterpret_cast<unsigned char*>(word_of(halves[0].x, halves[0].y)),
                   reinterpret_cast<const unsigned char*>(word_of(halves[1].x, halves[1].y)),
                   halves[0].z);
        __syncthreads();
        if (threadIdx.x == 0) {
            release(&queue->done, next);
            last = nanoseconds();
        }
    }
    if (threadIdx.x == 0) release(&queue->ended, run);
}
