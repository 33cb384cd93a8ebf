// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "tools/perf/peer.h"

namespace tools::perf {

// The life of one thread of the target: do as the initiator's thread orders, until it leaves.
void serve(Peer& peer);

// Processor time that this process has taken, ns.
uint64_t process_usage();

}  // namespace tools::perf
