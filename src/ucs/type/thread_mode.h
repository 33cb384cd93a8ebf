/* SPDX-License-Identifier: BSD-3-Clause */
/** @file thread_mode.h Who may call into an object, and when. */
#ifndef UCS_TYPE_THREAD_MODE_H
#define UCS_TYPE_THREAD_MODE_H

#include "ucs/sys/compiler_def.h"

BEGIN_C_DECLS
#pragma GCC visibility push(default)

typedef enum {
    UCS_THREAD_MODE_SINGLE,     /**< one thread only, the one that made the object */
    UCS_THREAD_MODE_SERIALIZED, /**< any thread; the caller keeps calls from overlapping */
    UCS_THREAD_MODE_MULTI,      /**< any threads at once; the library does the locking */
    UCS_THREAD_MODE_LAST        /**< number of modes */
} ucs_thread_mode_t;

/** Names of the modes, indexed by ucs_thread_mode_t; the entry after the last mode is NULL. */
extern const char* ucs_thread_mode_names[];

#pragma GCC visibility pop
END_C_DECLS

#endif
