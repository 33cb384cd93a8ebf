// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <CLI/CLI.hpp>

#include <span>
#include <string>
#include <vector>

namespace tools {

std::vector<CLI::App*> commands_of(CLI::App& app);

// Say what is wrong with a command line, `words` behind the program's name: if one is no command
// where one is expected, or no option of the command before it, which is the nearest that is. Or
// print the help that was asked for. Returns the exit code.
int tell_misuse(CLI::App& app, const CLI::ParseError& error, std::span<char* const> words);

// A program for bash that completes commands and options: source <(swiftlane completion). `cases`
// are completion_cases() of the program's commands; of two for one command the first counts.
std::string bash_completion(const std::string& cases);

// Cases for the command whose words are `path`, and for all below it, made from the commands
// themselves.
std::string completion_cases(CLI::App& app, const std::string& path);

}  // namespace tools
