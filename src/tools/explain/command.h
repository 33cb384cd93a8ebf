// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <CLI/App.hpp>

namespace tools {

// Add `explain`.
void add_explain(CLI::App& app);

}  // namespace tools
