// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "tools/program/flow.h"
#include "tools/program/rank.h"

namespace tools {

struct StreamOptions {
    FlowOptions flow;
    int64_t time = 0;  // nanoseconds of traffic
    // churn: endpoints that a rank makes and closes, one after the other.
    unsigned rounds = 20;
    // sleepers: each so-many-th rank computes for so long at a time and wakes for a moment.
    unsigned stride = 4;
    int64_t sleep = 10'000'000'000;
    double rate = 1000;  // messages a second of each other rank to each of its two neighbours
};

// All send to their right neighbour, as many as they can.
Task ring(Rank& rank, const StreamOptions& options);
// All send to rank 0.
Task incast(Rank& rank, const StreamOptions& options);
// All send to one peer after the other, and close the endpoint before the next.
Task churn(Rank& rank, const StreamOptions& options);
// Neighbours send short messages to each other, some of whom mostly compute. The host is told how
// long each message took to complete locally.
Task sleepers(Rank& rank, const StreamOptions& options);

}  // namespace tools
