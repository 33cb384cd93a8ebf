/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file ucp_device_impl.h
 * Communication from within kernels: put, counters, addresses. C++17, for nvcc and clang;
 * other compilers make functions of the host of it, to which all memory must be reachable.
 *
 * A kernel is handed lists of memory that the host has made (ucp_host.h) and names memory by its
 * place in them. The template argument says which threads do an operation together
 * (ucs_device_level_t): all of them call it, with the same arguments. Levels above THREAD
 * synchronise those threads, so all must come to the call. Nothing here waits for a peer, but
 * loops of the program that read a counter do.
 *
 * A list is made before the kernel that uses it is launched: what was read of it is kept.
 *
 * Order: who sees a counter raised by ucp_device_counter_inc, by ucp_device_counter_read, sees all
 * that the raising threads put before, wherever they put it. Puts have no order among each other.
 *
 * channel_id and ucp_device_flags_t are for transports with queues. A mapping has none: everything
 * is done when the call returns.
 */
#ifndef UCP_DEVICE_IMPL_H
#define UCP_DEVICE_IMPL_H

#include <stdint.h>

#include "ucp/api/device/ucp_device_types.h"
#include "ucp/api/ucp_def.h"
#include "ucs/sys/compiler_def.h"
#include "ucs/sys/device_code.h"
#include "ucs/type/status.h"

#ifdef __CUDACC__
#include <cooperative_groups.h>
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 700
#error "ucp_device_impl.h needs devices of compute capability 7.0 or later"
#endif

/** What an operation came to, for ucp_device_progress_req. Its fields are the library's. */
typedef struct ucp_device_request {
    ucs_status_t status;
} ucp_device_request_t;

typedef enum {
    UCP_DEVICE_FLAG_NODELAY = UCS_BIT(0) /**< do not wait for further operations; none does */
} ucp_device_flags_t;

/** Further flags, of this library alone: kernels compiled with UCX's headers do not look at them.
 */
enum {
    /**
     * Of ucp_device_counter_inc: only a fence of the device's own scope goes before, which takes
     * 0.4 us instead of 1.6. CUDA promises no more than that other threads of this device see the
     * puts then. The peer sees them as well if they would look for them at the peer, that is, if no
     * device keeps a peer's memory in a cache of its own: between H100 nothing else was seen
     * (docs/gpu.md).
     */
    UCPX_DEVICE_FLAG_DEVICE_FENCE = 1 << 16
};

/* --- the threads of a level: their number, which of them this is, and where they meet */

