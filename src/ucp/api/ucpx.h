/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file ucpx.h
 * What UCX's interface lacks: which lanes an endpoint has and why, counters of lane changes, a
 * callback on each change, and a way to ask for one (docs/design/lanes.md explains the terms);
 * transfers of many pieces as one request, with a notification of the peer (docs/bulk.md);
 * communication in the order of a CUDA stream (docs/gpu.md).
 *
 * Only this library has these functions: a program that must also run with UCX's own library looks
 * them up with dlsym, or declares them weak and tests them against NULL.
 *
 * Rules of ucp.h hold: field_mask says which fields of an attribute structure to fill, fields and
 * enumerators are only ever added at the end, and arrays of the caller carry the size of an entry
 * as the caller was compiled. Threads: as for the worker or endpoint asked. Nothing here waits or
 * progresses. A name, once given out, lives as long as the worker.
 */
#ifndef SWIFTLANE_UCPX_H_
#define SWIFTLANE_UCPX_H_

#include "ucp/api/ucp.h"

BEGIN_C_DECLS
#pragma GCC visibility push(default)

/** Raised when a program that was written for this file no longer does. */
#define UCPX_API_MAJOR 1
/** Raised when something is added. */
#define UCPX_API_MINOR 4
/** Of this file; of the library: ucpx_get_api_version. */
#define UCPX_API_VERSION UCP_VERSION(UCPX_API_MAJOR, UCPX_API_MINOR)

/** UCPX_API_VERSION of the library. Any thread. */
unsigned ucpx_get_api_version(void);

/* --- lanes */

/**
 * Where a link (an endpoint and its peer's) stands between its scalable and its dedicated lane.
 * From CREATING to RELEASING the link takes one of the worker's dedicated slots.
 */
typedef enum ucpx_lane_state {
    UCPX_LANE_STATE_SCALABLE = 0,    /**< scalable lane only */
    UCPX_LANE_STATE_REQUESTED = 1,   /**< this end asked the peer for a dedicated lane */
    UCPX_LANE_STATE_WITHDRAWING = 2, /**< it took that back, the answer is still due */
    UCPX_LANE_STATE_COMMITTED = 3,   /**< agreed; waits for a slot to come free */
    UCPX_LANE_STATE_CREATING = 4,    /**< dedicated lane being made */
    UCPX_LANE_STATE_CONNECTING = 5,  /**< made here, not yet connected */
    UCPX_LANE_STATE_READY = 6,       /**< can receive; the peer cannot yet */
    UCPX_LANE_STATE_SWITCHING = 7,   /**< messages move to the dedicated lane */
    UCPX_LANE_STATE_ESTABLISHED = 8, /**< both directions use the dedicated lane */
    UCPX_LANE_STATE_DEMOTING = 9,    /**< messages move back */
    UCPX_LANE_STATE_RELEASING = 10,  /**< dedicated lane being destroyed */
    UCPX_LANE_STATE_LAST
} ucpx_lane_state_t;

/** Why a link entered its state. */
typedef enum ucpx_lane_reason {
    UCPX_LANE_REASON_NONE = 0,       /**< nothing has happened yet */
    UCPX_LANE_REASON_HOT = 1,        /**< its rank earns a slot */
    UCPX_LANE_REASON_ASKED = 2,      /**< the peer asked, and it ranks high enough here too */
    UCPX_LANE_REASON_OUTRANKED = 3,  /**< a hotter link took, or kept, the slot */
    UCPX_LANE_REASON_BUSY = 4,       /**< denied: the peer had no slot to decide about */
    UCPX_LANE_REASON_REFUSED = 5,    /**< denied: the peer takes none, as things stand */
    UCPX_LANE_REASON_COLD = 6,       /**< its score fell below what a slot is worth */
    UCPX_LANE_REASON_PEER = 7,       /**< the peer demoted it or took its request back */
    UCPX_LANE_REASON_POLICY = 8,     /**< ucpx_ep_lanes_request */
    UCPX_LANE_REASON_CLOSING = 9,    /**< endpoint or worker closes */
    UCPX_LANE_REASON_NO_LANE = 10,   /**< a dedicated lane could not be made or connected */
    UCPX_LANE_REASON_NO_ANSWER = 11, /**< the peer did not answer the request */
    UCPX_LANE_REASON_FAILED = 12,    /**< the dedicated lane failed */
    UCPX_LANE_REASON_DIED = 13,      /**< the peer died */
    UCPX_LANE_REASON_PROGRESS = 14,  /**< the next step of what was agreed */
    UCPX_LANE_REASON_FULL = 15, /**< no room on the lane for long: the peer makes no progress */
    UCPX_LANE_REASON_LAST
} ucpx_lane_reason_t;

