// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "config.h"

// A point where bpftrace, SystemTap, perf and gdb can look in while a program runs (USDT, provider
// "swiftlane"): an instruction that does nothing, until one of them puts a breakpoint there.
// docs/observability.md lists the probes and their arguments: integers, addresses, C strings.
//
//   SWIFTLANE_PROBE(stall_end, endpoint);
#if HAVE_SYS_SDT_H
#define SDT_USE_VARIADIC
#include <sys/sdt.h>
#define SWIFTLANE_PROBE(name, ...) STAP_PROBEV(swiftlane, name, __VA_ARGS__)
#else
#define SWIFTLANE_PROBE(name, ...) static_cast<void>(0)
#endif
