/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file ucp_request.h
 * Parameters of operations, and requests: handles of operations under way.
 *
 * Functions ending in _nbx return NULL when the operation ended well within the call (no callback
 * is called), an error (UCS_PTR_IS_ERR; nothing was started), or a request. The callback of a
 * request is called once, from progress; the caller frees the request with ucp_request_free, at any
 * time. Buffers belong to the library until the request ends.
 */
#ifndef SWIFTLANE_UCP_REQUEST_H_
#define SWIFTLANE_UCP_REQUEST_H_

#include "ucp/api/ucp_def.h"

BEGIN_C_DECLS
#pragma GCC visibility push(default)

/** Fields (bits 0 to 15) and wishes (from bit 16 on) of ucp_request_param_t. */
typedef enum {
    UCP_OP_ATTR_FIELD_REQUEST = UCS_BIT(0),
    UCP_OP_ATTR_FIELD_CALLBACK = UCS_BIT(1),
    UCP_OP_ATTR_FIELD_USER_DATA = UCS_BIT(2),
    UCP_OP_ATTR_FIELD_DATATYPE = UCS_BIT(3),
    UCP_OP_ATTR_FIELD_FLAGS = UCS_BIT(4),
    UCP_OP_ATTR_FIELD_REPLY_BUFFER = UCS_BIT(5),
    UCP_OP_ATTR_FIELD_MEMORY_TYPE = UCS_BIT(6),
    UCP_OP_ATTR_FIELD_RECV_INFO = UCS_BIT(7),
    UCP_OP_ATTR_FIELD_MEMH = UCS_BIT(8),
    UCP_OP_ATTR_FIELD_REMOTE_DATATYPE = UCS_BIT(9),
    UCP_OP_ATTR_FIELD_REMOTE = UCS_BIT(10),
    UCP_OP_ATTR_FIELD_REMOTE_COUNT = UCS_BIT(11),

    UCP_OP_ATTR_FLAG_NO_IMM_CMPL = UCS_BIT(16), /**< return a request also if it ended; the callback
                                                     of a receive may run before the call returns */
    UCP_OP_ATTR_FLAG_FAST_CMPL = UCS_BIT(17),   /**< give the buffer back soon, even by copying */
    UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL = UCS_BIT(18), /**< end within the call or fail */
    UCP_OP_ATTR_FLAG_MULTI_SEND = UCS_BIT(19)      /**< many to come: bandwidth before latency */
} ucp_op_attr_t;

/** Optional parameters of an operation; op_attr_mask says which fields count. */
typedef struct {
    uint32_t op_attr_mask; /**< bits of ucp_op_attr_t */
    uint32_t flags;        /**< of the operation: ucp_send_am_flags, ucp_ep_close_flags_t, ... */
    void* request; /**< memory of the caller, preceded by ucp_context_attr_t::request_size bytes */
    union {
        ucp_send_nbx_callback_t send;
        ucp_tag_recv_nbx_callback_t recv;
        ucp_stream_recv_nbx_callback_t recv_stream;
        ucp_am_recv_data_nbx_callback_t recv_am;
    } cb;                          /**< the member that fits the operation */
    ucp_datatype_t datatype;       /**< of one element; default: one byte */
    void* user_data;               /**< handed to the callback */
    void* reply_buffer;            /**< where a fetching atomic operation puts the old value */
    ucs_memory_type_t memory_type; /**< of the buffer; default: found out */
    union {
        size_t* length;                /**< bytes received; other receives */
        ucp_tag_recv_info_t* tag_info; /**< tagged receives */
    } recv_info;                       /**< filled if a receive ends within the call */
    ucp_mem_h memh;                    /**< of the buffer: spares its registration */
    ucp_datatype_t remote_datatype;    /**< of put and get with a list: ucp_dt_make_sgl() */
    const void* remote;                /**< the list: a ucp_dt_remote_sgl_t */
    size_t remote_count;               /**< its pieces; default, and all that is taken: count */
} ucp_request_param_t;

/** Fields of ucp_request_attr_t. */
typedef enum {
    UCP_REQUEST_ATTR_FIELD_INFO_STRING = UCS_BIT(0),
    UCP_REQUEST_ATTR_FIELD_INFO_STRING_SIZE = UCS_BIT(1),
    UCP_REQUEST_ATTR_FIELD_STATUS = UCS_BIT(2),
    UCP_REQUEST_ATTR_FIELD_MEM_TYPE = UCS_BIT(3)
} ucp_req_attr_field;

typedef struct {
    uint64_t field_mask;        /**< bits of ucp_req_attr_field */
    char* debug_string;         /**< in: room for a text on protocol and lanes, zero terminated */
    size_t debug_string_size;   /**< in: that room in bytes */
    ucs_status_t status;        /**< out: UCS_INPROGRESS, or how it ended */
    ucs_memory_type_t mem_type; /**< out: of the buffer */
} ucp_request_attr_t;

/** @return UCS_INPROGRESS, or how the operation ended. */
ucs_status_t ucp_request_check_status(void* request);
/** @return UCS_OK or UCS_ERR_INVALID_PARAM. */
ucs_status_t ucp_request_query(void* request, ucp_request_attr_t* attr);
/** Try to end an operation early; it ends once, with UCS_ERR_CANCELED or as it would have. */
void ucp_request_cancel(ucp_worker_h worker, void* request);
/** Give a request back; an operation under way goes on, its callback is no longer called. */
void ucp_request_free(void* request);
/** A request for UCP_OP_ATTR_FIELD_REQUEST. @return NULL if there is no memory. */
void* ucp_request_alloc(ucp_worker_h worker);

#pragma GCC visibility pop
END_C_DECLS

#endif
