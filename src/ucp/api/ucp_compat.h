/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file ucp_compat.h
 * Older forms of functions, kept for programs that use them; new code takes the _nbx forms.
 *
 * Functions ending in _nb return as the _nbx forms do, with default parameters. Two of them,
 * ucp_tag_recv_nb and ucp_tag_msg_recv_nb, never return NULL: their callback is called in any case,
 * before the return if the receive ended within the call. Functions ending in _nbr keep their state
 * before the user's memory @a req and return UCS_OK, UCS_INPROGRESS (see ucp_request_check_status)
 * or an error. Functions without such an ending progress the worker until they are done.
 */
#ifndef UCP_COMPAT_H_
#define UCP_COMPAT_H_
#define SWIFTLANE_UCP_COMPAT_H_ /* not UCX's header of the same guard */

#include "ucp/api/ucp_def.h"

BEGIN_C_DECLS
#pragma GCC visibility push(default)

typedef struct ucp_listener_accept_handler {
    ucp_listener_accept_callback_t cb;
    void* arg;
} ucp_listener_accept_handler_t;

/* --- requests */

/** @return Non-zero if the operation ended. */
int ucp_request_is_completed(void* request);
/**
 * Give a request back; an operation under way goes on, and unlike after ucp_request_free its
 * callback is still called.
 */
void ucp_request_release(void* request);
/** As ucp_tag_recv_request_test. */
ucs_status_t ucp_request_test(void* request, ucp_tag_recv_info_t* info);

/* --- endpoints and workers */

/** Flush, close, and wait for it. */
void ucp_ep_destroy(ucp_ep_h ep);
/** As ucp_ep_close_nb with UCP_EP_CLOSE_MODE_FLUSH. */
ucs_status_ptr_t ucp_disconnect_nb(ucp_ep_h ep);
/** @param mode  One of ucp_ep_close_mode. */
ucs_status_ptr_t ucp_ep_close_nb(ucp_ep_h ep, unsigned mode);
/** Change error handler and user data of an endpoint; nothing else can be changed. */
ucs_status_ptr_t ucp_ep_modify_nb(ucp_ep_h ep, const ucp_ep_params_t* params);
/** As ucp_ep_flush_nbx, and wait for it. */
ucs_status_t ucp_ep_flush(ucp_ep_h ep);
/** @param flags  None yet: 0. */
ucs_status_ptr_t ucp_ep_flush_nb(ucp_ep_h ep, unsigned flags, ucp_send_callback_t cb);
/** As ucp_worker_flush_nbx, and wait for it. */
ucs_status_t ucp_worker_flush(ucp_worker_h worker);
/** As ucp_worker_flush_nbx. @param flags  None yet: 0. */
ucs_status_ptr_t ucp_worker_flush_nb(ucp_worker_h worker, unsigned flags, ucp_send_callback_t cb);

/* --- remote keys */

/** As ucp_memh_pack without flags; released by ucp_rkey_buffer_release. */
ucs_status_t ucp_rkey_pack(ucp_context_h context, ucp_mem_h memh, void** rkey_buffer_p,
                           size_t* size_p);
/** Release what ucp_rkey_pack gave. */
void ucp_rkey_buffer_release(void* rkey_buffer);

/* --- tagged messages */

/** As ucp_tag_send_nbx. */
ucs_status_ptr_t ucp_tag_send_nb(ucp_ep_h ep, const void* buffer, size_t count,
                                 ucp_datatype_t datatype, ucp_tag_t tag, ucp_send_callback_t cb);
/** As ucp_tag_send_nbx, in the caller's request. @return UCS_OK: done, the request is not used. */
ucs_status_t ucp_tag_send_nbr(ucp_ep_h ep, const void* buffer, size_t count,
                              ucp_datatype_t datatype, ucp_tag_t tag, void* req);
/** As ucp_tag_send_sync_nbx. */
ucs_status_ptr_t ucp_tag_send_sync_nb(ucp_ep_h ep, const void* buffer, size_t count,
                                      ucp_datatype_t datatype, ucp_tag_t tag,
                                      ucp_send_callback_t cb);
/** As ucp_tag_recv_nbx. */
ucs_status_ptr_t ucp_tag_recv_nb(ucp_worker_h worker, void* buffer, size_t count,
                                 ucp_datatype_t datatype, ucp_tag_t tag, ucp_tag_t tag_mask,
                                 ucp_tag_recv_callback_t cb);
/** As ucp_tag_recv_nbx, in the caller's request. */
ucs_status_t ucp_tag_recv_nbr(ucp_worker_h worker, void* buffer, size_t count,
                              ucp_datatype_t datatype, ucp_tag_t tag, ucp_tag_t tag_mask,
                              void* req);
