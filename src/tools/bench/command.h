// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <CLI/App.hpp>

namespace tools {

// Add `bench` and its benchmarks to the command line. `argc` and `argv` are the whole line, which
// the ranks are started with.
void add_bench(CLI::App& app, int argc, char** argv);

}  // namespace tools
