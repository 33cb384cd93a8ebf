// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <string>

#include "tools/program/options.h"

namespace tools {

// Options that the benchmarks share whether they run in processes or in simulation.
void add_common_options(CLI::App& command, BenchOptions& options);
void add_pair_options(CLI::App& command, BenchOptions& options);

// An option whose text `read` takes, or throws std::invalid_argument, which is told as misuse.
CLI::Option* add_parsed(CLI::App& command, const std::string& name, const std::string& help,
                        const std::function<void(const std::string&)>& read);
// An option whose value is a time, or --size with a range of sizes, read with tools/common/units.h.
CLI::Option* add_time(CLI::App& command, const std::string& name, int64_t& nanoseconds,
                      const std::string& help);
void add_sizes(CLI::App& command, uint64_t& min, uint64_t& max, const std::string& help);

// What does not fit together. Throws CLI::ValidationError.
void check_options(const BenchOptions& options, bool in_pairs);

}  // namespace tools