/** What ucpx_ep_lanes_request asks for. */
typedef enum ucpx_lane_policy {
    UCPX_LANE_POLICY_AUTO = 0,      /**< traffic decides */
    UCPX_LANE_POLICY_DEDICATED = 1, /**< rank above every measured link */
    UCPX_LANE_POLICY_SCALABLE = 2,  /**< give a dedicated lane back and take none */
    UCPX_LANE_POLICY_LAST
} ucpx_lane_policy_t;

/** A static name ("established"); "unknown" for other values. Any thread. */
const char* ucpx_lane_state_string(ucpx_lane_state_t state);
/** A static name ("hot"); "unknown" for other values. Any thread. */
const char* ucpx_lane_reason_string(ucpx_lane_reason_t reason);
/** A static name ("auto"); "unknown" for other values. Any thread. */
const char* ucpx_lane_policy_string(ucpx_lane_policy_t policy);

/** The two kinds of lanes that an endpoint may have. */
typedef enum ucpx_lane_kind {
    UCPX_LANE_KIND_SCALABLE = 0, /**< its state does not grow with the number of peers */
    UCPX_LANE_KIND_DEDICATED = 1 /**< made for this one peer, limited in number */
} ucpx_lane_kind_t;

/** What a lane carries at the moment; bits to be combined. */
enum ucpx_lane_role {
    UCPX_LANE_ROLE_AM = UCS_BIT(0),     /**< messages: tagged, active, streams */
    UCPX_LANE_ROLE_RMA = UCS_BIT(1),    /**< put and get */
    UCPX_LANE_ROLE_AMO = UCS_BIT(2),    /**< atomic operations */
    UCPX_LANE_ROLE_BULK = UCS_BIT(3),   /**< data of large messages */
    UCPX_LANE_ROLE_CONTROL = UCS_BIT(4) /**< negotiation */
};

/** One lane of an endpoint. */
typedef struct ucpx_lane {
    const char* transport_name; /**< for instance "dc_mlx5" */
    const char* device_name;    /**< for instance "mlx5_0:1" */
    ucpx_lane_kind_t kind;      /**< scalable or dedicated */
    unsigned roles;             /**< bits of ucpx_lane_role; 0: being made, or taken down */
} ucpx_lane_t;

/** An array that the caller provides and owns; NULL entries and 0 just count. */
typedef struct ucpx_lanes {
    ucpx_lane_t* entries; /**< filled as far as there is room */
    unsigned num_entries; /**< in: room; out: how many there are, maybe more than were filled */
    size_t entry_size;    /**< sizeof(ucpx_lane_t) */
} ucpx_lanes_t;

/* --- endpoints */

/** Fields of ucpx_ep_attr_t. */
enum ucpx_ep_attr_field {
    UCPX_EP_ATTR_FIELD_PEER_UID = UCS_BIT(0),
    UCPX_EP_ATTR_FIELD_ADAPTIVE = UCS_BIT(1),
    UCPX_EP_ATTR_FIELD_STATE = UCS_BIT(2), /**< state, reason and state_age */
    UCPX_EP_ATTR_FIELD_POLICY = UCS_BIT(3),
    UCPX_EP_ATTR_FIELD_SCORES = UCS_BIT(4),   /**< local, advertised, remote and agreed score */
    UCPX_EP_ATTR_FIELD_COUNTERS = UCS_BIT(5), /**< promotions, demotions and denials */
    UCPX_EP_ATTR_FIELD_LANES = UCS_BIT(6)
};

/**
 * Scores are what a dedicated lane saves, in nanoseconds a second; a pinned score
 * (UCPX_LANE_POLICY_DEDICATED at either end) is 2^60. Both ends hold the same agreed score once
 * their messages have landed.
 */
typedef struct ucpx_ep_attr {
    uint64_t field_mask;       /**< which to fill; bits of ucpx_ep_attr_field */
    uint64_t peer_uid;         /**< the remote worker's, as ucp_worker_address_query tells it */
    int adaptive;              /**< 0: has no dedicated lane to go to, whatever its heat */
    ucpx_lane_state_t state;   /**< now */
    ucpx_lane_reason_t reason; /**< why */
    double state_age;          /**< seconds since it entered the state */
    ucpx_lane_policy_t policy; /**< as last asked for on this side */
    uint64_t local_score;      /**< as measured here last */
    uint64_t advertised_score; /**< the local score as the peer knows it */
    uint64_t remote_score;     /**< the peer's, as it advertised it */
    uint64_t agreed_score;     /**< the sum: what links are ranked by */
    uint64_t promotions;       /**< times it became established */
    uint64_t demotions;        /**< times it left the dedicated lane */
    uint64_t denials;   /**< requests of this end that the peer denied, since the last grant */
    ucpx_lanes_t lanes; /**< a snapshot: lanes change while traffic flows */
} ucpx_ep_attr_t;

