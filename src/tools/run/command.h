// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <CLI/App.hpp>

namespace tools {

// Add `run`: an unmodified program over Swiftlane instead of UCX.
void add_run(CLI::App& app);

}  // namespace tools
