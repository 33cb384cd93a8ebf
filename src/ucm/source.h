// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace ucm {

/**
 * Does the library see each of these events by itself, whoever causes them?
 *
 * Hooks are installed at the first question, unless UCX_MEM_EVENTS=n, UCX_MEM_MMAP_HOOK_MODE=none
 * or the like in ucm_global_opts say not to. Then, at each question, it is tried out: each call is
 * made as a program makes it, and must have been seen. So the answer holds also where others
 * replaced the C library's functions, before or after.
 */
bool is_reported(int events);

}  // namespace ucm
