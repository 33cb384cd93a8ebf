/* SPDX-License-Identifier: BSD-3-Clause */
/** @file ucp_ep.h Endpoints: connect, close, flush, query. */
#ifndef SWIFTLANE_UCP_EP_H_
#define SWIFTLANE_UCP_EP_H_

#include <stdio.h>
#include <sys/socket.h>

#include "ucp/api/ucp_compat.h"
#include "ucp/api/ucp_def.h"
#include "ucp/api/ucp_request.h"

BEGIN_C_DECLS
#pragma GCC visibility push(default)

/** Fields of ucp_ep_params_t. */
enum ucp_ep_params_field {
    UCP_EP_PARAM_FIELD_REMOTE_ADDRESS = UCS_BIT(0),
    UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE = UCS_BIT(1),
    UCP_EP_PARAM_FIELD_ERR_HANDLER = UCS_BIT(2),
    UCP_EP_PARAM_FIELD_USER_DATA = UCS_BIT(3),
    UCP_EP_PARAM_FIELD_SOCK_ADDR = UCS_BIT(4),
    UCP_EP_PARAM_FIELD_FLAGS = UCS_BIT(5),
    UCP_EP_PARAM_FIELD_CONN_REQUEST = UCS_BIT(6),
    UCP_EP_PARAM_FIELD_NAME = UCS_BIT(7),
    UCP_EP_PARAM_FIELD_LOCAL_SOCK_ADDR = UCS_BIT(8)
};

enum ucp_ep_params_flags_field {
    UCP_EP_PARAMS_FLAGS_CLIENT_SERVER = UCS_BIT(0), /**< connect to a listener's socket address */
    /** To the own worker: what is sent goes to the next endpoint made so, and back. */
    UCP_EP_PARAMS_FLAGS_NO_LOOPBACK = UCS_BIT(1),
    UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID = UCS_BIT(2) /**< tell the server the worker's client_id */
};

/** Flags of ucp_ep_close_nbx. */
typedef enum {
    UCP_EP_CLOSE_FLAG_FORCE = UCS_BIT(0) /**< no flush: what is under way is cancelled */
} ucp_ep_close_flags_t;

#ifdef SWIFTLANE_UCP_COMPAT_H_ /* else UCX's has been read, which declares this from 1.15 on */
/** Modes of ucp_ep_close_nb. */
enum ucp_ep_close_mode {
    UCP_EP_CLOSE_MODE_FORCE = 0, /**< what is under way is cancelled */
    UCP_EP_CLOSE_MODE_FLUSH = 1  /**< after a flush */
};
#endif

typedef enum ucp_ep_perf_param_field {
    UCP_EP_PERF_PARAM_FIELD_MESSAGE_SIZE = UCS_BIT(0)
} ucp_ep_perf_param_field_t;

typedef enum ucp_ep_perf_attr_field {
    UCP_EP_PERF_ATTR_FIELD_ESTIMATED_TIME = UCS_BIT(0)
} ucp_ep_perf_attr_field_t;

typedef struct {
    uint64_t field_mask; /**< bits of ucp_ep_perf_param_field_t */
    size_t message_size; /**< bytes */
} ucp_ep_evaluate_perf_param_t;

typedef struct {
    uint64_t field_mask;   /**< which to fill; bits of ucp_ep_perf_attr_field_t */
    double estimated_time; /**< of one message, one way, seconds */
} ucp_ep_evaluate_perf_attr_t;

/** Fields of ucp_ep_attr_t. */
enum ucp_ep_attr_field {
    UCP_EP_ATTR_FIELD_NAME = UCS_BIT(0),
    UCP_EP_ATTR_FIELD_LOCAL_SOCKADDR = UCS_BIT(1),
    UCP_EP_ATTR_FIELD_REMOTE_SOCKADDR = UCS_BIT(2),
    UCP_EP_ATTR_FIELD_TRANSPORTS = UCS_BIT(3),
    UCP_EP_ATTR_FIELD_USER_DATA = UCS_BIT(4)
};

typedef struct ucp_ep_attr {
    uint64_t field_mask;                     /**< which to fill; bits of ucp_ep_attr_field */
    char name[UCP_ENTITY_NAME_MAX];          /**< zero terminated */
    struct sockaddr_storage local_sockaddr;  /**< of endpoints connected by socket address */
    struct sockaddr_storage remote_sockaddr; /**< likewise */
#ifdef SWIFTLANE_UCP_DEF_H_
    ucp_transports_t transports; /**< a snapshot: lanes change while traffic flows */
#else                            /* UCX's ucp_def.h came first; before 1.14 it has no such type */
    struct {
        void* entries;
        unsigned num_entries;
        size_t entry_size;
    } transports;
#endif
    void* user_data; /**< of ucp_ep_params_t; without it what the error handler is called with */
} ucp_ep_attr_t;

/**
 * Make an endpoint; traffic may start at once, before the peer knows of it.
 * @return UCS_OK, UCS_ERR_INVALID_PARAM, UCS_ERR_INVALID_ADDR (malformed address),
 *         UCS_ERR_UNREACHABLE (no transport in common), UCS_ERR_NO_MEMORY.
 */
ucs_status_t ucp_ep_create(ucp_worker_h worker, const ucp_ep_params_t* params, ucp_ep_h* ep_p);
/**
 * Close an endpoint, by default after a flush; the handle is not to be used again, whatever is
 * returned. The request ends when nothing of the endpoint is under way.
 */
ucs_status_ptr_t ucp_ep_close_nbx(ucp_ep_h ep, const ucp_request_param_t* param);
/** Complete when every operation started on the endpoint has ended here and at its target. */
ucs_status_ptr_t ucp_ep_flush_nbx(ucp_ep_h ep, const ucp_request_param_t* param);
/** @return UCS_OK, or UCS_ERR_NOT_CONNECTED for socket addresses that the endpoint has not. */
ucs_status_t ucp_ep_query(ucp_ep_h ep, ucp_ep_attr_t* attr);
/** Estimate from the cost of the lanes in use. @return UCS_OK or UCS_ERR_INVALID_PARAM. */
ucs_status_t ucp_ep_evaluate_perf(ucp_ep_h ep, const ucp_ep_evaluate_perf_param_t* param,
                                  ucp_ep_evaluate_perf_attr_t* attr);
/** Write lanes and protocol thresholds as text. */
void ucp_ep_print_info(ucp_ep_h ep, FILE* stream);

#pragma GCC visibility pop
END_C_DECLS

#endif
