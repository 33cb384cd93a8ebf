// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "tools/program/options.h"
#include "tools/program/rank.h"

namespace tools {

// The rank's part in the multi-pair bandwidth and message-rate benchmark.
//
// The first `pairs` ranks send to the next `pairs`: windows of tagged messages, each acknowledged
// by one small message. Every rank also makes `unused` endpoints to the ranks that follow it,
// its own partner left out; a sender that trickles sends one message to each of them per `trickle`
// hot messages. Ranks beyond the pairs only receive what trickles in.
Task mbw_mr(Rank& rank, const BenchOptions& options);

}  // namespace tools
