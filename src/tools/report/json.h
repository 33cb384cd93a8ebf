// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "tools/program/options.h"
#include "tools/report/result.h"

namespace tools {

// Keys keep the order in which they were written, so that equal runs give equal bytes.
using Json = nlohmann::ordered_json;

Json to_json(const BenchOptions& options);
Json to_json(const LaneEntry& entry);
Json to_json(const LaneCounters& counters);

// "rows" of all runs, "lanes" of the dynamic one (else the only or last one), and each run by its
// mode under "modes". docs/benchmarks.md describes the keys.
void add_runs(Json& document, std::span<const RunResult> runs);

// Throws std::runtime_error if the file cannot be written.
void write_json(const std::string& path, const Json& document);

}  // namespace tools
