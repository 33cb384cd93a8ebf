/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file ucp_device_types.h
 * Lists of memory as they lie in the memory of a device. Programs hand their addresses to the
 * functions of ucp_device_impl.h and ucp_host.h, and look at nothing in them. The layout is that of
 * UCX 1.22 for one way by direct mappings, so that kernels compiled with its headers read them too.
 */
#ifndef UCP_DEVICE_TYPES_H
#define UCP_DEVICE_TYPES_H

#include <stddef.h>
#include <stdint.h>

#include "ucp/api/ucp_def.h"

/** ucp_device_remote_mem_list::version and ucp_device_local_mem_list::version. */
#define UCP_DEVICE_MEM_LIST_VERSION_V1 2

/** Which kind of way it is. Kernels compiled with UCX's headers choose by it. */
typedef struct ucp_device_way {
    uint8_t kind; /**< UCP_DEVICE_WAY_MAPPED */
} ucp_device_way_t;

/** The peer's memory has an address here: the only kind there is. */
#define UCP_DEVICE_WAY_MAPPED 1

/** Memory of a peer. */
typedef struct ucp_device_remote_mem_elem {
    uint64_t addr;               /**< at the peer */
    const ucp_device_way_t* way; /**< NULL: the element was left out, and must not be used */
    ptrdiff_t mapped_offset;     /**< from there to where this device finds it */
} ucp_device_remote_mem_elem_t;

/** Memory of this process. */
typedef struct ucp_device_local_mem_elem {
    void* addr;
} ucp_device_local_mem_elem_t;

/** Its elements follow it. */
typedef struct ucp_device_remote_mem_list {
    uint16_t version;
    uint16_t num_lanes; /**< ways in an element: 1 */
    uint32_t length;    /**< elements */
} ucp_device_remote_mem_list_t;

/** Its elements follow it. */
typedef struct ucp_device_local_mem_list {
    uint16_t version;
    uint16_t num_lanes; /**< 0: a mapping needs no key of the memory here */
    uint32_t length;    /**< elements */
} ucp_device_local_mem_list_t;

#endif