/**
 * Lanes, state and scores of an endpoint.
 * @return UCS_OK, or UCS_ERR_INVALID_PARAM (lanes without entry_size). Also for failed endpoints.
 */
ucs_status_t ucpx_ep_query(ucp_ep_h ep, ucpx_ep_attr_t* attr);

/**
 * Ask for a lane now instead of waiting for measurements. The request goes through the negotiation
 * that measured heat goes through: the peer may deny it, caps hold, a pinned link gives way to
 * nothing but another pinned one, and traffic may flow all the while. The lane callback, or
 * ucpx_ep_query, tells how it went. The policy stays until another is asked for.
 *
 * @return UCS_OK: the policy is set. UCS_ERR_UNSUPPORTED: the endpoint is not adaptive (no
 * transport for dedicated lanes in common, lane switching turned off, or a second endpoint to the
 * same peer). UCS_ERR_INVALID_PARAM: no such policy. The error of an endpoint that failed.
 */
ucs_status_t ucpx_ep_lanes_request(ucp_ep_h ep, ucpx_lane_policy_t policy);

/** The greatest weight of an endpoint. */
#define UCPX_LANE_MAX_WEIGHT 1e6

/**
 * Say how much the traffic of an endpoint matters, as a runtime that knows its neighbours can: the
 * score that this end measures is multiplied by it from now on. Traffic must be there: the weight
 * is no request for a lane.
 *
 * @param weight  1 at first; 0: this end's traffic earns no dedicated lane; at most
 *                UCPX_LANE_MAX_WEIGHT
 * @return UCS_OK. UCS_ERR_INVALID_PARAM: negative, above the greatest, or no number.
 * UCS_ERR_UNSUPPORTED: the endpoint is not adaptive. The error of an endpoint that failed.
 */
ucs_status_t ucpx_ep_lanes_weight(ucp_ep_h ep, double weight);

/* --- workers */

/** One link the worker keeps book of. */
typedef struct ucpx_link {
    uint64_t peer_uid;         /**< the remote worker's */
    ucp_ep_h ep;               /**< NULL if the program made none to this peer */
    ucpx_lane_state_t state;   /**< now */
    ucpx_lane_reason_t reason; /**< why */
    uint64_t advertised_score; /**< the local score as the peer knows it */
    uint64_t remote_score;     /**< the peer's, as it advertised it */
} ucpx_link_t;

/** An array that the caller provides and owns; NULL entries and 0 just count. */
typedef struct ucpx_links {
    ucpx_link_t* entries; /**< filled in falling order of agreed score */
    unsigned num_entries; /**< in: room; out: how many there are, maybe more than were filled */
    size_t entry_size;    /**< sizeof(ucpx_link_t) */
} ucpx_links_t;

/** Fields of ucpx_worker_attr_t. */
enum ucpx_worker_attr_field {
    UCPX_WORKER_ATTR_FIELD_UID = UCS_BIT(0),
    UCPX_WORKER_ATTR_FIELD_SLOTS = UCS_BIT(1), /**< cap, dedicated, dedicated_peak, established */
    UCPX_WORKER_ATTR_FIELD_SWITCHES = UCS_BIT(2),    /**< promotions, demotions, replays, held */
    UCPX_WORKER_ATTR_FIELD_NEGOTIATION = UCS_BIT(3), /**< requests to violations */
    UCPX_WORKER_ATTR_FIELD_TRACKER = UCS_BIT(4),     /**< interval, windows, samples, memory */
    UCPX_WORKER_ATTR_FIELD_ADMISSION = UCS_BIT(5),   /**< admission_score */
    UCPX_WORKER_ATTR_FIELD_LINKS = UCS_BIT(6),
    UCPX_WORKER_ATTR_FIELD_KEPT = UCS_BIT(7), /**< lanes_reused, kept */
    UCPX_WORKER_ATTR_FIELD_IDLE = UCS_BIT(8)
};

