/* SPDX-License-Identifier: BSD-3-Clause */
/** @file string.h Lists of names. */
#ifndef UCS_STRING_H_
#define UCS_STRING_H_

#include <sys/types.h>

#include "ucs/sys/compiler_def.h"

BEGIN_C_DECLS
#pragma GCC visibility push(default)

/**
 * Where a name stands in a list that ends with NULL.
 * @param case_sensitive  0: capitals and small letters are the same
 * @return its index, or -1
 */
ssize_t ucs_string_find_in_list(const char* str, const char** string_list, int case_sensitive);

#pragma GCC visibility pop
END_C_DECLS

#endif