#ifdef __CUDA_ARCH__
/** @return which thread of its block this is */
UCS_F_DEVICE unsigned ucp_device_block_rank() {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
/** @return how many threads its block has */
UCS_F_DEVICE unsigned ucp_device_block_size() {
    return blockDim.x * blockDim.y * blockDim.z;
}

template <ucs_device_level_t level>
struct ucp_device_team;

template <>
struct ucp_device_team<UCS_DEVICE_LEVEL_THREAD> {
    static __device__ __forceinline__ size_t rank() { return 0; }
    static __device__ __forceinline__ size_t size() { return 1; }
    static __device__ __forceinline__ void sync() {}
};

template <>
struct ucp_device_team<UCS_DEVICE_LEVEL_WARP> {
    static __device__ __forceinline__ size_t rank() {
        return ucp_device_block_rank() % UCS_DEVICE_NUM_THREADS_IN_WARP;
    }
    /** The last warp of a block may be a part of one. */
    static __device__ __forceinline__ size_t size() {
        const unsigned first = ucp_device_block_rank() & ~(UCS_DEVICE_NUM_THREADS_IN_WARP - 1u);
        const unsigned left = ucp_device_block_size() - first;
        return left < UCS_DEVICE_NUM_THREADS_IN_WARP ? left : UCS_DEVICE_NUM_THREADS_IN_WARP;
    }
    static __device__ __forceinline__ void sync() { __syncwarp(); }
};

template <>
struct ucp_device_team<UCS_DEVICE_LEVEL_BLOCK> {
    static __device__ __forceinline__ size_t rank() { return ucp_device_block_rank(); }
    static __device__ __forceinline__ size_t size() { return ucp_device_block_size(); }
    static __device__ __forceinline__ void sync() { __syncthreads(); }
};

template <>
struct ucp_device_team<UCS_DEVICE_LEVEL_GRID> {
    static __device__ __forceinline__ size_t rank() {
        const size_t block =
            blockIdx.x + size_t{gridDim.x} * (blockIdx.y + size_t{gridDim.y} * blockIdx.z);
        return block * ucp_device_block_size() + ucp_device_block_rank();
    }
    static __device__ __forceinline__ size_t size() {
        return size_t{gridDim.x} * gridDim.y * gridDim.z * ucp_device_block_size();
    }
    /** Ends the kernel with an error if it was not launched cooperatively. */
    static __device__ __forceinline__ void sync() { cooperative_groups::this_grid().sync(); }
};
#else
template <ucs_device_level_t level>
struct ucp_device_team {
    /** @return which thread of the level this is, from 0 on */
    UCS_F_DEVICE size_t rank() { return 0; }
    /** @return how many threads the level has */
    UCS_F_DEVICE size_t size() { return 1; }
    /** Wait until all threads of the level have come here. */
    UCS_F_DEVICE void sync() {}
};
#endif

/* --- copies by the threads of a level */

struct alignas(16) ucp_device_word16 {
    uint64_t low, high;
} UCS_S_MAY_ALIAS;
typedef uint64_t UCS_S_MAY_ALIAS ucp_device_word8;
typedef uint32_t UCS_S_MAY_ALIAS ucp_device_word4;

/** So many reads are under way at a time, since a peer's memory is a microsecond away. */
#define UCP_DEVICE_READS_AHEAD 8

/** Copy what whole words of that type the range begins with; the rest of it. */
template <typename Word>
UCS_F_DEVICE void ucp_device_copy_words(char** to, const char** from, size_t* length, size_t rank,
                                        size_t size) {
    if ((((uintptr_t)*to | (uintptr_t)*from) & (sizeof(Word) - 1)) != 0) return;
    Word* const target = (Word*)*to;
    const Word* const source = (const Word*)*from;
    const size_t count = *length / sizeof(Word);
    size_t i = rank;
    for (; i + (UCP_DEVICE_READS_AHEAD - 1) * size < count; i += UCP_DEVICE_READS_AHEAD * size) {
        Word words[UCP_DEVICE_READS_AHEAD];
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (int ahead = 0; ahead < UCP_DEVICE_READS_AHEAD; ++ahead)
            words[ahead] = source[i + ahead * size];
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (int ahead = 0; ahead < UCP_DEVICE_READS_AHEAD; ++ahead)
            target[i + ahead * size] = words[ahead];
    }
    for (; i < count; i += size) target[i] = source[i];
    *to += count * sizeof(Word);
    *from += count * sizeof(Word);
    *length -= count * sizeof(Word);
}

/** Copy by all threads of the level, the longest words first that both ends allow. */
template <ucs_device_level_t level>
UCS_F_DEVICE void ucp_device_copy(char* to, const char* from, size_t length) {
    const size_t rank = ucp_device_team<level>::rank(), size = ucp_device_team<level>::size();
    const uintptr_t difference = (uintptr_t)to ^ (uintptr_t)from;
    const size_t word = (difference & 15) == 0 ? 16 : (difference & 7) == 0 ? 8 : 4;
    const size_t before = (0 - (uintptr_t)to) & (word - 1);
    /* Single bytes up to where both ends are aligned, if that is worth it. */
    if (before != 0 && length >= 4 * word) {
        for (size_t i = rank; i < before; i += size) to[i] = from[i];
        to += before;
        from += before;
        length -= before;
    }
    ucp_device_copy_words<ucp_device_word16>(&to, &from, &length, rank, size);
    ucp_device_copy_words<ucp_device_word8>(&to, &from, &length, rank, size);
    ucp_device_copy_words<ucp_device_word4>(&to, &from, &length, rank, size);
    for (size_t i = rank; i < length; i += size) to[i] = from[i];
}

/**
 * What this thread wrote before, or has seen written, is there before the word is raised. The fence
 * is an instruction of its own: where the word lies is found out meanwhile.
 */
UCS_F_DEVICE void ucp_device_raise(uint64_t* word, uint64_t value, uint64_t flags) {
#ifdef __CUDA_ARCH__
    if ((flags & UCPX_DEVICE_FLAG_DEVICE_FENCE) != 0) {
        asm volatile("fence.acq_rel.gpu;" ::: "memory");
    } else {
        asm volatile("fence.acq_rel.sys;" ::: "memory");
    }
    asm volatile("red.relaxed.sys.global.add.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
#else
    (void)flags;
    (void)__atomic_fetch_add(word, value, __ATOMIC_RELEASE);
#endif
}

/**
 * Two words of 8 bytes side by side, aligned to 16. Each of them arrives as a whole; which one
 * first is not said.
 */
UCS_F_DEVICE void ucp_device_store_words(uint64_t* to, uint64_t first, uint64_t second) {
#ifdef __CUDA_ARCH__
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(first), "l"(second)
                 : "memory");
#else
    __atomic_store_n(to, first, __ATOMIC_RELAXED);
    __atomic_store_n(to + 1, second, __ATOMIC_RELAXED);
#endif
}

/** The same the other way. */
UCS_F_DEVICE void ucp_device_load_words(const uint64_t* from, uint64_t* first, uint64_t* second) {
#ifdef __CUDA_ARCH__
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(*first), "=l"(*second)
                 : "l"(from)
                 : "memory");
#else
    *first = __atomic_load_n(from, __ATOMIC_RELAXED);
    *second = __atomic_load_n(from + 1, __ATOMIC_RELAXED);
#endif
}

