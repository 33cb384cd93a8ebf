// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <CLI/App.hpp>

namespace tools {

// `swiftlane plot`: pictures of traces, recordings and results.
void add_plot(CLI::App& app);

}  // namespace tools
