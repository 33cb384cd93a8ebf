// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "tools/program/flow.h"
#include "tools/program/rank.h"

namespace tools {

struct ZipfOptions {
    FlowOptions flow;
    unsigned peers = 0;     // of each rank; 0: all others
    double exponent = 1.0;  // the k-th hottest peer has a weight of k^-exponent
    int64_t time = 0;       // nanoseconds
};

// The rank's part in traffic of heavy-tailed heat: each rank ranks its peers in an order of its
// own, drawn from the seed, and sends to the k-th of them k^-exponent of what the first one gets.
Task zipf(Rank& rank, const ZipfOptions& options);

}  // namespace tools