/* --- elements of lists */

/** Only with UCP_DEVICE_ENABLE_PARAMS_CHECK. */
template <typename List>
UCS_F_DEVICE bool ucp_device_has_element(const List* list, unsigned index) {
    return list->version == UCP_DEVICE_MEM_LIST_VERSION_V1 && index < list->length;
}

/**
 * A word of a list, which does not change while a kernel runs: so it stays in a register where a
 * loop needs it again. Reading a counter empties the cache that it would be found in otherwise.
 */
UCS_F_DEVICE uint64_t ucp_device_list_word(const void* word) {
#ifdef __CUDA_ARCH__
    return __ldg((const unsigned long long*)word);
#else
    return *(const uint64_t*)word;
#endif
}

/** Where this device finds an element's memory. NULL: checked, and there is no such element. */
UCS_F_DEVICE char* ucp_device_remote_place(const ucp_device_remote_mem_list_t* list,
                                           unsigned index) {
    const ucp_device_remote_mem_elem_t* const element =
        (const ucp_device_remote_mem_elem_t*)(list + 1) + index;
    if (UCP_DEVICE_ENABLE_PARAMS_CHECK &&
        (!ucp_device_has_element(list, index) || element->way == NULL))
        return NULL;
    return (char*)(ucp_device_list_word(&element->addr) +
                   ucp_device_list_word(&element->mapped_offset));
}

/** @return where an element's memory is, NULL if the list has no such element */
UCS_F_DEVICE const char* ucp_device_local_place(const ucp_device_local_mem_list_t* list,
                                                unsigned index) {
    const ucp_device_local_mem_elem_t* const element =
        (const ucp_device_local_mem_elem_t*)(list + 1) + index;
    if (UCP_DEVICE_ENABLE_PARAMS_CHECK && !ucp_device_has_element(list, index)) return NULL;
    return (const char*)ucp_device_list_word(&element->addr);
}

/** End an operation: its request, if there is one, has the status then. */
UCS_F_DEVICE ucs_status_t ucp_device_end(ucp_device_request_t* req, ucs_status_t status) {
    if (req != NULL) req->status = status;
    return status;
}

/* --- what kernels call */

/**
 * Write memory of this device's process into a peer's.
 * @param src_mem_list_h      Made by ucp_device_local_mem_list_create.
 * @param src_mem_list_index  Which element of it.
 * @param src_offset          Bytes from where the element begins.
 * @param dst_mem_list_h      Made by ucp_device_remote_mem_list_create.
 * @param dst_mem_list_index  Which element of it.
 * @param dst_offset          Bytes from where the element begins.
 * @param length              Bytes. The ranges must lie in the elements: nobody checks that.
 * @param channel_id          Any; see above.
 * @param flags               Bits of ucp_device_flags_t.
 * @param req                 NULL, or gets what is returned.
 * @return UCS_OK: the source is free again; the peer sees the data when it sees a counter that is
 *         raised behind it. UCS_ERR_INVALID_PARAM: checked, and there is no such element.
 */