/** As ucp_tag_msg_recv_nbx. */
ucs_status_ptr_t ucp_tag_msg_recv_nb(ucp_worker_h worker, void* buffer, size_t count,
                                     ucp_datatype_t datatype, ucp_tag_message_h message,
                                     ucp_tag_recv_callback_t cb);

/* --- active messages: the receiver's handler must be set by ucp_worker_set_am_handler */

/** @param cb  NULL takes the handler away. @param flags  Bits of ucp_am_cb_flags. */
ucs_status_t ucp_worker_set_am_handler(ucp_worker_h worker, uint16_t id, ucp_am_callback_t cb,
                                       void* arg, uint32_t flags);
/** @param flags  Bits of ucp_send_am_flags. */
ucs_status_ptr_t ucp_am_send_nb(ucp_ep_h ep, uint16_t id, const void* buffer, size_t count,
                                ucp_datatype_t datatype, ucp_send_callback_t cb, unsigned flags);

/* --- streams */

/** @param flags  None yet: 0. */
ucs_status_ptr_t ucp_stream_send_nb(ucp_ep_h ep, const void* buffer, size_t count,
                                    ucp_datatype_t datatype, ucp_send_callback_t cb,
                                    unsigned flags);
/** @param flags  Bits of ucp_stream_recv_flags_t. */
ucs_status_ptr_t ucp_stream_recv_nb(ucp_ep_h ep, void* buffer, size_t count,
                                    ucp_datatype_t datatype, ucp_stream_recv_callback_t cb,
                                    size_t* length, unsigned flags);

/* --- one-sided operations: lengths in bytes, operands of 4 or 8 bytes */

/** As ucp_put_nbx, and wait for it. */
ucs_status_t ucp_put(ucp_ep_h ep, const void* buffer, size_t length, uint64_t remote_addr,
                     ucp_rkey_h rkey);
/** As ucp_get_nbx, and wait for it. */
ucs_status_t ucp_get(ucp_ep_h ep, void* buffer, size_t length, uint64_t remote_addr,
                     ucp_rkey_h rkey);
/** As ucp_put_nbx. */
ucs_status_ptr_t ucp_put_nb(ucp_ep_h ep, const void* buffer, size_t length, uint64_t remote_addr,
                            ucp_rkey_h rkey, ucp_send_callback_t cb);
/** As ucp_get_nbx. */
ucs_status_ptr_t ucp_get_nb(ucp_ep_h ep, void* buffer, size_t length, uint64_t remote_addr,
                            ucp_rkey_h rkey, ucp_send_callback_t cb);
/** Add at the peer, and wait for it. @return As ucp_atomic_op_nbx ends. */
ucs_status_t ucp_atomic_add32(ucp_ep_h ep, uint32_t add, uint64_t remote_addr, ucp_rkey_h rkey);
/** Add at the peer, and wait for it. @return As ucp_atomic_op_nbx ends. */
ucs_status_t ucp_atomic_add64(ucp_ep_h ep, uint64_t add, uint64_t remote_addr, ucp_rkey_h rkey);
/** Add at the peer, and wait for the value before. */
ucs_status_t ucp_atomic_fadd32(ucp_ep_h ep, uint32_t add, uint64_t remote_addr, ucp_rkey_h rkey,
                               uint32_t* result);
/** Add at the peer, and wait for the value before. */
ucs_status_t ucp_atomic_fadd64(ucp_ep_h ep, uint64_t add, uint64_t remote_addr, ucp_rkey_h rkey,
                               uint64_t* result);
/** Exchange at the peer, and wait for the value before. */
ucs_status_t ucp_atomic_swap32(ucp_ep_h ep, uint32_t swap, uint64_t remote_addr, ucp_rkey_h rkey,
                               uint32_t* result);
/** Exchange at the peer, and wait for the value before. */
ucs_status_t ucp_atomic_swap64(ucp_ep_h ep, uint64_t swap, uint64_t remote_addr, ucp_rkey_h rkey,
                               uint64_t* result);
/** Exchange at the peer if compare is there, and wait for the value before. */
ucs_status_t ucp_atomic_cswap32(ucp_ep_h ep, uint32_t compare, uint32_t swap, uint64_t remote_addr,
                                ucp_rkey_h rkey, uint32_t* result);
/** Exchange at the peer if compare is there, and wait for the value before. */
ucs_status_t ucp_atomic_cswap64(ucp_ep_h ep, uint64_t compare, uint64_t swap, uint64_t remote_addr,
                                ucp_rkey_h rkey, uint64_t* result);

#pragma GCC visibility pop
END_C_DECLS

#endif