/** Counters run from the worker's creation and never go back. */
typedef struct ucpx_worker_attr {
    uint64_t field_mask; /**< which to fill; bits of ucpx_worker_attr_field */
    uint64_t uid;        /**< of the worker, as peers see it */

    unsigned cap;            /**< lanes allowed, over adapters and within the host; 0: off */
    unsigned dedicated;      /**< held now, those coming up and going down included */
    unsigned dedicated_peak; /**< most ever held at a time: never above cap */
    unsigned established;    /**< in full use now */

    uint64_t promotions; /**< links that became established */
    uint64_t demotions;  /**< links that left their dedicated lane, other than by failure */
    uint64_t replays;    /**< operations that waited on one lane and were sent on the other */
    uint64_t held;       /**< messages that came early on a dedicated lane and were held back */

    uint64_t requests;         /**< sent to peers */
    uint64_t denials_sent;     /**< requests of peers denied here */
    uint64_t denials_received; /**< own requests denied by peers */
    uint64_t deferrals;        /**< requests of peers whose answer had to wait for an own one */
    uint64_t withdrawals;      /**< own requests taken back */
    uint64_t pings;            /**< sent to peers that kept this end waiting */
    uint64_t failures;         /**< dedicated lanes that failed under traffic */
    uint64_t violations;       /**< messages that no correct peer sends, dropped */

    double tracker_interval;  /**< seconds from ranking to ranking; infinity: off */
    uint64_t tracker_windows; /**< sampling windows opened */
    uint64_t tracker_samples; /**< operations counted in them */
    uint64_t tracker_memory;  /**< bytes; does not depend on the number of endpoints */

    uint64_t admission_score; /**< what a link needs for a free slot, over adapters */
    ucpx_links_t links;       /**< all that the worker keeps book of */

    uint64_t lanes_reused; /**< promotions that took a kept lane back instead of making one */
    unsigned kept;         /**< lanes that both ends have left, still connected, beside the cap */

    /** Nanoseconds until progress has work that only time brings: 0 now, INT64_MAX never. */
    int64_t idle;
} ucpx_worker_attr_t;

/** @return UCS_OK, or UCS_ERR_INVALID_PARAM (links without entry_size). */
ucs_status_t ucpx_worker_query(ucp_worker_h worker, ucpx_worker_attr_t* attr);

/** Fields of ucpx_lane_event_t; all known to the library are set. */
enum ucpx_lane_event_field {
    UCPX_LANE_EVENT_FIELD_EP = UCS_BIT(0),
    UCPX_LANE_EVENT_FIELD_PEER_UID = UCS_BIT(1),
    UCPX_LANE_EVENT_FIELD_STATES = UCS_BIT(2), /**< old_state and new_state */
    UCPX_LANE_EVENT_FIELD_REASON = UCS_BIT(3),
    UCPX_LANE_EVENT_FIELD_SCORE = UCS_BIT(4)
};

/** One change of state of one link. */
typedef struct ucpx_lane_event {
    uint64_t field_mask;         /**< which are filled; bits of ucpx_lane_event_field */
    ucp_ep_h ep;                 /**< NULL if the program made no endpoint to this peer */
    uint64_t peer_uid;           /**< the remote worker's */
    ucpx_lane_state_t old_state; /**< the state that it left */
    ucpx_lane_state_t new_state; /**< may equal the old one: only the reason is new, a denial say */
    ucpx_lane_reason_t reason;   /**< why it entered the new one */
    uint64_t score;              /**< agreed, when it happened */
} ucpx_lane_event_t;

/**
 * Called from ucp_worker_progress, or from the call of this interface that caused the change, after
 * the change took effect. Events of one link come in order. May query and start operations; must
 * not progress, destroy the worker or close the endpoint. @param event  Valid until the return.
 */
typedef void (*ucpx_lane_callback_t)(void* arg, const ucpx_lane_event_t* event);

/**
 * Set the one callback of a worker for changes from now on.
 * @param cb  NULL: none, as at first.
 * @return UCS_OK.
 */
ucs_status_t ucpx_worker_set_lane_callback(ucp_worker_h worker, ucpx_lane_callback_t cb, void* arg);

/* --- the choice of lanes */

/** Flags of ucpx_worker_explain. */
enum ucpx_explain_flags {
    UCPX_EXPLAIN_FLAG_OTHER_HOST = UCS_BIT(0) /**< take the peer to be on another host */
};

/**
 * Write which transports could carry messages to a peer, what each costs and why it won or lost, as
 * ucp_ep_create would choose now. Lines begin with "#". Nothing is connected.
 *
 * @param address  of the peer, as ucp_worker_get_address gave it there; may be the worker's own
 * @param length   bytes that may be read from there
 * @return UCS_OK, or UCS_ERR_INVALID_ADDR.
 */