template <ucs_device_level_t level = UCS_DEVICE_LEVEL_THREAD>
UCS_F_DEVICE ucs_status_t ucp_device_put(const ucp_device_local_mem_list_h src_mem_list_h,
                                         unsigned src_mem_list_index, const size_t src_offset,
                                         const ucp_device_remote_mem_list_h dst_mem_list_h,
                                         unsigned dst_mem_list_index, size_t dst_offset,
                                         size_t length, unsigned channel_id, uint64_t flags,
                                         ucp_device_request_t* req) {
    const char* const from = ucp_device_local_place(src_mem_list_h, src_mem_list_index);
    char* const to = ucp_device_remote_place(dst_mem_list_h, dst_mem_list_index);
    (void)channel_id;
    (void)flags;
    if (UCP_DEVICE_ENABLE_PARAMS_CHECK && (from == NULL || to == NULL))
        return ucp_device_end(req, UCS_ERR_INVALID_PARAM);
    ucp_device_copy<level>(to + dst_offset, from + src_offset, length);
    ucp_device_team<level>::sync();
    return ucp_device_end(req, UCS_OK);
}

/**
 * Add to a word of a peer's memory, once for the threads together. Atomic among devices.
 * @param inc_value       What to add.
 * @param mem_list_h      Made by ucp_device_remote_mem_list_create.
 * @param mem_list_index  Which element of it.
 * @param offset          Bytes from where the element begins; the word is aligned to 8 bytes.
 * @param channel_id      Any; see above.
 * @param flags           Bits of ucp_device_flags_t, UCPX_DEVICE_FLAG_DEVICE_FENCE.
 * @param req             NULL, or gets what is returned.
 * @return UCS_OK: it will be seen without further calls. UCS_ERR_INVALID_PARAM: checked, and there
 *         is no such element.
 */
template <ucs_device_level_t level = UCS_DEVICE_LEVEL_THREAD>
UCS_F_DEVICE ucs_status_t ucp_device_counter_inc(const uint64_t inc_value,
                                                 const ucp_device_remote_mem_list_h mem_list_h,
                                                 unsigned mem_list_index, size_t offset,
                                                 unsigned channel_id, uint64_t flags,
                                                 ucp_device_request_t* req) {
    char* const place = ucp_device_remote_place(mem_list_h, mem_list_index);
    (void)channel_id;
    if (UCP_DEVICE_ENABLE_PARAMS_CHECK && place == NULL)
        return ucp_device_end(req, UCS_ERR_INVALID_PARAM);
    ucp_device_team<level>::sync();
    if (ucp_device_team<level>::rank() == 0)
        ucp_device_raise((uint64_t*)(place + offset), inc_value, flags);
    return ucp_device_end(req, UCS_OK);
}

/** @return the bytes that a numbered message of that length takes where it arrives */
UCS_F_DEVICE size_t ucpx_device_numbered_size(size_t length) {
    return 2 * length;
}

/**
 * Write a short message into a peer's memory, each 4 bytes of it beside a number in a word that
 * arrives as a whole. The peer sees by the number of each word that it is there
 * (ucpx_device_take_numbered): so no counter is needed, no fence before it, and a message takes no
 * longer than a bare flag. It takes twice the bytes on the way and at the peer, so it is for
 * messages of some KiB at most. Not among UCX's functions.
 *
 * It says nothing of other puts: what else was put before may come later.
 *
 * @param src_offset, dst_offset  As ucp_device_put. There are ucpx_device_numbered_size(length)
 *               bytes of the element at dst_offset. The source is aligned to 8 bytes there, the
 *               target to 16.
 * @param length  Bytes, a multiple of 8.
 * @param number  Another one than that of the message before in this place, which the peer has
 *               taken by now; and other than what was there at first, 0 in memory of zeros.
 * @return UCS_OK: the source is free again. UCS_ERR_INVALID_PARAM: checked, and there is no such
 *         element, or length or alignment are others.
 */
