// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <string_view>

namespace tools {

// Text as roff takes it: no command at the start of a line, dashes that can be copied.
std::string roff(std::string_view text);

// How a manual page begins.
std::string page_head(std::string_view name, int section, std::string_view summary);

// The manual page of a command, made from the command itself; `name` is its words, joined by
// dashes.
std::string command_page(CLI::App& app, const std::string& name);

}  // namespace tools
