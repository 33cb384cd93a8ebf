// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

#include "tools/program/alltoall.h"
#include "tools/program/mbw_mr.h"
#include "tools/program/options.h"
#include "tools/program/rank.h"

namespace tools {

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