template <ucs_device_level_t level = UCS_DEVICE_LEVEL_THREAD>
UCS_F_DEVICE ucs_status_t ucpx_device_put_numbered(
    const ucp_device_local_mem_list_h src_mem_list_h, unsigned src_mem_list_index,
    const size_t src_offset, const ucp_device_remote_mem_list_h dst_mem_list_h,
    unsigned dst_mem_list_index, size_t dst_offset, size_t length, uint32_t number) {
    const char* const from = ucp_device_local_place(src_mem_list_h, src_mem_list_index);
    char* const to = ucp_device_remote_place(dst_mem_list_h, dst_mem_list_index);
    const ucp_device_word8* const source = (const ucp_device_word8*)(from + src_offset);
    uint64_t* const target = (uint64_t*)(to + dst_offset);
    const uint64_t mark = (uint64_t)number << 32;
    if (UCP_DEVICE_ENABLE_PARAMS_CHECK &&
        (from == NULL || to == NULL || (length & 7) != 0 || ((uintptr_t)source & 7) != 0 ||
         ((uintptr_t)target & 15) != 0))
        return UCS_ERR_INVALID_PARAM;
    for (size_t i = ucp_device_team<level>::rank(); i < length / 8;
         i += ucp_device_team<level>::size()) {
        const uint64_t data = source[i];
        ucp_device_store_words(target + 2 * i, mark | (uint32_t)data, mark | data >> 32);
    }
    ucp_device_team<level>::sync();
    return UCS_OK;
}

/**
 * Take a numbered message that the peer puts here. Waits for nothing: to be called until it says
 * that the message is there. Each thread of the level takes its own part, and they do not meet:
 * they synchronise before one reads what another one has taken.
 * @param arrived  Where the peer puts it, memory of this process, aligned to 16 bytes.
 * @param number   The message's.
 * @param to       Gets the message, aligned to 8 bytes.
 * @param length   The message's.
 * @return UCS_OK: this thread's part of it is in `to`. UCS_INPROGRESS: not all of that has come.
 */
template <ucs_device_level_t level = UCS_DEVICE_LEVEL_THREAD>
UCS_F_DEVICE ucs_status_t ucpx_device_take_numbered(const void* arrived, uint32_t number, void* to,
                                                    size_t length) {
    for (size_t i = ucp_device_team<level>::rank(); i < length / 8;
         i += ucp_device_team<level>::size()) {
        uint64_t low, high;
        ucp_device_load_words((const uint64_t*)arrived + 2 * i, &low, &high);
        if (low >> 32 != number || high >> 32 != number) return UCS_INPROGRESS;
        ((ucp_device_word8*)to)[i] = (uint32_t)low | high << 32;
    }
    return UCS_OK;
}

/**
 * Where this device finds memory of a peer, for loads, stores and atomic operations of its own.
 * @return UCS_OK, or UCS_ERR_INVALID_PARAM: checked, and there is no such element.
 */
UCS_F_DEVICE ucs_status_t ucp_device_get_ptr(const ucp_device_remote_mem_list_h mem_list_h,
                                             unsigned mem_list_index, void** addr_p) {
    *addr_p = ucp_device_remote_place(mem_list_h, mem_list_index);
    return UCP_DEVICE_ENABLE_PARAMS_CHECK && *addr_p == NULL ? UCS_ERR_INVALID_PARAM : UCS_OK;
}

/**
 * The value of a counter of this process, by each thread that calls. With each value goes what was
 * put before the counter was raised to it.
 * @param counter_ptr  Set up by ucp_device_counter_init.
 */
template <ucs_device_level_t level = UCS_DEVICE_LEVEL_THREAD>
UCS_F_DEVICE uint64_t ucp_device_counter_read(const void* counter_ptr) {
    return ucs_device_atomic64_read((const uint64_t*)counter_ptr);
}

/** Give a counter of this process another value. What peers add meanwhile may be lost. */
template <ucs_device_level_t level = UCS_DEVICE_LEVEL_THREAD>
UCS_F_DEVICE void ucp_device_counter_write(void* counter_ptr, uint64_t value) {
    ucs_device_atomic64_write((uint64_t*)counter_ptr, value);
}

/** @return What the operation of that request came to: they all end within their call. */
template <ucs_device_level_t level = UCS_DEVICE_LEVEL_THREAD>
UCS_F_DEVICE ucs_status_t ucp_device_progress_req(ucp_device_request_t* req) {
    return req->status;
}

#endif
