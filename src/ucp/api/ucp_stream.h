/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file ucp_stream.h
 * Byte streams: what an endpoint sends arrives in order, without boundaries.
 *
 * Endpoints connected by socket address have a stream each. Of several endpoints made from the
 * address of one worker all send to the same stream, which that worker's first endpoint back
 * receives. Bytes that nobody receives are kept, without a limit, until the endpoint is closed.
 */
#ifndef SWIFTLANE_UCP_STREAM_H_
#define SWIFTLANE_UCP_STREAM_H_

#include <sys/types.h>

#include "ucp/api/ucp_def.h"
#include "ucp/api/ucp_request.h"

BEGIN_C_DECLS
#pragma GCC visibility push(default)

/** Flags of a receive. */
typedef enum {
    UCP_STREAM_RECV_FLAG_WAITALL = UCS_BIT(0) /**< end only when the buffer is full */
} ucp_stream_recv_flags_t;

/** An endpoint that has data. */
typedef struct ucp_stream_poll_ep {
    ucp_ep_h ep;
    void* user_data; /**< from ucp_ep_params_t */
    unsigned flags;  /**< none yet: 0 */
    uint8_t reserved[16];
} ucp_stream_poll_ep_t;

/** Send elements of a datatype as bytes behind those sent before. */
ucs_status_ptr_t ucp_stream_send_nbx(ucp_ep_h ep, const void* buffer, size_t count,
                                     const ucp_request_param_t* param);
/**
 * Receive at least one element, whole elements only; with UCP_STREAM_RECV_FLAG_WAITALL as many as
 * the buffer holds. Receives of an endpoint end in the order of the calls. Ends with
 * UCS_ERR_CANCELED after ucp_request_cancel or when the endpoint is closed.
 * @param length  Bytes received, if it ended within the call.
 */
ucs_status_ptr_t ucp_stream_recv_nbx(ucp_ep_h ep, void* buffer, size_t count, size_t* length,
                                     const ucp_request_param_t* param);
/**
 * Borrow data that has arrived, without copying.
 * @return NULL if there is none, an error, or the data, for ucp_stream_data_release.
 */
ucs_status_ptr_t ucp_stream_recv_data_nb(ucp_ep_h ep, size_t* length);
/** Give data of ucp_stream_recv_data_nb back. */
void ucp_stream_data_release(ucp_ep_h ep, void* data);
/** Status of a receive; @a length_p, in bytes, is filled when it is UCS_OK. */
ucs_status_t ucp_stream_recv_request_test(void* request, size_t* length_p);
/**
 * Which endpoints have data. Each is told once for what has come until then, and again when more
 * comes.
 * @param poll_eps  Room for @a max_eps entries.
 * @return Number of entries filled, or a negative ucs_status_t.
 */
ssize_t ucp_stream_worker_poll(ucp_worker_h worker, ucp_stream_poll_ep_t* poll_eps, size_t max_eps,
                               unsigned flags);

#pragma GCC visibility pop
END_C_DECLS

#endif
