/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file ucp_host.h
 * What the host does for kernels that communicate (ucp_device_impl.h): it makes lists of memory,
 * here and of peers, which kernels of one device use as often as they like, and sets up counters.
 * For contexts made with UCP_FEATURE_DEVICE.
 *
 * A list is for kernels of the device whose CUDA context is current on the calling thread, and lies
 * in that device's memory. Only memory that this device reaches by itself can be in one:
 * - memory of this process on the device, or on another one that it reaches; pinned host memory;
 * - memory of a peer on the same host that other processes can open (docs/gpu.md), with a key that
 *   allows reading and writing.
 *
 * The ways to it are opened when the list is made, which may take the driver 2 to 10 ms an
 * allocation, the first one of a device above 100, and never by a kernel. Opening may wait for
 * kernels that run: make lists before kernels that wait for a peer. As long as the list lives the
 * ways stay open, and the memory of a peer remains the device's even where its owner frees it.
 *
 * Threads: as for the worker or endpoints named; ucp_device_mem_list_release and
 * ucp_device_get_mem_list_length any thread.
 */
#ifndef UCP_HOST_H_
#define UCP_HOST_H_

#include <stddef.h>
#include <stdint.h>

#include "ucp/api/ucp_def.h"
#include "ucs/memory/memory_type.h"
#include "ucs/sys/compiler_def.h"
#include "ucs/type/status.h"

BEGIN_C_DECLS
#pragma GCC visibility push(default)

/** Fields of ucp_device_mem_list_elem_t. */
enum ucp_device_mem_list_elem_field {
    UCP_DEVICE_MEM_LIST_ELEM_FIELD_MEMH = UCS_BIT(0),
    UCP_DEVICE_MEM_LIST_ELEM_FIELD_RKEY = UCS_BIT(1),
    UCP_DEVICE_MEM_LIST_ELEM_FIELD_LOCAL_ADDR = UCS_BIT(2),
    UCP_DEVICE_MEM_LIST_ELEM_FIELD_REMOTE_ADDR = UCS_BIT(3),
    UCP_DEVICE_MEM_LIST_ELEM_FIELD_LENGTH = UCS_BIT(4),
    UCP_DEVICE_MEM_LIST_ELEM_FIELD_EP = UCS_BIT(5)
};

/** One piece of memory, for either kind of list. */
typedef struct ucp_device_mem_list_elem {
    uint64_t field_mask; /**< bits of ucp_device_mem_list_elem_field */
    ucp_mem_h memh;      /**< here: must be given */
    void* local_addr;    /**< here: where the element begins; default: where memh does */
    size_t length;       /**< bytes; default: up to the end of memh, or of what rkey covers */
    uint64_t
        remote_addr; /**< there: where the element begins; default: where the key's memory does */
    ucp_rkey_h rkey; /**< there: must be given; may be destroyed once the list is made */
    ucp_ep_h ep;     /**< there: must be given */
} ucp_device_mem_list_elem_t;

/** Fields of ucp_device_mem_list_params_t. */
enum ucp_device_mem_list_params_field {
    UCP_DEVICE_MEM_LIST_PARAMS_FIELD_ELEMENTS = UCS_BIT(0),
    UCP_DEVICE_MEM_LIST_PARAMS_FIELD_ELEMENT_SIZE = UCS_BIT(1),
    UCP_DEVICE_MEM_LIST_PARAMS_FIELD_NUM_ELEMENTS = UCS_BIT(2),
    UCP_DEVICE_MEM_LIST_PARAMS_FIELD_WORKER = UCS_BIT(3)
};

typedef struct ucp_device_mem_list_params {
    uint64_t field_mask; /**< bits of ucp_device_mem_list_params_field */
    size_t element_size; /**< bytes of an element as the caller was compiled; must be given */
    size_t num_elements; /**< 1 or more; must be given */
    ucp_worker_h worker; /**< must be given for memory here; of peers, the endpoints tell it */
    const ucp_device_mem_list_elem_t* elements; /**< read during the call; must be given */
} ucp_device_mem_list_params_t;

