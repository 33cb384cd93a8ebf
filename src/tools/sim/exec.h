// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <CLI/App.hpp>

namespace tools {

// Add `sim`, which hands its arguments to the simulator: a program of its own, since it has the
// library and the emulated adapter linked in.
void add_sim(CLI::App& app);

}  // namespace tools