ucs_status_t ucpx_worker_explain(ucp_worker_h worker, const ucp_address_t* address, size_t length,
                                 unsigned flags, FILE* stream);

/* --- batches */

/** Contiguous bytes at both ends. */
typedef struct ucpx_piece {
    void* local_addr;     /**< within memh */
    uint64_t remote_addr; /**< within the memory that rkey was packed for */
    size_t length;        /**< bytes; 0: nothing is moved, but the addresses are checked */
    ucp_mem_h memh;       /**< of the endpoint's context */
    ucp_rkey_h rkey;      /**< unpacked for the endpoint */
} ucpx_piece_t;

/** Fields of ucpx_batch_t that need not be set. */
enum ucpx_batch_field {
    UCPX_BATCH_FIELD_NOTIFICATION = UCS_BIT(0), /**< notification */
    UCPX_BATCH_FIELD_PAYLOAD = UCS_BIT(1)       /**< payload and payload_length */
};

/** The most bytes of a notification's payload. */
#define UCPX_MAX_NOTIFICATION_PAYLOAD 65536

/** Pieces that are moved as one operation. */
typedef struct ucpx_batch {
    uint64_t field_mask;        /**< which are set; bits of ucpx_batch_field */
    const ucpx_piece_t* pieces; /**< may be NULL if there are none */
    size_t num_pieces;          /**< entries of pieces */
    size_t entry_size;          /**< sizeof(ucpx_piece_t) */
    /** With UCPX_BATCH_FIELD_NOTIFICATION: told to the peer's notify handler. */
    uint64_t notification;
    /** With UCPX_BATCH_FIELD_PAYLOAD: bytes that are told as well, with or without a value. */
    const void* payload;
    size_t payload_length; /**< up to UCPX_MAX_NOTIFICATION_PAYLOAD */
} ucpx_batch_t;

/**
 * Write many pieces to a peer's memory as one operation.
 *
 * All pieces are checked before the first is posted. They may land in any order; no fence orders
 * them, and where they overlap at the peer it is not said which bytes stay. The end of the
 * operation means that every byte is in the peer's memory. Then, if a notification is asked for,
 * the peer's handler gets it (ucpx_worker_set_notification_handler), once: never before a byte of
 * the batch, but maybe before the sender's operation has ended. A batch of no bytes just notifies.
 * The batch, its array of pieces and its payload are the caller's again when the call returns; the
 * memory, the handles and the keys when the operation has ended. A flush that starts after the end
 * of a batch covers its notification.
 *
 * No notification is lost, also if the peer has no handler yet; but a peer keeps only so many (two
 * of the longest, or 2,048 without a payload). A batch whose notification finds no room there ends
 * when the peer has taken others; its bytes land before, and other operations go on.
 *
 * Between processes of one host, and within one process, the bytes are copied once, and no adapter
 * is used.
 *
 * @param param  callback (cb.send), user data, request memory and UCP_OP_ATTR_FLAG_NO_IMM_CMPL are
 *               regarded; the datatype and memh are not.
 * @return NULL: ended at once. A request, to be freed by ucp_request_free. Or an error, with
 * nothing posted: UCS_ERR_INVALID_PARAM (a piece out of the bounds of its memh or rkey, or without
 * one of them; memh of another context; a length in all beyond 2^64; entry_size too small; a
 * context without UCP_FEATURE_RMA; no payload), UCS_ERR_EXCEEDS_LIMIT (a payload that is too long),
 * UCS_ERR_NO_MEMORY, the error of an endpoint that failed. The
 * request ends once, with the first error of a piece if one fails; the others may or may not have
 * landed then, and nothing is read from or written to the caller's memory any more. The peer is not
 * notified then, unless every byte has landed and only the news of it was lost.
 */
ucs_status_ptr_t ucpx_put_batch_nbx(ucp_ep_h ep, const ucpx_batch_t* batch,
                                    const ucp_request_param_t* param);

/**
 * Read many pieces from a peer's memory as one operation: as ucpx_put_batch_nbx, the other way. Its
 * end means that every byte is in local memory; the notification tells the peer that its memory is
 * no longer read.
 */
ucs_status_ptr_t ucpx_get_batch_nbx(ucp_ep_h ep, const ucpx_batch_t* batch,
                                    const ucp_request_param_t* param);

