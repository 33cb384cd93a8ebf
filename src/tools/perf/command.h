// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <CLI/App.hpp>

namespace tools {

// `swiftlane perf`. The arguments of the program are needed to start the processes of a run.
void add_perf(CLI::App& app, int argc, char** argv);

}  // namespace tools
