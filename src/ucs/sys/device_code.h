/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file device_code.h
 * What code that runs on a device, or on the host in its place, is written with: levels of
 * cooperation, and words that several devices share. nvcc and clang compile it for devices of
 * compute capability 7.0 and later; any other compiler for the host, where one thread is all there
 * is of each level.
 */
#ifndef UCS_DEVICE_CODE_H
#define UCS_DEVICE_CODE_H

#include <stdint.h>

#include "ucs/sys/compiler_def.h"

/** Before a function that kernels call. */
#ifdef __CUDACC__
#define UCS_F_DEVICE __device__ __forceinline__ static
#else
#define UCS_F_DEVICE static inline
#endif

/** 1: functions that kernels call check their arguments, at the cost of a read. */
#ifndef UCP_DEVICE_ENABLE_PARAMS_CHECK
#ifdef _DEBUG
#define UCP_DEVICE_ENABLE_PARAMS_CHECK 1
#else
#define UCP_DEVICE_ENABLE_PARAMS_CHECK 0
#endif
#endif

#define UCS_DEVICE_NUM_THREADS_IN_WARP 32

/**
 * Which threads do one operation together: all of them call the function, with the same arguments,
 * and share its work.
 */
typedef enum {
    UCS_DEVICE_LEVEL_THREAD = 0, /**< each thread an operation of its own */
    UCS_DEVICE_LEVEL_WARP = 1,   /**< all threads of a warp */
    UCS_DEVICE_LEVEL_BLOCK = 2,  /**< all threads of a block */
    UCS_DEVICE_LEVEL_GRID = 3    /**< all threads of a kernel that was launched cooperatively */
} ucs_device_level_t;

/** "thread", "warp", "block", "grid", or "unknown". Static. */
static UCS_F_ALWAYS_INLINE const char* ucs_device_level_name(ucs_device_level_t level) {
    switch (level) {
        case UCS_DEVICE_LEVEL_THREAD:
            return "thread";
        case UCS_DEVICE_LEVEL_WARP:
            return "warp";
        case UCS_DEVICE_LEVEL_BLOCK:
            return "block";
        case UCS_DEVICE_LEVEL_GRID:
            return "grid";
    }
    return "unknown";
}

/**
 * Read a word that other devices, or the host, write. What they wrote before it is seen behind it.
 * @param ptr  in global memory, aligned to 8 bytes
 */
UCS_F_DEVICE uint64_t ucs_device_atomic64_read(const uint64_t* ptr) {
#ifdef __CUDA_ARCH__
    uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(ptr) : "memory");
    return value;
#else
    return __atomic_load_n(ptr, __ATOMIC_ACQUIRE);
#endif
}

/** Write such a word. What this thread wrote before, or has seen, is seen by who reads it. */
UCS_F_DEVICE void ucs_device_atomic64_write(uint64_t* ptr, uint64_t value) {
#ifdef __CUDA_ARCH__
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(ptr), "l"(value) : "memory");
#else
    __atomic_store_n(ptr, value, __ATOMIC_RELEASE);
#endif
}

#endif
