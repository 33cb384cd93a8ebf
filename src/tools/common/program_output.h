// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

namespace tools {

// What a program that has ended has left.
struct ProgramOutput {
    int status = 0;  // as waitpid() gives it
    std::string out;
    std::string err;
};

// Run words[0], looked for in PATH, to its end, with `input` as its standard input. Throws
// std::system_error if it does not start; ENOENT: it is not there.
ProgramOutput output_of(std::vector<std::string> words, const std::string& input = {});

}  // namespace tools
