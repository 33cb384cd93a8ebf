/* SPDX-License-Identifier: BSD-3-Clause */
/** @file ucp_def.h Handles, basic types and callbacks that the rest of the interface shares. */
#ifndef UCP_DEF_H_
#define UCP_DEF_H_
#define SWIFTLANE_UCP_DEF_H_ /* not UCX's header of the same guard */

#include <stddef.h>
#include <stdint.h>

#include "ucs/config/types.h"
#include "ucs/memory/memory_type.h"
#include "ucs/type/status.h"

/* --- handles: opaque, made and released by the functions named here */

/** The library as one program uses it: configuration, devices, memory. ucp_init, ucp_cleanup. */
typedef struct ucp_context* ucp_context_h;
/** Settings read from the environment. ucp_config_read, ucp_config_release. */
typedef struct ucp_config ucp_config_t;
/** A progress engine with its own queues and address. ucp_worker_create, ucp_worker_destroy. */
typedef struct ucp_worker* ucp_worker_h;
/** A worker's address: bytes to be carried to peers. ucp_worker_get_address or ucp_worker_query. */
typedef struct ucp_address ucp_address_t;
/** The way from a worker to one remote worker. ucp_ep_create, ucp_ep_close_nbx. */
typedef struct ucp_ep* ucp_ep_h;
/** A socket address that accepts connections. ucp_listener_create, ucp_listener_destroy. */
typedef struct ucp_listener* ucp_listener_h;
/** A connection that waits to be accepted by ucp_ep_create or refused by ucp_listener_reject. */
typedef struct ucp_conn_request* ucp_conn_request_h;
/** Memory known to the devices of a context. ucp_mem_map, ucp_mem_unmap. */
typedef struct ucp_mem* ucp_mem_h;
/** The right to access memory of a peer. ucp_ep_rkey_unpack, ucp_rkey_destroy. */
typedef struct ucp_rkey* ucp_rkey_h;
/** A message taken out of the matching queue by ucp_tag_probe_nb, for ucp_tag_msg_recv_nbx. */
typedef struct ucp_recv_desc* ucp_tag_message_h;
/** Memory of this process, as kernels of a device find it. ucp_device_local_mem_list_create. */
typedef struct ucp_device_local_mem_list* ucp_device_local_mem_list_h;
/** Memory of peers, as kernels of a device find it. ucp_device_remote_mem_list_create. */
typedef struct ucp_device_remote_mem_list* ucp_device_remote_mem_list_h;

/** Bits that a sender gives a message, and a receiver compares under a mask. */
typedef uint64_t ucp_tag_t;
/** Layout of a buffer: ucp_dt_make_contig, ucp_dt_make_iov or ucp_dt_create_generic. */
typedef uint64_t ucp_datatype_t;

/** Size of the name of a context, worker or endpoint in bytes, terminating zero included. */
#define UCP_ENTITY_NAME_MAX 32

typedef struct ucp_tag_recv_info ucp_tag_recv_info_t;
typedef struct ucp_am_recv_param ucp_am_recv_param_t;

/** In place of a remote address and a key where a list has them: ucp_dt_remote_sgl_t. */
#define UCP_REMOTE_ADDR_INVALID UINT64_MAX
#define UCP_RKEY_INVALID NULL

/** What an endpoint promises when its peer or the way to it fails. */
typedef enum {
    UCP_ERR_HANDLING_MODE_NONE,    /**< nothing is promised; the error callback is not called */
    UCP_ERR_HANDLING_MODE_PEER,    /**< every operation completes, if need be with an error */
    UCP_ERR_HANDLING_MODE_FAILOVER /**< as PEER, which goes on over another way as well */
} ucp_err_handling_mode_t;

/* --- callbacks: called from within the library, mostly from ucp_worker_progress. They may start
 *     operations and free requests, and must not call ucp_worker_progress. */

/** Prepare or take down the user's part of a request: once for the memory, not for each use. */
typedef void (*ucp_request_init_callback_t)(void* request);
typedef void (*ucp_request_cleanup_callback_t)(void* request);

/** An operation ended with @a status; not called for operations that ended within their call. */
typedef void (*ucp_send_callback_t)(void* request, ucs_status_t status);
typedef void (*ucp_send_nbx_callback_t)(void* request, ucs_status_t status, void* user_data);

/** A tagged receive ended; @a info holds sender tag and length and lives until the return. */
typedef void (*ucp_tag_recv_callback_t)(void* request, ucs_status_t status,
                                        ucp_tag_recv_info_t* info);
typedef void (*ucp_tag_recv_nbx_callback_t)(void* request, ucs_status_t status,
                                            const ucp_tag_recv_info_t* tag_info, void* user_data);

/** A stream receive ended with @a length bytes, a multiple of the datatype's size. */
typedef void (*ucp_stream_recv_callback_t)(void* request, ucs_status_t status, size_t length);
typedef void (*ucp_stream_recv_nbx_callback_t)(void* request, ucs_status_t status, size_t length,
                                               void* user_data);

/** The data of an active message, @a length bytes, arrived in the buffer given for it. */
typedef void (*ucp_am_recv_data_nbx_callback_t)(void* request, ucs_status_t status, size_t length,
                                                void* user_data);

