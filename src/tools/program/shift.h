// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "tools/program/flow.h"
#include "tools/program/rank.h"

namespace tools {

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

}  // namespace tools