/**
 * Called from ucp_worker_progress when a peer's batch has ended. May start operations; must not
 * progress or destroy the worker, or close an endpoint.
 * @param sender_uid    of the peer's worker, as ucp_worker_address_query tells it
 * @param notification  as in its ucpx_batch_t
 */
typedef void (*ucpx_notify_callback_t)(void* arg, uint64_t sender_uid, uint64_t notification);

/**
 * Set the one handler of a worker for notifications from now on. What comes while there is none is
 * kept, and handed over by ucp_worker_progress as soon as there is one. A payload is not handed to
 * this kind of handler.
 * @param cb  NULL: none, as at first.
 * @return UCS_OK.
 */
ucs_status_t ucpx_worker_set_notify_handler(ucp_worker_h worker, ucpx_notify_callback_t cb,
                                            void* arg);

/** Fields of ucpx_notification_t. */
enum ucpx_notification_field {
    UCPX_NOTIFICATION_FIELD_SENDER_UID = UCS_BIT(0), /**< sender_uid */
    UCPX_NOTIFICATION_FIELD_VALUE = UCS_BIT(1),      /**< value */
    UCPX_NOTIFICATION_FIELD_PAYLOAD = UCS_BIT(2)     /**< payload and payload_length */
};

/** A notification that has come. */
typedef struct ucpx_notification {
    uint64_t field_mask;   /**< which are set; bits of ucpx_notification_field */
    uint64_t sender_uid;   /**< of the peer's worker, as ucp_worker_address_query tells it */
    uint64_t value;        /**< as in its ucpx_batch_t; 0 if it sent none */
    const void* payload;   /**< NULL without; valid until the return, of any alignment */
    size_t payload_length; /**< bytes */
} ucpx_notification_t;

/** As ucpx_notify_callback_t, with the payload. */
typedef void (*ucpx_notification_callback_t)(void* arg, const ucpx_notification_t* notification);

/**
 * The same as ucpx_worker_set_notify_handler, in whose place it comes, for notifications with a
 * payload and without.
 * @param cb  NULL: none, as at first.
 * @return UCS_OK.
 */
ucs_status_t ucpx_worker_set_notification_handler(ucp_worker_h worker,
                                                  ucpx_notification_callback_t cb, void* arg);

/**
 * Look at many requests in one call. Nothing is progressed or freed, and no lock is taken: any
 * thread, as long as nobody frees the requests meanwhile.
 * @param requests  what calls of ucp.h and this file that start operations returned: a request,
 * NULL (ended at once) or an error
 * @param statuses  gets the status of each, UCS_INPROGRESS while it goes on; may be NULL
 * @return how many have ended
 */
size_t ucpx_request_test_batch(const ucs_status_ptr_t* requests, size_t num_requests,
                               ucs_status_t* statuses);

/* --- in the order of a CUDA stream */

/**
 * An operation on a stream. It begins when the work before it on the stream is done, and the work
 * behind it begins when it has ended: sent (the buffer may be written again), received (the data is
 * there), put (the buffer may be written again). The calls that put one into a stream return at
 * once and never wait for the device or a peer.
 *
 * Begun and ended it is by the worker's progress: ucp_worker_progress, or a thread of the library's
 * (ucpx_worker_start_thread). A worker does not sleep (ucp_worker_arm says UCS_ERR_BUSY) while it
 * has operations that have not ended, or captured ones.
 *
 * On a stream that is being captured, an operation becomes part of the graph and runs each time
 * that the graph is launched, with the same buffers, tags and keys, which stay valid meanwhile; it
 * runs once at a time, so only one of several graphs made from one capture may be under way.
 *
 * stream: a CUstream or cudaStream_t of a context that is alive; NULL: the default stream of the
 * context that is current.
 *
 * op: gets a handle that tells how it went, to be given back by ucpx_stream_op_release. NULL:
 * nobody asks, and an error is logged; captured operations must have one.
 *
 * An operation that fails lets the stream go on: ask the handle. Errors of all calls: UCS_OK: it is
 * in the stream. With any other, nothing is: UCS_ERR_UNSUPPORTED (there is no CUDA module, CUDA is
 * not in use, or the device can neither wait for a word nor run the library's kernels),
 * UCS_ERR_INVALID_PARAM (no such stream, a capture that is broken, captured without op, or as said
 * below), UCS_ERR_NO_RESOURCE (UCX_CUDA_STREAM_OPS operations are under way in the context:
 * progress, and again), UCS_ERR_NO_MEMORY. Thread rule: as for the worker.
 */
typedef struct ucpx_stream_op* ucpx_stream_op_h;

