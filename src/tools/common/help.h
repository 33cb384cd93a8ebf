// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <CLI/App.hpp>

#include <span>
#include <string>

namespace tools {

// A line on the first word that is no command where one is expected, with the nearest one that is;
// empty if there is none such. `words` are those behind the program's name.
std::string unknown_command(CLI::App& app, std::span<char* const> words);

// A program for bash that completes commands and options, made from the commands themselves:
// source <(swiftlane completion)
std::string bash_completion(CLI::App& app);

}  // namespace tools
