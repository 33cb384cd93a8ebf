/* SPDX-License-Identifier: BSD-3-Clause */
/** @file ucp_mem.h Memory handles and remote keys. */
#ifndef SWIFTLANE_UCP_MEM_H_
#define SWIFTLANE_UCP_MEM_H_

#include <stdio.h>

#include "ucp/api/ucp_def.h"

BEGIN_C_DECLS
#pragma GCC visibility push(default)

/** Fields of ucp_mem_map_params_t. */
enum ucp_mem_map_params_field {
    UCP_MEM_MAP_PARAM_FIELD_ADDRESS = UCS_BIT(0),
    UCP_MEM_MAP_PARAM_FIELD_LENGTH = UCS_BIT(1),
    UCP_MEM_MAP_PARAM_FIELD_FLAGS = UCS_BIT(2),
    UCP_MEM_MAP_PARAM_FIELD_PROT = UCS_BIT(3),
    UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE = UCS_BIT(4),
    UCP_MEM_MAP_PARAM_FIELD_EXPORTED_MEMH_BUFFER = UCS_BIT(5)
};

/** Flags of ucp_mem_map. */
enum {
    UCP_MEM_MAP_NONBLOCK = UCS_BIT(0),       /**< pages may be brought in later */
    UCP_MEM_MAP_ALLOCATE = UCS_BIT(1),       /**< the library allocates; address is a hint */
    UCP_MEM_MAP_FIXED = UCS_BIT(2),          /**< with ALLOCATE: exactly at address, page aligned */
    UCP_MEM_MAP_SYMMETRIC_RKEY = UCS_BIT(3), /**< try to get keys that compare equal among peers */
    UCP_MEM_MAP_LOCK = UCS_BIT(4)            /**< all pages are brought in now; not with NONBLOCK */
};

/** Accesses that a handle allows. */
enum {
    UCP_MEM_MAP_PROT_LOCAL_READ = UCS_BIT(0),
    UCP_MEM_MAP_PROT_LOCAL_WRITE = UCS_BIT(1),
    UCP_MEM_MAP_PROT_REMOTE_READ = UCS_BIT(8),
    UCP_MEM_MAP_PROT_REMOTE_WRITE = UCS_BIT(9)
};

typedef struct ucp_mem_map_params {
    uint64_t field_mask;              /**< bits of ucp_mem_map_params_field */
    void* address;                    /**< NULL, the default: the library allocates */
    size_t length;                    /**< bytes; must be given, unless a handle is imported */
    unsigned flags;                   /**< default 0 */
    unsigned prot;                    /**< default: all four accesses */
    ucs_memory_type_t memory_type;    /**< default: found out; for ALLOCATE: host */
    const void* exported_memh_buffer; /**< from ucp_memh_pack elsewhere: map a peer's memory */
} ucp_mem_map_params_t;

/** Fields of ucp_mem_advise_params_t; all must be given. */
enum ucp_mem_advise_params_field {
    UCP_MEM_ADVISE_PARAM_FIELD_ADDRESS = UCS_BIT(0),
    UCP_MEM_ADVISE_PARAM_FIELD_LENGTH = UCS_BIT(1),
    UCP_MEM_ADVISE_PARAM_FIELD_ADVICE = UCS_BIT(2)
};

typedef enum ucp_mem_advice {
    UCP_MADV_NORMAL = 0,
    UCP_MADV_WILLNEED /**< bring the pages in now */
} ucp_mem_advice_t;

typedef struct ucp_mem_advise_params {
    uint64_t field_mask; /**< bits of ucp_mem_advise_params_field */
    void* address;       /**< inside the handle's memory */
    size_t length;       /**< bytes */
    ucp_mem_advice_t advice;
} ucp_mem_advise_params_t;

enum ucp_memh_pack_params_field { UCP_MEMH_PACK_PARAM_FIELD_FLAGS = UCS_BIT(0) };