/** What a signal does to its word. */
typedef enum ucpx_signal_op {
    UCPX_SIGNAL_SET = 0, /**< the word becomes the value */
    UCPX_SIGNAL_ADD = 1, /**< the value is added; the context has UCP_FEATURE_AMO64 */
    UCPX_SIGNAL_LAST
} ucpx_signal_op_t;

/** Fields of ucpx_signal_t that need not be set. */
enum ucpx_signal_field {
    UCPX_SIGNAL_FIELD_STEP = UCS_BIT(0) /**< step */
};

/** A word of a peer's that tells it of a put. */
typedef struct ucpx_signal {
    uint64_t field_mask;  /**< which are set; bits of ucpx_signal_field */
    uint64_t remote_addr; /**< of the word: 8 bytes of host memory, aligned so */
    ucp_rkey_h rkey;      /**< of the memory that it lies in, unpacked for the endpoint */
    ucpx_signal_op_t op;  /**< what is done to the word */
    uint64_t value;       /**< with this value */
    uint64_t step;        /**< added to the value for each further run of a captured operation */
} ucpx_signal_t;

/** What a part of a group does. */
typedef enum ucpx_stream_part_kind {
    UCPX_STREAM_PART_SEND = 0,    /**< as ucpx_send_on_stream */
    UCPX_STREAM_PART_RECV = 1,    /**< as ucpx_recv_on_stream */
    UCPX_STREAM_PART_PUT = 2,     /**< as ucpx_put_on_stream */
    UCPX_STREAM_PART_FLUSH = 3,   /**< as ucpx_flush_on_stream */
    UCPX_STREAM_PART_SIGNAL = 4,  /**< as ucpx_signal_wait_on_stream */
    UCPX_STREAM_PART_REQUEST = 5, /**< as ucpx_stream_wait */
    UCPX_STREAM_PART_LAST
} ucpx_stream_part_kind_t;

/** One part of a group; fields that its kind does not name are not looked at. */
typedef struct ucpx_stream_part {
    ucpx_stream_part_kind_t kind; /**< which fields count */
    ucp_ep_h ep;                  /**< all but REQUEST; may be NULL for RECV and SIGNAL */
    void* buffer;                 /**< SEND, RECV, PUT: contiguous memory of any kind */
    size_t length;                /**< SEND, RECV, PUT: bytes */
    ucp_tag_t tag;                /**< SEND, RECV */
    ucp_tag_t tag_mask;           /**< RECV */
    uint64_t remote_addr;         /**< PUT */
    ucp_rkey_h rkey;              /**< PUT */
    const ucpx_signal_t* signal;  /**< PUT; NULL: none. Copied */
    const uint64_t* word;         /**< SIGNAL */
    uint64_t value;               /**< SIGNAL */
    uint64_t step;                /**< SIGNAL */
    ucs_status_ptr_t request;     /**< REQUEST */
} ucpx_stream_part_t;

/**
 * Several parts as one operation: they begin together, in their order, and it ends when all have.
 * As NCCL's groups: two processes that send to each other would wait for each other for ever if
 * each received behind its own send.
 *
 * @param parts       read before the call returns; of one worker
 * @param entry_size  sizeof(ucpx_stream_part_t)
 * @return as said at ucpx_stream_op_h; UCS_ERR_INVALID_PARAM also: no parts, an entry_size that is
 * too small, what a part's own function refuses. A part that fails ends no other.
 */
ucs_status_t ucpx_group_on_stream(ucp_worker_h worker, const ucpx_stream_part_t* parts,
                                  size_t num_parts, size_t entry_size, void* stream,
                                  ucpx_stream_op_h* op);

/** As ucp_tag_send_nbx of contiguous bytes. @return as said at ucpx_stream_op_h */
ucs_status_t ucpx_send_on_stream(ucp_ep_h ep, const void* buffer, size_t length, ucp_tag_t tag,
                                 void* stream, ucpx_stream_op_h* op);

/**
 * As ucp_tag_recv_nbx of contiguous bytes.
 * @param ep  NULL, or the endpoint to who will send, with error handling mode peer: when it fails,
 *            or is closed, the receive ends with an error instead of waiting for ever
 * @return as said at ucpx_stream_op_h
 */
ucs_status_t ucpx_recv_on_stream(ucp_worker_h worker, ucp_ep_h ep, void* buffer, size_t length,
                                 ucp_tag_t tag, ucp_tag_t tag_mask, void* stream,
                                 ucpx_stream_op_h* op);

