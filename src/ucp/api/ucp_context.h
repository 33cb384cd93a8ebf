/* SPDX-License-Identifier: BSD-3-Clause */
/** @file ucp_context.h Configuration, version and contexts. */
#ifndef SWIFTLANE_UCP_CONTEXT_H_
#define SWIFTLANE_UCP_CONTEXT_H_

#include <stdio.h>

#include "ucp/api/ucp_def.h"
#include "ucp/api/ucp_version.h"
#include "ucs/type/thread_mode.h"

BEGIN_C_DECLS
#pragma GCC visibility push(default)

/** Kinds of communication a context is made for; what was not asked for may be refused. */
enum ucp_feature {
    UCP_FEATURE_TAG = UCS_BIT(0),           /**< tagged messages */
    UCP_FEATURE_RMA = UCS_BIT(1),           /**< put and get */
    UCP_FEATURE_AMO32 = UCS_BIT(2),         /**< atomic operations on 32 bits */
    UCP_FEATURE_AMO64 = UCS_BIT(3),         /**< atomic operations on 64 bits */
    UCP_FEATURE_WAKEUP = UCS_BIT(4),        /**< sleeping until something happens */
    UCP_FEATURE_STREAM = UCS_BIT(5),        /**< byte streams */
    UCP_FEATURE_AM = UCS_BIT(6),            /**< active messages */
    UCP_FEATURE_EXPORTED_MEMH = UCS_BIT(7), /**< memory handles carried between processes */
    UCP_FEATURE_DEVICE = UCS_BIT(8)         /**< kernels that communicate: device/ucp_host.h */
};

/** Fields of ucp_params_t. */
enum ucp_params_field {
    UCP_PARAM_FIELD_FEATURES = UCS_BIT(0),
    UCP_PARAM_FIELD_REQUEST_SIZE = UCS_BIT(1),
    UCP_PARAM_FIELD_REQUEST_INIT = UCS_BIT(2),
    UCP_PARAM_FIELD_REQUEST_CLEANUP = UCS_BIT(3),
    UCP_PARAM_FIELD_TAG_SENDER_MASK = UCS_BIT(4),
    UCP_PARAM_FIELD_MT_WORKERS_SHARED = UCS_BIT(5),
    UCP_PARAM_FIELD_ESTIMATED_NUM_EPS = UCS_BIT(6),
    UCP_PARAM_FIELD_ESTIMATED_NUM_PPN = UCS_BIT(7),
    UCP_PARAM_FIELD_NAME = UCS_BIT(8),
    UCP_PARAM_FIELD_NODE_LOCAL_ID = UCS_BIT(9)
};

typedef struct ucp_params {
    uint64_t field_mask;                            /**< bits of ucp_params_field */
    uint64_t features;                              /**< bits of ucp_feature; must be given */
    size_t request_size;                            /**< user's bytes in a request; default 0 */
    ucp_request_init_callback_t request_init;       /**< default: none */
    ucp_request_cleanup_callback_t request_cleanup; /**< default: none */
    uint64_t tag_sender_mask;                       /**< tag bits that name the sender; default 0 */
    int mt_workers_shared;    /**< non-zero: threads use the context at once through own workers */
    size_t estimated_num_eps; /**< endpoints to come: a hint for the choice of transports */
    size_t estimated_num_ppn; /**< processes of the job on this host: a hint */
    const char* name;         /**< for messages; default: made by the library */
    size_t node_local_id;     /**< which process of the job on this host: a hint, not used */
} ucp_params_t;

enum ucp_lib_attr_field { UCP_LIB_ATTR_FIELD_MAX_THREAD_LEVEL = UCS_BIT(0) };

typedef struct ucp_lib_attr {
    uint64_t field_mask;                /**< which to fill; bits of ucp_lib_attr_field */
    ucs_thread_mode_t max_thread_level; /**< highest mode that ucp_worker_create grants */
} ucp_lib_attr_t;

