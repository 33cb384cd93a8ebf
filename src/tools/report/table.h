// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>
#include <string>

#include "tools/report/result.h"

namespace tools {

// Lines of text, in the form of the OSU benchmarks: comments start with '#'.
std::string row_header(bool with_latency);
std::string row_line(const Row& row, bool with_latency);

// Message rates of several modes side by side, one line a size; empty for a single mode.
std::string comparison(std::span<const RunResult> runs);

// Who holds which lane, and why.
std::string lane_map(const RunResult& run);

}  // namespace tools