/**
 * As ucp_put_nbx of contiguous bytes. The work behind it finds the buffer free, not the data at the
 * peer: for that there is the signal, and ucpx_flush_on_stream.
 * @param signal  NULL: none. Else the word changes when all bytes are in the peer's memory
 * @return as said at ucpx_stream_op_h; UCS_ERR_INVALID_PARAM also: no rkey, or a word that is not
 * aligned
 */
ucs_status_t ucpx_put_on_stream(ucp_ep_h ep, const void* buffer, size_t length,
                                uint64_t remote_addr, ucp_rkey_h rkey, const ucpx_signal_t* signal,
                                void* stream, ucpx_stream_op_h* op);

/**
 * As ucp_ep_flush_nbx: the work behind it finds what was put on the endpoint in the peer's memory.
 * @return as said at ucpx_stream_op_h
 */
ucs_status_t ucpx_flush_on_stream(ucp_ep_h ep, void* stream, ucpx_stream_op_h* op);

/**
 * The work behind it begins when a word of host memory, which a peer's signal changes, has come to
 * the value or past it: when the difference, taken as signed, is not negative.
 * @param ep    NULL, or the endpoint to who will signal, as in ucpx_recv_on_stream
 * @param word  aligned to 8; nothing needs to be pinned
 * @param step  what the value grows by with each further run of a captured operation
 * @return as said at ucpx_stream_op_h; UCS_ERR_UNSUPPORTED also: a word in device memory
 */
ucs_status_t ucpx_signal_wait_on_stream(ucp_worker_h worker, ucp_ep_h ep, const uint64_t* word,
                                        uint64_t value, uint64_t step, void* stream,
                                        ucpx_stream_op_h* op);

/**
 * The work behind it begins when a request has ended. The request is the library's from then on:
 * its callback is called, and nobody frees it.
 * @param request  as calls of ucp.h and this file returned it; NULL: nothing is put into the
 *                 stream and *op is NULL. An error: the same, and it is returned
 * @return as said at ucpx_stream_op_h: with an error the request is still the caller's;
 * UCS_ERR_INVALID_PARAM also on a stream that is being captured: a request ends but once
 */
ucs_status_t ucpx_stream_wait(ucp_worker_h worker, ucs_status_ptr_t request, void* stream,
                              ucpx_stream_op_h* op);

/** Fields of ucpx_stream_op_attr_t. */
enum ucpx_stream_op_attr_field {
    UCPX_STREAM_OP_ATTR_FIELD_STATUS = UCS_BIT(0),
    UCPX_STREAM_OP_ATTR_FIELD_RUNS = UCS_BIT(1), /**< runs and failures */
    UCPX_STREAM_OP_ATTR_FIELD_LENGTH = UCS_BIT(2),
    UCPX_STREAM_OP_ATTR_FIELD_CAPTURED = UCS_BIT(3)
};

/** How an operation on a stream went. */
typedef struct ucpx_stream_op_attr {
    uint64_t field_mask; /**< which to fill; bits of ucpx_stream_op_attr_field */
    /** The first error of any run. Else UCS_INPROGRESS before the end of the first run and within
     * others, UCS_OK between runs. */
    ucs_status_t status;
    uint64_t runs;     /**< that have ended */
    uint64_t failures; /**< those of them that had an error */
    size_t length;     /**< bytes that the last run received */
    int captured;      /**< 1: part of a graph */
} ucpx_stream_op_attr_t;

/** @return UCS_OK. Thread rule: as for the worker. */
ucs_status_t ucpx_stream_op_query(ucpx_stream_op_h op, ucpx_stream_op_attr_t* attr);

/**
 * Give a handle back, at any time: what is in a stream goes on. That of a captured operation, when
 * the graphs that it is in are launched no more and have ended. The worker's end takes all that
 * are left: operations that had not ended let their streams go on at once, with nothing sent or
 * received. Graphs that are launched later pass them the same way.
 */
void ucpx_stream_op_release(ucpx_stream_op_h op);

/**
 * Start a thread that progresses the worker, for a program that does not. Callbacks run in it.
 * @return UCS_OK, also if there is one already; UCS_ERR_UNSUPPORTED: the worker's thread mode is
 * not UCS_THREAD_MODE_MULTI; UCS_ERR_NO_RESOURCE: the system gives no thread
 */
ucs_status_t ucpx_worker_start_thread(ucp_worker_h worker);

/** End it, and wait for that; not from within a callback. The worker's end does the same. */
void ucpx_worker_stop_thread(ucp_worker_h worker);

#pragma GCC visibility pop
END_C_DECLS

#endif
