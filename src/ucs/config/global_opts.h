/* SPDX-License-Identifier: BSD-3-Clause */
/** @file global_opts.h Variables of the process, set by its program. */
#ifndef UCS_CONFIG_H_
#define UCS_CONFIG_H_

#include "ucs/sys/compiler_def.h"
#include "ucs/type/status.h"

BEGIN_C_DECLS
#pragma GCC visibility push(default)

/**
 * Set a variable that is read when the library starts: before the first context.
 * @param name  Without prefix: "LOG_LEVEL" takes effect at once, others when they are read.
 * @return UCS_OK, UCS_ERR_NO_ELEM (no such variable) or UCS_ERR_INVALID_PARAM (bad value).
 */
ucs_status_t ucs_global_opts_set_value(const char* name, const char* value);

#pragma GCC visibility pop
END_C_DECLS

#endif
