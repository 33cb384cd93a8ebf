/* SPDX-License-Identifier: BSD-3-Clause */
/** @file types.h Types of configuration values, log levels and socket addresses. */
#ifndef UCS_CONFIG_TYPES_H
#define UCS_CONFIG_TYPES_H

#include <sys/socket.h>

#include "ucs/sys/compiler_def.h"

BEGIN_C_DECLS
#pragma GCC visibility push(default)

/** How much a log line matters; a lower value matters more. */
typedef enum {
    UCS_LOG_LEVEL_FATAL,       /**< the process ends */
    UCS_LOG_LEVEL_ERROR,       /**< something failed, the caller is told */
    UCS_LOG_LEVEL_WARN,        /**< something is wrong, work goes on */
    UCS_LOG_LEVEL_DIAG,        /**< silent adjustments, errors that were dealt with */
    UCS_LOG_LEVEL_INFO,        /**< what runs and with which settings */
    UCS_LOG_LEVEL_DEBUG,       /**< a few lines for each object */
    UCS_LOG_LEVEL_TRACE,       /**< many lines for each object */
    UCS_LOG_LEVEL_TRACE_REQ,   /**< each request */
    UCS_LOG_LEVEL_TRACE_DATA,  /**< each message on a transport */
    UCS_LOG_LEVEL_TRACE_ASYNC, /**< timers and asynchronous events */
    UCS_LOG_LEVEL_TRACE_FUNC,  /**< each function called */
    UCS_LOG_LEVEL_TRACE_POLL,  /**< each poll */
    UCS_LOG_LEVEL_LAST,        /**< number of levels */
    UCS_LOG_LEVEL_PRINT        /**< printed whatever the level */
} ucs_log_level_t;

/** What drives progress while the program does not call the library. */
typedef enum {
    UCS_ASYNC_MODE_SIGNAL,
    UCS_ASYNC_MODE_THREAD_SPINLOCK,
    UCS_ASYNC_MODE_THREAD = UCS_ASYNC_MODE_THREAD_SPINLOCK, /**< the older name */
    UCS_ASYNC_MODE_THREAD_MUTEX,
    UCS_ASYNC_MODE_POLL, /**< nothing: only calls from the program */
    UCS_ASYNC_MODE_LAST  /**< number of modes */
} ucs_async_mode_t;

/** Names of the modes, indexed by ucs_async_mode_t; the entry after the last mode is NULL. */
extern const char* ucs_async_mode_names[];

/** A setting that may be tried or left to the library. */
typedef enum ucs_ternary_auto_value {
    UCS_NO = 0,
    UCS_YES = 1,
    UCS_TRY = 2,  /**< yes if it can be had, no error otherwise */
    UCS_AUTO = 3, /**< the library decides */
    UCS_TERNARY_LAST
} ucs_ternary_auto_value_t;

/** A switch that may be left to the library. */
typedef enum ucs_on_off_auto_value {
    UCS_CONFIG_OFF = 0,
    UCS_CONFIG_ON = 1,
    UCS_CONFIG_AUTO = 2,
    UCS_CONFIG_ON_OFF_LAST
} ucs_on_off_auto_value_t;

/** What to do when the process is about to die of an error. */
typedef enum {
    UCS_HANDLE_ERROR_BACKTRACE, /**< print where it happened */
    UCS_HANDLE_ERROR_FREEZE,    /**< stop and wait for a debugger */
    UCS_HANDLE_ERROR_DEBUG,     /**< start a debugger */
    UCS_HANDLE_ERROR_NONE,
    UCS_HANDLE_ERROR_LAST
} ucs_handle_error_t;

/** What ucp_config_print writes; bits to be combined. */
typedef enum {
    UCS_CONFIG_PRINT_CONFIG = UCS_BIT(0),         /**< names and values */
    UCS_CONFIG_PRINT_HEADER = UCS_BIT(1),         /**< the title */
    UCS_CONFIG_PRINT_DOC = UCS_BIT(2),            /**< the help text of each variable */
    UCS_CONFIG_PRINT_HIDDEN = UCS_BIT(3),         /**< also variables meant for developers */
    UCS_CONFIG_PRINT_COMMENT_DEFAULT = UCS_BIT(4) /**< variables at their default as comments */
} ucs_config_print_flags_t;

/** How a list of names is meant. */
typedef enum {
    UCS_CONFIG_ALLOW_LIST_ALLOW_ALL, /**< everything */
    UCS_CONFIG_ALLOW_LIST_ALLOW,     /**< what the list names */
    UCS_CONFIG_ALLOW_LIST_NEGATE     /**< everything but what the list names */
} ucs_config_allow_list_mode_t;

/** An array of @a count values of type @a _type, for use inside a structure. */
#define UCS_CONFIG_ARRAY_FIELD(_type, _array_name) \
    struct {                                       \
        _type* _array_name;                        \
        unsigned count;                            \
        unsigned pad;                              \
    }
#define UCS_CONFIG_STRING_ARRAY_FIELD(_array_name) UCS_CONFIG_ARRAY_FIELD(char*, _array_name)

typedef UCS_CONFIG_STRING_ARRAY_FIELD(names) ucs_config_names_array_t;

typedef struct {
    ucs_config_names_array_t array;
    ucs_config_allow_list_mode_t mode;
} ucs_config_allow_list_t;

/** A socket address that somebody else owns. */
typedef struct ucs_sock_addr {
    const struct sockaddr* addr; /**< the address; not copied */
    socklen_t addrlen;           /**< its size in bytes */
} ucs_sock_addr_t;

/** Log settings of one component. */
typedef struct ucs_log_component_config {
    ucs_log_level_t log_level; /**< lines above this level are not written */
    char name[16];             /**< printed with each line; zero terminated */
    const char* file_filter;   /**< shell pattern of source files whose lines are written */
} ucs_log_component_config_t;

#pragma GCC visibility pop
END_C_DECLS

#endif