/**
 * Make a list of memory of this process, for ucp_device_put to read.
 * @return UCS_OK; UCS_ERR_INVALID_PARAM (something that must be given is missing, or a range is
 *         not memh's); UCS_ERR_NO_DEVICE (no context of a device is current, or there is no CUDA);
 *         UCS_ERR_UNSUPPORTED (the context has not UCP_FEATURE_DEVICE, or the device does not reach
 *         an element: host memory that is not pinned, a device that is not its peer);
 *         UCS_ERR_NO_RESOURCE (as ucp_device_remote_mem_list_create); UCS_ERR_NO_MEMORY.
 */
ucs_status_t ucp_device_local_mem_list_create(const ucp_device_mem_list_params_t* params,
                                              ucp_device_local_mem_list_h* mem_list_h);

/**
 * Make a list of memory of peers, for kernels to put to and to raise counters in. An element whose
 * field_mask is 0 is left out: its place stays empty, and kernels must not use it.
 * @return UCS_OK; UCS_ERR_INVALID_PARAM (something that must be given is missing, or all elements
 *         are left out, or the key is of other memory by now); UCS_ERR_INVALID_ADDR (a range is
 *         not the key's); UCS_ERR_NO_DEVICE (no context of a device is current, or there is no
 *         CUDA); UCS_ERR_UNSUPPORTED (the context has not UCP_FEATURE_DEVICE, or the device does
 *         not reach an element: a peer on another host, host memory that is not pinned here, memory
 *         that others cannot open, a key without the right to read and write, UCX_CUDA_DIRECT=n);
 *         UCS_ERR_NO_RESOURCE (no way can be opened now, but perhaps later: a stream stands at an
 *         operation of ucpx.h, lists hold as many as UCX_CUDA_MAPPINGS, or the owner does not
 *         answer); UCS_ERR_NO_MEMORY. The log says which element it is.
 */
ucs_status_t ucp_device_remote_mem_list_create(const ucp_device_mem_list_params_t* params,
                                               ucp_device_remote_mem_list_h* mem_list_h);

/** Elements of a list of either kind; 0: there is no such list. */
uint32_t ucp_device_get_mem_list_length(const void* mem_list_h);

/**
 * Release a list of either kind. No kernel uses it any more. Waits for no device. Ways that no list
 * holds are closed when their memory is freed, or when others are needed more.
 */
void ucp_device_mem_list_release(void* mem_list_h);

/** Fields of ucp_device_counter_params_t. */
enum ucp_device_counter_params_field {
    UCP_DEVICE_COUNTER_PARAMS_FIELD_MEM_TYPE = UCS_BIT(0),
    UCP_DEVICE_COUNTER_PARAMS_FIELD_MEMH = UCS_BIT(1)
};

/** Where a counter lies, which the library finds out by itself: nothing has to be given. */
typedef struct ucp_device_counter_params {
    uint64_t field_mask;        /**< bits of ucp_device_counter_params_field */
    ucs_memory_type_t mem_type; /**< kind of memory: not looked at */
    ucp_mem_h memh;             /**< memory that the counter lies in */
} ucp_device_counter_params_t;

/**
 * Make a counter of memory of this process: its value is 0. Peers raise it from their kernels.
 * @param counter_ptr  ucp_context_attr_t::device_counter_size bytes, aligned to 8, of device memory
 *                     or host memory.
 * @return UCS_OK; UCS_ERR_INVALID_PARAM (no address, not aligned, not in memh); UCS_ERR_UNSUPPORTED
 *         (memory that cannot be written); the error of the device. Waits until it is written.
 */
ucs_status_t ucp_device_counter_init(ucp_worker_h worker, const ucp_device_counter_params_t* params,
                                     void* counter_ptr);
/** The value of a counter, read by the host; UINT64_MAX if it cannot be read, as the log says. */
uint64_t ucp_device_counter_read(ucp_worker_h worker, const ucp_device_counter_params_t* params,
                                 void* counter_ptr);

#pragma GCC visibility pop
END_C_DECLS

#endif
