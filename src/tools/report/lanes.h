// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "tools/program/rank.h"
#include "tools/report/result.h"

namespace tools {

// What the library says of this rank's endpoints, by peer.
std::vector<LaneEntry> query_lanes(const Rank& rank);

// Of this rank's worker since its creation. Each end of a link counts a switch once.
LaneCounters query_counters(const Rank& rank);

}  // namespace tools
