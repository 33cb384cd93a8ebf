/* SPDX-License-Identifier: BSD-3-Clause */
/** @file memtrack_int.h The heap, by names of UCX. Functions of libucs.so.0. */
#ifndef UCS_MEMTRACK_INT_H_
#define UCS_MEMTRACK_INT_H_

#include <stddef.h>

#include "ucs/sys/compiler_def.h"

BEGIN_C_DECLS
#pragma GCC visibility push(default)

/** malloc(). @param name  what it is for, which nobody looks at */
void* ucs_malloc(size_t size, const char* name);
/** free(), of what ucs_malloc() has returned. */
void ucs_free(void* ptr);

#pragma GCC visibility pop
END_C_DECLS

#endif
