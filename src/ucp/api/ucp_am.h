/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file ucp_am.h
 * Active messages: a header and data that call a function of the receiver, in the order in which an
 * endpoint sent them, except that data fetched by rendezvous arrives when it arrives.
 */
#ifndef SWIFTLANE_UCP_AM_H_
#define SWIFTLANE_UCP_AM_H_

#include "ucp/api/ucp_def.h"
#include "ucp/api/ucp_request.h"

BEGIN_C_DECLS
#pragma GCC visibility push(default)

/** Flags of a handler. */
enum ucp_am_cb_flags {
    UCP_AM_FLAG_WHOLE_MSG = UCS_BIT(0),      /**< one call with all of the message */
    UCP_AM_FLAG_PERSISTENT_DATA = UCS_BIT(1) /**< data can always be kept after the call */
};

/** Flags of a send. */
enum ucp_send_am_flags {
    UCP_AM_SEND_FLAG_REPLY = UCS_BIT(0),       /**< give the receiver an endpoint to answer on */
    UCP_AM_SEND_FLAG_EAGER = UCS_BIT(1),       /**< send the data along, whatever its size */
    UCP_AM_SEND_FLAG_RNDV = UCS_BIT(2),        /**< have the receiver fetch the data */
    UCP_AM_SEND_FLAG_COPY_HEADER = UCS_BIT(3), /**< the header is free when the call returns */
    UCP_AM_SEND_REPLY = UCP_AM_SEND_FLAG_REPLY /**< the older name */
};

/** Flags of a ucp_am_callback_t. */
enum ucp_cb_param_flags {
    UCP_CB_PARAM_FLAG_DATA = UCS_BIT(0) /**< the data may be kept */
};

/** Fields (bits 0 to 15) and facts (from bit 16 on) of ucp_am_recv_param_t. */
typedef enum {
    UCP_AM_RECV_ATTR_FIELD_REPLY_EP = UCS_BIT(0),
    UCP_AM_RECV_ATTR_FLAG_DATA = UCS_BIT(16), /**< the data may be kept */
    UCP_AM_RECV_ATTR_FLAG_RNDV = UCS_BIT(17)  /**< the data is still to be fetched */
} ucp_am_recv_attr_t;

struct ucp_am_recv_param {
    uint64_t recv_attr; /**< bits of ucp_am_recv_attr_t */
    ucp_ep_h reply_ep;  /**< belongs to the library */
};

/** Fields of ucp_am_handler_param_t. */
enum ucp_am_handler_param_field {
    UCP_AM_HANDLER_PARAM_FIELD_ID = UCS_BIT(0),
    UCP_AM_HANDLER_PARAM_FIELD_FLAGS = UCS_BIT(1),
    UCP_AM_HANDLER_PARAM_FIELD_CB = UCS_BIT(2),
    UCP_AM_HANDLER_PARAM_FIELD_ARG = UCS_BIT(3)
};

typedef struct ucp_am_handler_param {
    uint64_t field_mask;       /**< bits of ucp_am_handler_param_field */
    unsigned id;               /**< 0 to 65535; must be given */
    uint32_t flags;            /**< bits of ucp_am_cb_flags; default 0 */
    ucp_am_recv_callback_t cb; /**< NULL takes the handler away; must be given */
    void* arg;                 /**< its first argument; default NULL */
} ucp_am_handler_param_t;

/** @return UCS_OK, UCS_ERR_INVALID_PARAM or UCS_ERR_NO_MEMORY. */
ucs_status_t ucp_worker_set_am_recv_handler(ucp_worker_h worker,
                                            const ucp_am_handler_param_t* param);
/**
 * Send an active message. Header and buffer are in use until the end, the header with COPY_HEADER
 * until the return. Messages that come before the receiver has set a handler for them wait for it;
 * those for which none is set within a second, or that are too many, are dropped with a warning.
 * @param header_length  Bytes, at most ucp_worker_attr_t::max_am_header.
 */
ucs_status_ptr_t ucp_am_send_nbx(ucp_ep_h ep, unsigned id, const void* header, size_t header_length,
                                 const void* buffer, size_t count,
                                 const ucp_request_param_t* param);
/** Fetch data that came with UCP_AM_RECV_ATTR_FLAG_RNDV; the descriptor is consumed. */
ucs_status_ptr_t ucp_am_recv_data_nbx(ucp_worker_h worker, void* data_desc, void* buffer,
                                      size_t count, const ucp_request_param_t* param);
/** Give kept data, or a descriptor whose data is not wanted, back. */
void ucp_am_data_release(ucp_worker_h worker, void* data);

#pragma GCC visibility pop
END_C_DECLS

#endif
