/* SPDX-License-Identifier: BSD-3-Clause */
/** @file debug_int.h Signals. */
#ifndef UCS_DEBUG_INT_H_
#define UCS_DEBUG_INT_H_

#include "ucs/sys/compiler_def.h"

BEGIN_C_DECLS
#pragma GCC visibility push(default)

/** Does nothing: this library handles no signals. */
void ucs_debug_disable_signals(void);

#pragma GCC visibility pop
END_C_DECLS

#endif