enum ucp_memh_pack_flags {
    /** For ucp_mem_map of another process of this host and user, not as a remote key: memory that
     *  the library allocated for a context with UCP_FEATURE_EXPORTED_MEMH. */
    UCP_MEMH_PACK_FLAG_EXPORT = UCS_BIT(0)
};

typedef struct ucp_memh_pack_params {
    uint64_t field_mask; /**< bits of ucp_memh_pack_params_field */
    uint64_t flags;      /**< bits of ucp_memh_pack_flags; default 0: a remote key */
} ucp_memh_pack_params_t;

typedef struct ucp_memh_buffer_release_params {
    uint64_t field_mask; /**< no fields yet: 0 */
} ucp_memh_buffer_release_params_t;

typedef struct ucp_rkey_compare_params {
    uint64_t field_mask; /**< no fields yet: 0 */
} ucp_rkey_compare_params_t;

/* Any thread may call these if the context has mt_workers_shared. */

/**
 * Make memory known to the devices, allocating it if asked to.
 * @return UCS_OK, UCS_ERR_INVALID_PARAM (no length, FIXED without ALLOCATE, ...),
 * UCS_ERR_NO_MEMORY, UCS_ERR_UNSUPPORTED (kind of memory, import), UCS_ERR_IO_ERROR (a device
 * refused).
 */
ucs_status_t ucp_mem_map(ucp_context_h context, const ucp_mem_map_params_t* params,
                         ucp_mem_h* memh_p);
/** Undo ucp_mem_map. Peers must be done with the memory. */
ucs_status_t ucp_mem_unmap(ucp_context_h context, ucp_mem_h memh);
/** What field_mask asks for. @return UCS_OK or UCS_ERR_INVALID_PARAM. */
ucs_status_t ucp_mem_query(const ucp_mem_h memh, ucp_mem_attr_t* attr);
/** A hint that changes no result. @return UCS_OK or UCS_ERR_INVALID_PARAM (range outside). */
ucs_status_t ucp_mem_advise(ucp_context_h context, ucp_mem_h memh, ucp_mem_advise_params_t* params);
/**
 * Map memory for a moment and write how it went as text.
 * @param mem_size  Bytes with a unit, and optionally a kind: "4096", "1m,cuda".
 */
void ucp_mem_print_info(const char* mem_size, ucp_context_h context, FILE* stream);

/**
 * The bytes that let a peer use the memory; released by ucp_memh_buffer_release.
 * @return UCS_OK, UCS_ERR_UNSUPPORTED (memory that cannot be exported), UCS_ERR_NO_MEMORY.
 */
ucs_status_t ucp_memh_pack(ucp_mem_h memh, const ucp_memh_pack_params_t* params, void** buffer_p,
                           size_t* buffer_size_p);
/** Release what ucp_memh_pack gave. */
void ucp_memh_buffer_release(void* buffer, const ucp_memh_buffer_release_params_t* params);

/* --- remote keys: threads as for the endpoint */

/**
 * Make a key for use on one endpoint from what its peer packed.
 * @return UCS_OK, UCS_ERR_INVALID_ADDR (malformed), UCS_ERR_UNREACHABLE (no lane can use it).
 */
ucs_status_t ucp_ep_rkey_unpack(ucp_ep_h ep, const void* rkey_buffer, ucp_rkey_h* rkey_p);
/**
 * An order of keys, the same for the worker's life.
 * @param result  Negative, 0 or positive; 0: either key serves for both.
 * @return UCS_OK, or UCS_ERR_INVALID_PARAM (unknown fields, no result).
 */
ucs_status_t ucp_rkey_compare(ucp_worker_h worker, ucp_rkey_h rkey1, ucp_rkey_h rkey2,
                              const ucp_rkey_compare_params_t* params, int* result);
/** Where the peer's address @a raddr can be read and written directly; UCS_ERR_UNREACHABLE if not.
 */
ucs_status_t ucp_rkey_ptr(ucp_rkey_h rkey, uint64_t raddr, void** addr_p);
/** Release a key; operations that use it must have ended. */
void ucp_rkey_destroy(ucp_rkey_h rkey);

#pragma GCC visibility pop
END_C_DECLS

#endif
