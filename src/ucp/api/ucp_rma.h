/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file ucp_rma.h
 * One-sided operations on memory of a peer: put, get, atomics. They end when the local buffer may
 * be used again (put) or holds the result (get, fetching atomics); a flush says that the target is
 * reached. No order among them but by ucp_worker_fence. A wrong key or range fails the endpoint.
 */
#ifndef SWIFTLANE_UCP_RMA_H_
#define SWIFTLANE_UCP_RMA_H_

#include "ucp/api/ucp_compat.h"
#include "ucp/api/ucp_def.h"
#include "ucp/api/ucp_request.h"

BEGIN_C_DECLS
#pragma GCC visibility push(default)

/** What an atomic operation with operand X makes of the target Y; the old Y is the reply. */
typedef enum {
    UCP_ATOMIC_OP_ADD,   /**< Y + X */
    UCP_ATOMIC_OP_SWAP,  /**< X */
    UCP_ATOMIC_OP_CSWAP, /**< the value in the reply buffer if Y == X, else Y */
    UCP_ATOMIC_OP_AND,   /**< Y & X */
    UCP_ATOMIC_OP_OR,    /**< Y | X */
    UCP_ATOMIC_OP_XOR,   /**< Y ^ X */
    UCP_ATOMIC_OP_LAST
} ucp_atomic_op_t;

/**
 * Write @a count elements to the peer's address. With the datatype ucp_dt_make_sgl() each of
 * @a count pieces has its own address and key; @a remote_addr and @a rkey are
 * UCP_REMOTE_ADDR_INVALID and UCP_RKEY_INVALID then.
 * @return As all _nbx functions; UCS_ERR_UNSUPPORTED for lists with repetitions.
 */
ucs_status_ptr_t ucp_put_nbx(ucp_ep_h ep, const void* buffer, size_t count, uint64_t remote_addr,
                             ucp_rkey_h rkey, const ucp_request_param_t* param);
/** Read @a count elements from the peer's address. Lists of pieces as with ucp_put_nbx. */
ucs_status_ptr_t ucp_get_nbx(ucp_ep_h ep, void* buffer, size_t count, uint64_t remote_addr,
                             ucp_rkey_h rkey, const ucp_request_param_t* param);
/** A put that nothing but a flush tells the end of. @return UCS_OK, UCS_INPROGRESS or an error. */
ucs_status_t ucp_put_nbi(ucp_ep_h ep, const void* buffer, size_t length, uint64_t remote_addr,
                         ucp_rkey_h rkey);
/** A get that nothing but a flush tells the end of. @return UCS_OK, UCS_INPROGRESS or an error. */
ucs_status_t ucp_get_nbi(ucp_ep_h ep, void* buffer, size_t length, uint64_t remote_addr,
                         ucp_rkey_h rkey);
/**
 * An atomic operation on one aligned integer of the peer.
 * @param buffer  The operand X.
 * @param count   1 element; the datatype must be given: contiguous, of 4 or 8 bytes.
 * @param param   With a reply buffer the operation fetches; SWAP and CSWAP must.
 */
ucs_status_ptr_t ucp_atomic_op_nbx(ucp_ep_h ep, ucp_atomic_op_t opcode, const void* buffer,
                                   size_t count, uint64_t remote_addr, ucp_rkey_h rkey,
                                   const ucp_request_param_t* param);

#ifdef SWIFTLANE_UCP_COMPAT_H_ /* else UCX's has been read, which declares these from 1.15 on */
/** Atomic operations without a reply, for ucp_atomic_post. */
typedef enum {
    UCP_ATOMIC_POST_OP_ADD,
    UCP_ATOMIC_POST_OP_AND,
    UCP_ATOMIC_POST_OP_OR,
    UCP_ATOMIC_POST_OP_XOR,
    UCP_ATOMIC_POST_OP_LAST
} ucp_atomic_post_op_t;

/** Atomic operations with a reply, for ucp_atomic_fetch_nb. */
typedef enum {
    UCP_ATOMIC_FETCH_OP_FADD,
    UCP_ATOMIC_FETCH_OP_SWAP,
    UCP_ATOMIC_FETCH_OP_CSWAP,
    UCP_ATOMIC_FETCH_OP_FAND,
    UCP_ATOMIC_FETCH_OP_FOR,
    UCP_ATOMIC_FETCH_OP_FXOR,
    UCP_ATOMIC_FETCH_OP_LAST
} ucp_atomic_fetch_op_t;

/** @return UCS_OK: posted, a flush tells the end; or an error. */
ucs_status_t ucp_atomic_post(ucp_ep_h ep, ucp_atomic_post_op_t opcode, uint64_t value,
                             size_t op_size, uint64_t remote_addr, ucp_rkey_h rkey);
/** @param result  Gets the old value; for CSWAP it holds the value to swap in. */
ucs_status_ptr_t ucp_atomic_fetch_nb(ucp_ep_h ep, ucp_atomic_fetch_op_t opcode, uint64_t value,
                                     void* result, size_t op_size, uint64_t remote_addr,
                                     ucp_rkey_h rkey, ucp_send_callback_t cb);
#endif

#pragma GCC visibility pop
END_C_DECLS

#endif
