// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <CLI/App.hpp>

namespace tools {

// `swiftlane top` and `swiftlane metrics`: what running processes show of themselves.
void add_top(CLI::App& app);

}  // namespace tools
