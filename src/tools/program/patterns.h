// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

#include "tools/program/options.h"
#include "tools/program/rank.h"

namespace tools {

// The rank's part in the all-to-all benchmark: every rank sends `size` bytes to every other one by
// pairwise exchange, one partner a step, so that all links are equally warm.
Task alltoall(Rank& rank, const BenchOptions& options);

// The rank's part in the multi-pair bandwidth and message-rate benchmark.
//
// The first `pairs` ranks send to the next `pairs`: windows of tagged messages, each acknowledged
// by one small message. Every rank also makes `unused` endpoints to the ranks that follow it,
// its own partner left out; a sender that trickles sends one message to each of them per `trickle`
// hot messages. Ranks beyond the pairs only receive what trickles in.
Task mbw_mr(Rank& rank, const BenchOptions& options);

// What the ranks of a benchmark do, and what its options and rows are.
template <typename Options>
struct Pattern {
    std::string_view name;
    std::string_view help;
    Task (*program)(Rank& rank, const Options& options);
    bool in_pairs = false;   // takes the options of pairs and their windows
    bool exchanges = false;  // rows have the latency of an exchange
};

// One line for each benchmark of `swiftlane bench`; src/tools/sim/main.cc has those of `swiftlane
// sim`.
inline constexpr Pattern<BenchOptions> kBenchPatterns[] = {
    {"mbw_mr", "Multi-pair bandwidth and message rate", mbw_mr, true},
    {"alltoall", "All-to-all exchange", alltoall, false, true},
};

}  // namespace tools