/** Fields of ucp_context_attr_t. */
enum ucp_context_attr_field {
    UCP_ATTR_FIELD_REQUEST_SIZE = UCS_BIT(0),
    UCP_ATTR_FIELD_THREAD_MODE = UCS_BIT(1),
    UCP_ATTR_FIELD_MEMORY_TYPES = UCS_BIT(2),
    UCP_ATTR_FIELD_NAME = UCS_BIT(3),
    UCP_ATTR_FIELD_DEVICE_COUNTER_SIZE = UCS_BIT(4)
};

typedef struct ucp_context_attr {
    uint64_t field_mask;            /**< which to fill; bits of ucp_context_attr_field */
    size_t request_size;            /**< bytes the library needs before a request handle */
    ucs_thread_mode_t thread_mode;  /**< who may use the context */
    uint64_t memory_types;          /**< mask of ucs_memory_type_t that buffers may lie in */
    char name[UCP_ENTITY_NAME_MAX]; /**< zero terminated */
    size_t device_counter_size;     /**< bytes of a counter of kernels; 0: no CUDA is here */
} ucp_context_attr_t;

/** What the library can do, before any context exists. @return UCS_OK. Any thread. */
ucs_status_t ucp_lib_query(ucp_lib_attr_t* attr);

/** Version of UCX's interface that the library offers. Any thread. */
void ucp_get_version(unsigned* major_version, unsigned* minor_version, unsigned* release_number);
/** The same as "major.minor.release". The string is static. */
const char* ucp_get_version_string(void);

/**
 * Read settings from the environment.
 * @param env_prefix  NULL: variables UCX_*; else PREFIX_UCX_* first, this being the prefix, then
 * UCX_*.
 * @param filename    A file of settings that the environment overrides; NULL for none. A missing
 *                    file is no error.
 * @return UCS_OK, UCS_ERR_INVALID_PARAM (a variable has no valid value; the log names it) or
 *         UCS_ERR_NO_MEMORY. Any thread, while no other changes the environment.
 */
ucs_status_t ucp_config_read(const char* env_prefix, const char* filename, ucp_config_t** config_p);
/** Release what ucp_config_read gave; contexts made of it keep their settings. */
void ucp_config_release(ucp_config_t* config);
/**
 * Change one setting; contexts that exist keep theirs.
 * @param name  The variable's name without its prefix, for instance "TLS".
 * @return UCS_OK, UCS_ERR_NO_ELEM (no such setting) or UCS_ERR_INVALID_PARAM (bad value).
 */
ucs_status_t ucp_config_modify(ucp_config_t* config, const char* name, const char* value);
/** Write settings as text. @param print_flags  Bits of ucs_config_print_flags_t. */
void ucp_config_print(const ucp_config_t* config, FILE* stream, const char* title,
                      ucs_config_print_flags_t print_flags);

/**
 * Make a context for a program compiled against headers of the given version; ucp_init calls it.
 *
 * The version decides which values are meant where they changed: UCS_MEMORY_TYPE_UNKNOWN is 5 up to
 * 1.15, 6 in 1.16, 9 up to 1.20 and 10 from 1.21 on.
 * @param config  NULL: the environment is read.
 * @return UCS_OK, UCS_ERR_INVALID_PARAM (no features, or unknown ones), UCS_ERR_NO_DEVICE (no
 *         transport is left that offers the features), UCS_ERR_NOT_IMPLEMENTED (another major
 *         version; a newer minor version is accepted with a warning), UCS_ERR_NO_MEMORY.
 *         Any thread.
 */
ucs_status_t ucp_init_version(unsigned api_major_version, unsigned api_minor_version,
                              const ucp_params_t* params, const ucp_config_t* config,
                              ucp_context_h* context_p);

/** Make a context. Parameters and errors as ucp_init_version. */
static inline ucs_status_t ucp_init(const ucp_params_t* params, const ucp_config_t* config,
                                    ucp_context_h* context_p) {
    return ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, params, config, context_p);
}

/** Release a context whose workers and memory handles are gone. One thread. */
void ucp_cleanup(ucp_context_h context_p);
/** @return UCS_OK. Any thread. */
ucs_status_t ucp_context_query(ucp_context_h context_p, ucp_context_attr_t* attr);
/** Write the transports and devices in use as text, one "#" line each. Any thread. */
void ucp_context_print_info(const ucp_context_h context, FILE* stream);

#pragma GCC visibility pop
END_C_DECLS

#endif
