// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "tools/program/rank.h"

namespace tools {

// Neighbours in a ring that exchange small messages step by step, as the ranks of a grid do with
// the borders of their parts. The neighbours at distance d take part in each d-th step.
struct HaloOptions {
    unsigned ranks = 2;
    uint64_t size = 8;      // bytes of a message between neighbours
    double rate = 1300;     // steps a second at most
    unsigned distance = 1;  // of the farthest neighbour
    int64_t time = 0;       // nanoseconds of steps; of each phase, if there are any
    uint64_t seed = 1;

    // halo: besides, the lower half of the ranks sends large messages to the upper half.
    uint64_t bulk_size = 4 << 20;
    double bulk_rate = 780;  // messages a second

    // phases: the ranks compute before each of so many stretches of steps.
    unsigned phases = 100;
    // Nanoseconds, drawn anew for each phase; the ranks differ by a tenth of it at most.
    int64_t compute_min = 10'000'000'000;
    int64_t compute_max = 60'000'000'000;
};

// Both kinds of traffic at once for a fixed time.
Task halo(Rank& rank, const HaloOptions& options);
// The exchange alone, interrupted by computation.
Task phases(Rank& rank, const HaloOptions& options);

}  // namespace tools
