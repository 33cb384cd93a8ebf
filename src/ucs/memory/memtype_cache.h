/* SPDX-License-Identifier: BSD-3-Clause */
/** @file memtype_cache.h What kind of memory an address lies in. A function of libucs.so.0. */
#ifndef UCS_MEMTYPE_CACHE_H_
#define UCS_MEMTYPE_CACHE_H_

#include <stddef.h>

#include "ucs/memory/memory_type.h"
#include "ucs/sys/compiler_def.h"
#include "ucs/sys/sys_device.h"
#include "ucs/type/status.h"

BEGIN_C_DECLS
#pragma GCC visibility push(default)

/** What is known of memory that is not ordinary host memory. */
typedef struct ucs_memory_info {
    ucs_memory_type_t type;
    ucs_sys_device_t sys_dev; /**< always UCS_SYS_DEVICE_ID_UNKNOWN */
    void* base_address;       /**< of the allocation that it lies in; NULL: not known */
    size_t alloc_length;      /**< of that allocation in bytes; 0: not known */
} ucs_memory_info_t;

/**
 * What kind of memory [@a address, @a address + @a size) is. There is no cache: whoever knows of
 * devices is asked. Any thread.
 * @param mem_info  filled where UCS_OK is returned; NULL: only the answer is wanted
 * @return UCS_OK; UCS_ERR_NO_ELEM: host memory, as far as anybody knows, or @a size is 0;
 *         UCS_ERR_UNSUPPORTED: there is no libucp beside this libucs
 */
ucs_status_t ucs_memtype_cache_lookup(const void* address, size_t size,
                                      ucs_memory_info_t* mem_info);

#pragma GCC visibility pop
END_C_DECLS

#endif
