// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#endif

namespace perf {

// From here on callgrind counts, if it was told not to from the start (--instr-atstart=no): the
// program runs several times as fast until then. Does nothing outside valgrind, or where the
// program was compiled without valgrind's header.
inline void start_counting() {
#ifdef CALLGRIND_START_INSTRUMENTATION
    CALLGRIND_START_INSTRUMENTATION;
#endif
}

}  // namespace perf
