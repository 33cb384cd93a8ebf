// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "tools/program/options.h"
#include "tools/program/rank.h"

namespace tools {

// The rank's part in the all-to-all benchmark: every rank sends `size` bytes to every other one by
// pairwise exchange, one partner a step, so that all links are equally warm.
Task alltoall(Rank& rank, const BenchOptions& options);

}  // namespace tools
