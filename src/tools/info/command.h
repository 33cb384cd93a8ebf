// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <CLI/App.hpp>

namespace tools {

// Add `info` and `version`.
void add_info(CLI::App& app);

}  // namespace tools
