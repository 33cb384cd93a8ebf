/* SPDX-License-Identifier: BSD-3-Clause */
/** @file ucp_datatype.h Layouts of buffers. */
#ifndef SWIFTLANE_UCP_DATATYPE_H_
#define SWIFTLANE_UCP_DATATYPE_H_

#include "ucp/api/ucp_def.h"

BEGIN_C_DECLS
#pragma GCC visibility push(default)

/** The low bits of a ucp_datatype_t say of which class it is. */
enum ucp_dt_type {
    UCP_DATATYPE_CONTIG = 0,  /**< elements side by side; the size is in the upper bits */
    UCP_DATATYPE_STRIDED = 1, /**< not offered */
    UCP_DATATYPE_IOV = 2,     /**< the buffer is an array of ucp_dt_iov_t, count its entries */
    UCP_DATATYPE_GENERIC = 7, /**< packed and unpacked by the program */
    UCP_DATATYPE_SHIFT = 3,   /**< number of class bits */
    UCP_DATATYPE_CLASS_MASK = UCS_MASK(UCP_DATATYPE_SHIFT)
};

/** Elements of @a _elem_size bytes; receives take whole elements only. */
#define ucp_dt_make_contig(_elem_size) \
    (((ucp_datatype_t)(_elem_size) << UCP_DATATYPE_SHIFT) | UCP_DATATYPE_CONTIG)
/** A list of ranges. */
#define ucp_dt_make_iov() ((ucp_datatype_t)UCP_DATATYPE_IOV)

/** One range; the array must live until the operation ends. */
typedef struct ucp_dt_iov {
    void* buffer;  /**< not touched if the length is 0 */
    size_t length; /**< bytes */
} ucp_dt_iov_t;

/**
 * A program's own layout. Each operation opens a state with start_pack or start_unpack, works on it
 * at rising or arbitrary offsets into the packed form, and closes it with finish. Called by the
 * thread that starts or progresses the operation.
 */
typedef struct ucp_generic_dt_ops {
    void* (*start_pack)(void* context, const void* buffer, size_t count);
    void* (*start_unpack)(void* context, void* buffer, size_t count);
    /** Bytes of the packed form. */
    size_t (*packed_size)(void* state);
    /** Write at most @a max_length bytes from @a offset on; returns how many. */
    size_t (*pack)(void* state, size_t offset, void* dest, size_t max_length);
    /** Take @a length bytes that belong at @a offset. */
    ucs_status_t (*unpack)(void* state, size_t offset, const void* src, size_t length);
    void (*finish)(void* state);
} ucp_generic_dt_ops_t;

/** Fields of ucp_datatype_attr_t. */
enum ucp_datatype_attr_field {
    UCP_DATATYPE_ATTR_FIELD_PACKED_SIZE = UCS_BIT(0),
    UCP_DATATYPE_ATTR_FIELD_BUFFER = UCS_BIT(1),
    UCP_DATATYPE_ATTR_FIELD_COUNT = UCS_BIT(2)
};

typedef struct ucp_datatype_attr {
    uint64_t field_mask; /**< bits of ucp_datatype_attr_field */
    size_t packed_size;  /**< out: bytes of the packed form of buffer and count */
    const void* buffer;  /**< in: default NULL; must be given for a list of ranges */
    size_t count;        /**< in: elements; default 1 */
} ucp_datatype_attr_t;

/** @param ops  Copied. @return UCS_OK, UCS_ERR_INVALID_PARAM or UCS_ERR_NO_MEMORY. Any thread. */
ucs_status_t ucp_dt_create_generic(const ucp_generic_dt_ops_t* ops, void* context,
                                   ucp_datatype_t* datatype_p);
/** Release a generic datatype that no operation uses; others are left alone. Any thread. */
void ucp_dt_destroy(ucp_datatype_t datatype);
/** @return UCS_OK, or UCS_ERR_INVALID_PARAM (no buffer, unknown class). Any thread. */
ucs_status_t ucp_dt_query(ucp_datatype_t datatype, ucp_datatype_attr_t* attr);

#pragma GCC visibility pop
END_C_DECLS

#endif
