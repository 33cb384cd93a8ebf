/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file log_def.h
 * The log as programs take it over or write to it. Functions of libucs.so.0, which pass on to the
 * libucp.so.0 beside it; any thread may call them.
 */
#ifndef UCS_LOG_DEF_H_
#define UCS_LOG_DEF_H_

#include <stdarg.h>
#include <stdint.h>

#include "ucs/config/global_opts.h"
#include "ucs/config/types.h"
#include "ucs/sys/compiler_def.h"

BEGIN_C_DECLS
#pragma GCC visibility push(default)

typedef enum {
    UCS_LOG_FUNC_RC_STOP,    /**< the line is done with */
    UCS_LOG_FUNC_RC_CONTINUE /**< the handler pushed before is asked, at last the log itself */
} ucs_log_func_rc_t;

/**
 * Gets a line of the log.
 * @param message    as printf's, with @a ap
 * @param comp_conf  what wrote it; the library's own lines come from "swiftlane"
 */
typedef ucs_log_func_rc_t (*ucs_log_func_t)(const char* file, unsigned line, const char* function,
                                            ucs_log_level_t level,
                                            const ucs_log_component_config_t* comp_conf,
                                            const char* message, va_list ap);

/**
 * Write a line, whatever the level; to be called where @a comp_conf admits the level. It goes to
 * UCX_LOG_FILE, or else to standard output, where UCX puts it; the library's own lines go to
 * standard error.
 */
void ucs_log_dispatch(const char* file, unsigned line, const char* function, ucs_log_level_t level,
                      ucs_log_component_config_t* comp_conf, const char* format, ...)
    UCS_F_PRINTF(6, 7);

/** Handlers are asked in the opposite order of pushing, at most 32 of them. */
void ucs_log_push_handler(ucs_log_func_t handler);
/** Take the last one away; nothing if there is none. */
void ucs_log_pop_handler(void);
/** How many handlers are pushed. */
unsigned ucs_log_num_handlers(void);

#pragma GCC visibility pop
END_C_DECLS

#endif
