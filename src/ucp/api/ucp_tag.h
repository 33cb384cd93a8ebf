/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file ucp_tag.h
 * Tagged messages. A message meets the first receive in order of posting with
 * (message tag & mask) == (receive tag & mask); messages of one endpoint are matched in the order
 * in which they were sent. @a count is in elements of the parameter's datatype.
 */
#ifndef SWIFTLANE_UCP_TAG_H_
#define SWIFTLANE_UCP_TAG_H_

#include "ucp/api/ucp_def.h"
#include "ucp/api/ucp_request.h"

BEGIN_C_DECLS
#pragma GCC visibility push(default)

/** What arrived. */
struct ucp_tag_recv_info {
    ucp_tag_t sender_tag; /**< all bits of it */
    size_t length;        /**< bytes */
};

/** Ends when the buffer may be used again. */
ucs_status_ptr_t ucp_tag_send_nbx(ucp_ep_h ep, const void* buffer, size_t count, ucp_tag_t tag,
                                  const ucp_request_param_t* param);
/** Ends when the buffer may be used again and a receive has matched the message. */
ucs_status_ptr_t ucp_tag_send_sync_nbx(ucp_ep_h ep, const void* buffer, size_t count, ucp_tag_t tag,
                                       const ucp_request_param_t* param);
/**
 * Receive a message. Ends with UCS_ERR_MESSAGE_TRUNCATED if it did not fit (the buffer then holds
 * the part that did), UCS_ERR_CANCELED after ucp_request_cancel.
 */
ucs_status_ptr_t ucp_tag_recv_nbx(ucp_worker_h worker, void* buffer, size_t count, ucp_tag_t tag,
                                  ucp_tag_t tag_mask, const ucp_request_param_t* param);
/**
 * Look for a message that has arrived and that no receive has matched. Does not progress.
 * @param remove  Non-zero: take it out of matching; it must then be received with
 *                ucp_tag_msg_recv_nbx.
 * @param info    Filled if there is one.
 * @return NULL if there is none.
 */
ucp_tag_message_h ucp_tag_probe_nb(ucp_worker_h worker, ucp_tag_t tag, ucp_tag_t tag_mask,
                                   int remove, ucp_tag_recv_info_t* info);
/** Receive a message taken by ucp_tag_probe_nb; the handle is consumed. */
ucs_status_ptr_t ucp_tag_msg_recv_nbx(ucp_worker_h worker, void* buffer, size_t count,
                                      ucp_tag_message_h message, const ucp_request_param_t* param);
/** Status of a receive; @a info is filled once it has matched. */
ucs_status_t ucp_tag_recv_request_test(void* request, ucp_tag_recv_info_t* info);

#pragma GCC visibility pop
END_C_DECLS

#endif
