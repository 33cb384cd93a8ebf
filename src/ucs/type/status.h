/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file status.h
 * Status codes of every function of the interface, and pointers that carry them.
 */
#ifndef UCS_TYPES_STATUS_H_
#define UCS_TYPES_STATUS_H_

#include "ucs/sys/compiler_def.h"

BEGIN_C_DECLS
#pragma GCC visibility push(default)

/**
 * What became of an operation: 0 done, positive under way, negative failed.
 *
 * One byte wide: the enumeration is packed, and programs keep it in their own structures. The codes
 * are grouped by what has to be replaced after the failure: -1 to -39 concern the operation alone,
 * -40 to -59 a link (an interface of this process), -60 to -89 an endpoint.
 */
typedef enum {
    UCS_OK = 0,         /**< done */
    UCS_INPROGRESS = 1, /**< accepted, completes later */

    UCS_ERR_NO_MESSAGE = -1,            /**< nothing has arrived that fits */
    UCS_ERR_NO_RESOURCE = -2,           /**< no room now, try again after progress */
    UCS_ERR_IO_ERROR = -3,              /**< the device or the system failed */
    UCS_ERR_NO_MEMORY = -4,             /**< memory allocation failed */
    UCS_ERR_INVALID_PARAM = -5,         /**< an argument breaks the function's contract */
    UCS_ERR_UNREACHABLE = -6,           /**< no transport leads to the destination */
    UCS_ERR_INVALID_ADDR = -7,          /**< malformed or unusable address */
    UCS_ERR_NOT_IMPLEMENTED = -8,       /**< the function does not exist here */
    UCS_ERR_MESSAGE_TRUNCATED = -9,     /**< the message was longer than the receive buffer */
    UCS_ERR_NO_PROGRESS = -10,          /**< nothing moved */
    UCS_ERR_BUFFER_TOO_SMALL = -11,     /**< the output does not fit into the given buffer */
    UCS_ERR_NO_ELEM = -12,              /**< no such element */
    UCS_ERR_SOME_CONNECTS_FAILED = -13, /**< part of a set of connections failed */
    UCS_ERR_NO_DEVICE = -14,            /**< no such device, or it is gone */
    UCS_ERR_BUSY = -15,                 /**< in use, or events are still to be consumed */
    UCS_ERR_CANCELED = -16,             /**< cancelled by the user or by closing its endpoint */
    UCS_ERR_SHMEM_SEGMENT = -17,        /**< a shared-memory segment could not be had */
    UCS_ERR_ALREADY_EXISTS = -18,       /**< the element is there already */
    UCS_ERR_OUT_OF_RANGE = -19,         /**< index or offset outside its range */
    UCS_ERR_TIMED_OUT = -20,            /**< the time allowed ran out */
    UCS_ERR_EXCEEDS_LIMIT = -21,        /**< a limit of the user, system or device is reached */
    UCS_ERR_UNSUPPORTED = -22,          /**< exists, but not for this object or argument */
    UCS_ERR_REJECTED = -23,             /**< the peer refused */
    UCS_ERR_NOT_CONNECTED = -24,        /**< the endpoint is not connected */
    UCS_ERR_CONNECTION_RESET = -25,     /**< the peer closed or lost the connection */

    UCS_ERR_FIRST_LINK_FAILURE = -40,
    UCS_ERR_LAST_LINK_FAILURE = -59,
    UCS_ERR_FIRST_ENDPOINT_FAILURE = -60,
    UCS_ERR_ENDPOINT_TIMEOUT = -80, /**< the peer did not answer in time */
    UCS_ERR_LAST_ENDPOINT_FAILURE = -89,

    UCS_ERR_LAST = -100 /**< below every code */
} UCS_S_PACKED ucs_status_t;

#define UCS_STATUS_IS_ERR(_status) ((_status) < 0)
#define UCS_IS_LINK_ERROR(_code) \
    (((_code) >= UCS_ERR_LAST_LINK_FAILURE) && ((_code) <= UCS_ERR_FIRST_LINK_FAILURE))
#define UCS_IS_ENDPOINT_ERROR(_code) \
    (((_code) >= UCS_ERR_LAST_ENDPOINT_FAILURE) && ((_code) <= UCS_ERR_FIRST_ENDPOINT_FAILURE))

/**
 * Result of a function that may complete at once, fail, or go on: NULL (UCS_OK), an error code cast
 * to a pointer (the last 100 addresses), or the handle of a request.
 */
typedef void* ucs_status_ptr_t;

#define UCS_STATUS_PTR(_status) ((void*)(intptr_t)(_status))
#define UCS_PTR_IS_ERR(_ptr) (((uintptr_t)(_ptr)) >= ((uintptr_t)UCS_ERR_LAST))
/** True of a request handle: neither NULL nor an error. */
#define UCS_PTR_IS_PTR(_ptr) (((uintptr_t)(_ptr)-1) < ((uintptr_t)UCS_ERR_LAST - 1))
#define UCS_PTR_RAW_STATUS(_ptr) ((ucs_status_t)(intptr_t)(_ptr))
/** The status that @a _ptr carries; UCS_INPROGRESS for a request handle. */
#define UCS_PTR_STATUS(_ptr) (UCS_PTR_IS_PTR(_ptr) ? UCS_INPROGRESS : UCS_PTR_RAW_STATUS(_ptr))

/**
 * UCX's words for a status code.
 *
 * @param status  Any value; values that no code has give "Unknown error <number>".
 * @return A string that is never NULL and is not freed. That of an unknown code lives in storage of
 *         the calling thread, until its next call. Safe from any thread.
 */
const char* ucs_status_string(ucs_status_t status);

#pragma GCC visibility pop
END_C_DECLS

#endif
