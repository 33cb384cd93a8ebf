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
    // sleepers: each so-many-th rank computes for so long at a time, between stretches in which it
    // sends as the others do.
    unsigned stride = 3;
    int64_t awake = 1'000'000'000;
    int64_t sleep = 10'000'000'000;
    double rate = 1000;  // messages a second to each of the two neighbours
    // Messages to a neighbour while it computes: fewer than a scalable lane is sure to take of one
    // sender (UCX_DC_MLX5_FC_HARD_THRESH of its window).
    unsigned quiet = 100;
};

// All send to their right neighbour, as many as they can.
Task ring(Rank& rank, const StreamOptions& options);
// All send to rank 0.
Task incast(Rank& rank, const StreamOptions& options);
// All send to one peer after the other, and close the endpoint before the next.
Task churn(Rank& rank, const StreamOptions& options);
// Neighbours send short messages to each other, twice as many to those who will compute. While
// these do, who is awake sends them a few more, and four times as many to the other neighbour. The
// host is told how long each message took to complete locally.
Task sleepers(Rank& rank, const StreamOptions& options);

}  // namespace tools
