// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <CLI/App.hpp>

#include <map>
#include <span>
#include <string>

#include "tools/info/variables.h"

namespace tools {

// Manual pages of the program and of each of its commands, made from the commands themselves: file
// name (swiftlane-perf.1) to text for man(7).
std::map<std::string, std::string> command_pages(CLI::App& app);

// All variables: a manual page, and docs/variables.md.
std::string variables_page(std::span<const Variable> variables);
std::string variables_markdown(std::span<const Variable> variables);

}  // namespace tools
