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
    UCP_DATATYPE_SGL = 4,     /**< put and get: lists of pieces at both ends */
    UCP_DATATYPE_GENERIC = 7, /**< packed and unpacked by the program */
    UCP_DATATYPE_SHIFT = 3,   /**< number of class bits */
    UCP_DATATYPE_CLASS_MASK = UCS_MASK(UCP_DATATYPE_SHIFT)
};

/** Elements of @a _elem_size bytes; receives take whole elements only. */
#define ucp_dt_make_contig(_elem_size) \
    (((ucp_datatype_t)(_elem_size) << UCP_DATATYPE_SHIFT) | UCP_DATATYPE_CONTIG)
/** A list of ranges. */
#define ucp_dt_make_iov() ((ucp_datatype_t)UCP_DATATYPE_IOV)

/** Pieces here and there: ucp_dt_local_sgl_t and ucp_dt_remote_sgl_t, for put and get alone. */
#define ucp_dt_make_sgl() ((ucp_datatype_t)UCP_DATATYPE_SGL)

/** One range; the array must live until the operation ends. */
typedef struct ucp_dt_iov {
    void* buffer;  /**< not touched if the length is 0 */
    size_t length; /**< bytes */
} ucp_dt_iov_t;

/** Fields of ucp_dt_local_sgl_t; BUFFERS and LENGTHS must be given. */
enum ucp_dt_local_sgl_field {
    UCP_DT_LOCAL_SGL_FIELD_BUFFERS = UCS_BIT(0),
    UCP_DT_LOCAL_SGL_FIELD_LENGTHS = UCS_BIT(1),
    UCP_DT_LOCAL_SGL_FIELD_MEMHS = UCS_BIT(2),
    UCP_DT_LOCAL_SGL_FIELD_COUNTS = UCS_BIT(3),
    UCP_DT_LOCAL_SGL_FIELD_STRIDES = UCS_BIT(4)
};

/** Fields of ucp_dt_remote_sgl_t; REMOTE_ADDRS and RKEYS must be given. */
enum ucp_dt_remote_sgl_field {
    UCP_DT_REMOTE_SGL_FIELD_REMOTE_ADDRS = UCS_BIT(0),
    UCP_DT_REMOTE_SGL_FIELD_LENGTHS = UCS_BIT(1),
    UCP_DT_REMOTE_SGL_FIELD_RKEYS = UCS_BIT(2)
};

/**
 * The local half of a list of pieces: the buffer of ucp_put_nbx and ucp_get_nbx whose datatype is
 * ucp_dt_make_sgl() and whose count is the number of pieces. The structure is read within the call,
 * and so are its arrays.
 */
typedef struct {
    uint64_t field_mask;    /**< bits of ucp_dt_local_sgl_field */
    void* const* buffers;   /**< where each piece begins */
    const size_t* lengths;  /**< bytes of each piece */
    ucp_mem_h const* memhs; /**< of each piece; NULL, in place of one or all: registered at need */
    const size_t* counts;   /**< how often each is repeated: not offered (UCS_ERR_UNSUPPORTED) */
    const size_t* strides;  /**< bytes from one repetition to the next: likewise */
} ucp_dt_local_sgl_t;

/** The other half: ucp_request_param_t::remote, with remote_datatype ucp_dt_make_sgl(). */
typedef struct {
    uint64_t field_mask;          /**< bits of ucp_dt_remote_sgl_field */
    const uint64_t* remote_addrs; /**< where each piece begins at the peer */
    const size_t* lengths;        /**< if given, the same as here */
    ucp_rkey_h const* rkeys;      /**< of each piece, unpacked for the endpoint */
} ucp_dt_remote_sgl_t;

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
