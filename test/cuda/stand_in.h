// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

// A stand-in for libcuda.so.1, for machines without a GPU: the part of the driver's interface that
// Swiftlane and its tests use, found by cuGetProcAddress_v2 as in the real one.
//
// Device memory has addresses that the processor cannot touch; its bytes lie in a shadow mapping
// that only the stand-in uses. Streams have a thread each and run late, so that a synchronisation
// that is missing is seen. Kernels are found by name and run on the host. Small allocations come
// out of larger ones, as the real driver's do, so that addresses are used again without a system
// call. A graph is the list of operations that its stream was given while it was captured. Calls
// that open or close mappings wait for the streams of their context, and copies for them.
//
// Environment:
//   STAND_IN_CUDA_DEVICES=n       devices (2)
//   STAND_IN_CUDA_DELAY=us        what each operation of a stream waits before it runs (20)
//   STAND_IN_CUDA_FAULTS=list     "cuMemAlloc:2", "run:719", "run:700@5": a call, or an operation
// of a stream, gives that error; @n: the n-th only, else all. An error of a stream stays with its
// context. STAND_IN_CUDA_LAZY=y|n        functions are loaded at their first launch (y)
namespace stand_in {

// The same as STAND_IN_CUDA_FAULTS, at once; "" ends all faults. As a symbol of the library.
using SetFaults = void (*)(const char* faults);
inline constexpr const char* kSetFaults = "stand_in_cuda_set_faults";
// How often a function was called in this process; "": all together.
using CallsOf = uint64_t (*)(const char* function);
inline constexpr const char* kCallsOf = "stand_in_cuda_calls_of";

}  // namespace stand_in
