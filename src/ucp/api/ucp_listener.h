/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file ucp_listener.h
 * Connections by socket address: listeners and requests of clients.
 *
 * A client's ucp_ep_create returns at once; what is sent before the server has accepted waits. What
 * becomes of the call is told to the endpoint's error callback (error handling mode peer):
 * UCS_ERR_REJECTED (the server's program does not want it), UCS_ERR_NOT_CONNECTED (nobody listens
 * there, or something else does), UCS_ERR_UNREACHABLE (no way to the address, or no transport in
 * common), UCS_ERR_CONNECTION_RESET (the server went away meanwhile). Later, at either side:
 * UCS_ERR_CONNECTION_RESET when the peer has closed its endpoint or is gone; what it had sent
 * before has been received by then.
 */
#ifndef SWIFTLANE_UCP_LISTENER_H_
#define SWIFTLANE_UCP_LISTENER_H_

#include <sys/socket.h>

#include "ucp/api/ucp_compat.h"
#include "ucp/api/ucp_def.h"

BEGIN_C_DECLS
#pragma GCC visibility push(default)

/** Fields of ucp_listener_params_t. */
enum ucp_listener_params_field {
    UCP_LISTENER_PARAM_FIELD_SOCK_ADDR = UCS_BIT(0),
    UCP_LISTENER_PARAM_FIELD_ACCEPT_HANDLER = UCS_BIT(1),
    UCP_LISTENER_PARAM_FIELD_CONN_HANDLER = UCS_BIT(2)
};

/** An address and one of the two handlers must be given. */
typedef struct ucp_listener_params {
    uint64_t field_mask;                          /**< bits of ucp_listener_params_field */
    ucs_sock_addr_t sockaddr;                     /**< where to listen; port 0 takes a free one */
    ucp_listener_accept_handler_t accept_handler; /**< gets endpoints, already made */
    ucp_listener_conn_handler_t conn_handler;     /**< gets requests, to be decided on */
} ucp_listener_params_t;

enum ucp_listener_attr_field { UCP_LISTENER_ATTR_FIELD_SOCKADDR = UCS_BIT(0) };

typedef struct ucp_listener_attr {
    uint64_t field_mask;              /**< which to fill; bits of ucp_listener_attr_field */
    struct sockaddr_storage sockaddr; /**< where it listens, the port filled in */
} ucp_listener_attr_t;

/** Fields of ucp_conn_request_attr_t. */
enum ucp_conn_request_attr_field {
    UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR = UCS_BIT(0),
    UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ID = UCS_BIT(1)
};

typedef struct ucp_conn_request_attr {
    uint64_t field_mask; /**< which to fill; bits of ucp_conn_request_attr_field */
    struct sockaddr_storage client_address;
    uint64_t client_id; /**< of the client's worker, if it sent it */
} ucp_conn_request_attr_t;

/** @return UCS_OK, UCS_ERR_INVALID_PARAM, UCS_ERR_BUSY (the address is taken), UCS_ERR_IO_ERROR. */
ucs_status_t ucp_listener_create(ucp_worker_h worker, const ucp_listener_params_t* params,
                                 ucp_listener_h* listener_p);
/** Stop listening. Requests not decided on are still to be accepted or rejected. */
void ucp_listener_destroy(ucp_listener_h listener);
/** What field_mask asks for. @return UCS_OK. */
ucs_status_t ucp_listener_query(ucp_listener_h listener, ucp_listener_attr_t* attr);
/** Any thread. Refuse a client: its endpoint fails with UCS_ERR_REJECTED. The request is gone. */
ucs_status_t ucp_listener_reject(ucp_listener_h listener, ucp_conn_request_h conn_request);
/** @return UCS_OK, or UCS_ERR_UNSUPPORTED for a client id that was not sent. */
ucs_status_t ucp_conn_request_query(ucp_conn_request_h conn_request, ucp_conn_request_attr_t* attr);

#pragma GCC visibility pop
END_C_DECLS

#endif