/**
 * An active message of ucp_am_send_nb arrived.
 * @param reply_ep  Endpoint back to the sender if it asked for one, else NULL.
 * @param flags     UCP_CB_PARAM_FLAG_DATA if the data may be kept.
 * @return UCS_OK, or UCS_INPROGRESS to keep the data until ucp_am_data_release.
 */
typedef ucs_status_t (*ucp_am_callback_t)(void* arg, void* data, size_t length, ucp_ep_h reply_ep,
                                          unsigned flags);

/**
 * An active message of ucp_am_send_nbx arrived.
 * @param header  @a header_length bytes, valid until the return; not to be touched if that is 0.
 * @param data    The data, or with UCP_AM_RECV_ATTR_FLAG_RNDV a descriptor for
 *                ucp_am_recv_data_nbx of data yet to be fetched, @a length bytes long.
 * @return UCS_OK: done with the data (a descriptor for which no receive was started is dropped, and
 *         the send completes). UCS_INPROGRESS: allowed with UCP_AM_RECV_ATTR_FLAG_DATA or _RNDV,
 * the data is kept until ucp_am_data_release, or its receive has been started. An error: allowed
 *         with _RNDV, the send completes with it.
 */
typedef ucs_status_t (*ucp_am_recv_callback_t)(void* arg, const void* header, size_t header_length,
                                               void* data, size_t length,
                                               const ucp_am_recv_param_t* param);

/** An endpoint failed: it takes no more operations and is still to be closed. Called once. */
typedef void (*ucp_err_handler_cb_t)(void* arg, ucp_ep_h ep, ucs_status_t status);

typedef struct ucp_err_handler {
    ucp_err_handler_cb_t cb; /**< NULL for none */
    void* arg;               /**< first argument, unless the endpoint has user data */
} ucp_err_handler_t;

/** A listener made an endpoint to a client; the callee owns it. */
typedef void (*ucp_listener_accept_callback_t)(ucp_ep_h ep, void* arg);
/** A client asks for a connection; the callee accepts or rejects it, now or later. */
typedef void (*ucp_listener_conn_callback_t)(ucp_conn_request_h conn_request, void* arg);

typedef struct ucp_listener_conn_handler {
    ucp_listener_conn_callback_t cb;
    void* arg;
} ucp_listener_conn_handler_t;

/* --- structures that the headers of several subjects need */

/** Events that make the file descriptor of a worker readable; bits to be combined. */
typedef enum ucp_wakeup_event_types {
    UCP_WAKEUP_RMA = UCS_BIT(0),      /**< a put or get ended */
    UCP_WAKEUP_AMO = UCS_BIT(1),      /**< an atomic operation ended */
    UCP_WAKEUP_TAG_SEND = UCS_BIT(2), /**< a tagged send ended */
    UCP_WAKEUP_TAG_RECV = UCS_BIT(3), /**< a tagged receive ended */
    UCP_WAKEUP_TX = UCS_BIT(10),      /**< anything outgoing went on */
    UCP_WAKEUP_RX = UCS_BIT(11),      /**< anything incoming went on */
    UCP_WAKEUP_EDGE = UCS_BIT(16)     /**< only what is new since the last look */
} ucp_wakeup_event_t;

/** Fields of ucp_mem_attr_t. */
enum ucp_mem_attr_field {
    UCP_MEM_ATTR_FIELD_ADDRESS = UCS_BIT(0),
    UCP_MEM_ATTR_FIELD_LENGTH = UCS_BIT(1),
    UCP_MEM_ATTR_FIELD_MEM_TYPE = UCS_BIT(2)
};

/** Filled by ucp_mem_query. */
typedef struct ucp_mem_attr {
    uint64_t field_mask;        /**< which to fill; bits of ucp_mem_attr_field */
    void* address;              /**< first byte */
    size_t length;              /**< size in bytes */
    ucs_memory_type_t mem_type; /**< kind */
} ucp_mem_attr_t;

/**
 * What ucp_ep_create connects to and how. Exactly one of address, sockaddr (client) and
 * conn_request (server) must be given; bits of ucp_ep_params_field in field_mask say which fields
 * count.
 */
typedef struct ucp_ep_params {
    uint64_t field_mask;
    const ucp_address_t* address;     /**< the remote worker's; read during the call only */
    ucp_err_handling_mode_t err_mode; /**< default: UCP_ERR_HANDLING_MODE_NONE */
    ucp_err_handler_t err_handler;    /**< default: none */
    void* user_data;                  /**< first argument of the error callback, and in polls */
    unsigned flags;                   /**< bits of ucp_ep_params_flags_field; default 0 */
    ucs_sock_addr_t sockaddr;         /**< a listener's; with UCP_EP_PARAMS_FLAGS_CLIENT_SERVER */
    ucp_conn_request_h conn_request;  /**< a client's; consumed, also on failure */
    const char* name;                 /**< for messages; default: made by the library */
    ucs_sock_addr_t local_sockaddr;   /**< where to connect from; default: any */
} ucp_ep_params_t;

/** A transport and the device it uses; strings live as long as the endpoint asked. */
typedef struct {
    const char* transport_name;
    const char* device_name;
} ucp_transport_entry_t;

/** An array that the caller of ucp_ep_query provides and owns. */
typedef struct {
    ucp_transport_entry_t* entries; /**< room for the answer */
    unsigned num_entries;           /**< in: room, out: entries filled */
    size_t entry_size;              /**< size of an entry as the caller was compiled, in bytes */
} ucp_transports_t;

#endif
