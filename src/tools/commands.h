// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace tools {

// Each adds a command of swiftlane.

void add_bench(CLI::App& app);
void add_perf(CLI::App& app);
void add_explain(CLI::App& app);
// `info` and `version`.
void add_info(CLI::App& app);
// `top` and `metrics`: what running processes show of themselves.
void add_top(CLI::App& app);
// Pictures of traces, recordings and results.
void add_plot(CLI::App& app);
// After all other commands, which its pages describe.
void add_manual(CLI::App& app);
// An unmodified program over Swiftlane instead of UCX. `after_dashes` is what follows the first
// "--" of the command line, where the program and its own options may stand.
void add_run(CLI::App& app, std::vector<std::string> after_dashes);

}  // namespace tools
