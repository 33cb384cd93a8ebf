// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

namespace tools {

// Add `run`: an unmodified program over Swiftlane instead of UCX. `after_dashes` is what follows
// the first "--" of the command line, where the program and its own options may stand.
void add_run(CLI::App& app, std::vector<std::string> after_dashes);

}  // namespace tools
