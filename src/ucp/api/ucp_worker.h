/* SPDX-License-Identifier: BSD-3-Clause */
/** @file ucp_worker.h Workers: progress, addresses, sleeping, fence and flush. */
#ifndef SWIFTLANE_UCP_WORKER_H_
#define SWIFTLANE_UCP_WORKER_H_

#include <stdio.h>

#include "ucp/api/ucp_def.h"
#include "ucp/api/ucp_request.h"
#include "ucs/type/cpu_set.h"
#include "ucs/type/thread_mode.h"

BEGIN_C_DECLS
#pragma GCC visibility push(default)

/** Fields of ucp_worker_params_t. */
enum ucp_worker_params_field {
    UCP_WORKER_PARAM_FIELD_THREAD_MODE = UCS_BIT(0),
    UCP_WORKER_PARAM_FIELD_CPU_MASK = UCS_BIT(1),
    UCP_WORKER_PARAM_FIELD_EVENTS = UCS_BIT(2),
    UCP_WORKER_PARAM_FIELD_USER_DATA = UCS_BIT(3),
    UCP_WORKER_PARAM_FIELD_EVENT_FD = UCS_BIT(4),
    UCP_WORKER_PARAM_FIELD_FLAGS = UCS_BIT(5),
    UCP_WORKER_PARAM_FIELD_NAME = UCS_BIT(6),
    UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT = UCS_BIT(7),
    UCP_WORKER_PARAM_FIELD_CLIENT_ID = UCS_BIT(8)
};

typedef enum {
    UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK = UCS_BIT(0) /**< no warning of requests left at the end */
} ucp_worker_flags_t;

typedef struct ucp_worker_params {
    uint64_t field_mask;           /**< bits of ucp_worker_params_field */
    ucs_thread_mode_t thread_mode; /**< wanted; default UCS_THREAD_MODE_SINGLE */
    ucs_cpu_set_t cpu_mask;        /**< processors to be near; default: the system decides */
    unsigned events;               /**< bits of ucp_wakeup_event_t to wake up for; default: all.
                                        The worker may wake up for others as well. */
    void* user_data;               /**< what an event set of the caller is to report */
    int event_fd;                  /**< an epoll descriptor of the caller to be used for events */
    uint64_t flags;                /**< bits of ucp_worker_flags_t */
    const char* name;              /**< for messages; default: made by the library */
    size_t am_alignment;           /**< of active-message data handed out, bytes, a power of two */
    uint64_t client_id;            /**< sent with UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID */
} ucp_worker_params_t;

/** Fields of ucp_worker_attr_t. */
enum ucp_worker_attr_field {
    UCP_WORKER_ATTR_FIELD_THREAD_MODE = UCS_BIT(0),
    UCP_WORKER_ATTR_FIELD_ADDRESS = UCS_BIT(1), /**< address and address_length */
    UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS = UCS_BIT(2),
    UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER = UCS_BIT(3),
    UCP_WORKER_ATTR_FIELD_NAME = UCS_BIT(4),
    UCP_WORKER_ATTR_FIELD_MAX_INFO_STRING = UCS_BIT(5)
};

typedef enum {
    UCP_WORKER_ADDRESS_FLAG_NET_ONLY = UCS_BIT(0) /**< no transports that stay inside a host */
} ucp_worker_address_flags_t;

typedef struct ucp_worker_attr {
    uint64_t field_mask;            /**< which to fill; bits of ucp_worker_attr_field */
    ucs_thread_mode_t thread_mode;  /**< granted; may be less than was wanted */
    uint32_t address_flags;         /**< in: bits of ucp_worker_address_flags_t */
    ucp_address_t* address;         /**< for ucp_worker_release_address */
    size_t address_length;          /**< bytes */
    size_t max_am_header;           /**< longest header of an active message, bytes */
    char name[UCP_ENTITY_NAME_MAX]; /**< zero terminated */
    size_t max_debug_string;        /**< longest text that ucp_request_query writes, bytes */
} ucp_worker_attr_t;

enum ucp_worker_address_attr_field { UCP_WORKER_ADDRESS_ATTR_FIELD_UID = UCS_BIT(0) };

typedef struct ucp_worker_address_attr {
    uint64_t field_mask; /**< which to fill; bits of ucp_worker_address_attr_field */
    uint64_t worker_uid; /**< the same for every address of one worker */
} ucp_worker_address_attr_t;

/**
 * Make a worker.
 * @return UCS_OK, UCS_ERR_INVALID_PARAM, UCS_ERR_NO_MEMORY, or what a device reports. Threads may
 *         make workers of one context at once if it has mt_workers_shared.
 */
ucs_status_t ucp_worker_create(ucp_context_h context, const ucp_worker_params_t* params,
                               ucp_worker_h* worker_p);
/** Release a worker and what endpoints it still has, without a word to their peers. */
void ucp_worker_destroy(ucp_worker_h worker);
/** @return UCS_OK, or UCS_ERR_NO_MEMORY for an address. */
ucs_status_t ucp_worker_query(ucp_worker_h worker, ucp_worker_attr_t* attr);
/** Write the transports, their use and their costs as text. */
void ucp_worker_print_info(ucp_worker_h worker, FILE* stream);

/** The address for ucp_ep_create elsewhere: plain bytes, the same on every machine. */
ucs_status_t ucp_worker_get_address(ucp_worker_h worker, ucp_address_t** address_p,
                                    size_t* address_length_p);
/** Release what ucp_worker_get_address gave. */
void ucp_worker_release_address(ucp_worker_h worker, ucp_address_t* address);
/** Look into an address, own or foreign. @return UCS_OK or UCS_ERR_INVALID_ADDR. Any thread. */
ucs_status_t ucp_worker_address_query(ucp_address_t* address, ucp_worker_address_attr_t* attr);

/**
 * Move everything on: send what waits, receive, complete, call back, negotiate lanes.
 * Must not be called from a callback. @return 0 if nothing happened.
 */
unsigned ucp_worker_progress(ucp_worker_h worker);

/* --- sleeping: contexts with UCP_FEATURE_WAKEUP. Transports that can wake nobody are left out of
 *     such contexts. What is due at a time (keep-alive, lanes) wakes as well. */

/** A descriptor for poll or epoll, owned by the worker; use it after ucp_worker_arm gave UCS_OK. */
ucs_status_t ucp_worker_get_efd(ucp_worker_h worker, int* fd);
/** @return UCS_OK: sleep now. UCS_ERR_BUSY: something is there already, progress first. */
ucs_status_t ucp_worker_arm(ucp_worker_h worker);
/** Sleep until an event of the worker's events or ucp_worker_signal. */
ucs_status_t ucp_worker_wait(ucp_worker_h worker);
/** Sleep until something happens or the cache line at @a address may have changed. */
void ucp_worker_wait_mem(ucp_worker_h worker, void* address);
/** Wake a sleeper. Any thread, in every thread mode. */
ucs_status_t ucp_worker_signal(ucp_worker_h worker);

/* --- order and completion of one-sided operations */

/**
 * Operations started later on an endpoint take effect after those started before, on each endpoint
 * of the worker. Does not wait. @return UCS_OK or the error of a failed lane.
 */
ucs_status_t ucp_worker_fence(ucp_worker_h worker);
/**
 * Complete when every operation that the program has started on the worker has ended here and at
 * its target. What the library answers peers by itself is not waited for.
 */
ucs_status_ptr_t ucp_worker_flush_nbx(ucp_worker_h worker, const ucp_request_param_t* param);

#pragma GCC visibility pop
END_C_DECLS

#endif
