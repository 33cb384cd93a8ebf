// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <CLI/App.hpp>

namespace tools {

// `swiftlane manual`: after all other commands, which it describes.
void add_manual(CLI::App& app);

}  // namespace tools
