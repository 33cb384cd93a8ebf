// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

#include "tools/program/rank.h"

namespace tools {

// What all programs below take: every rank sends messages of one size to many peers, each by its
// weight, with a window of messages in flight, for a fixed time.
struct FlowOptions {
    uint64_t size = 64;
    unsigned window = 16;
    uint64_t seed = 1;
    bool verify = false;
    double rate = 0;  // messages a second of each rank, a window of them at a time; 0: all it can
};

struct ZipfOptions {
    FlowOptions flow;
    unsigned peers = 0;     // of each rank; 0: all others
    double exponent = 1.0;  // the k-th hottest peer has a weight of k^-exponent
    int64_t time = 0;       // nanoseconds
};

// The rank's part in traffic of heavy-tailed heat: each rank ranks its peers in an order of its
// own, drawn from the seed, and sends to the k-th of them k^-exponent of what the first one gets.
Task zipf(Rank& rank, const ZipfOptions& options);

struct ShiftOptions {
    FlowOptions flow;
    unsigned hot = 4;          // hot peers of each rank at a time
    unsigned phases = 3;       // the hot set moves between phases
    int64_t time = 0;          // nanoseconds a phase
    double background = 0.05;  // part of the messages that goes to the other peers, evenly
};

// The rank's part in traffic whose hot set moves: in each phase every rank sends to, and receives
// from, the same number of hot peers; the next phase has other ones, without a pause between.
Task shift(Rank& rank, const ShiftOptions& options);

// The hot peers of a rank in a phase: those at a few distances around a ring of the ranks, on
// either side, so that hot links are the same seen from both ends. Phases use distances that
// differ while there are enough of them.
std::vector<unsigned> hot_peers(unsigned rank, unsigned ranks, unsigned hot, unsigned phase);

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
