// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
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

// The commands and options of `sim` are known to the simulator alone, a program of its own, which
// prints what it is asked for.
inline constexpr char kSayManual[] = "--say-manual";          // its manual page
inline constexpr char kSayCompletion[] = "--say-completion";  // completion_cases()

// What the simulator prints for one of these; nothing where there is no simulator.
std::string simulator_says(const char* what);

// What print(FILE*) writes. Throws std::runtime_error if there is no memory.
template <typename Print>
std::string printed(Print print) {
    char* text = nullptr;
    size_t length = 0;
    std::FILE* const stream = open_memstream(&text, &length);
    if (stream == nullptr) throw std::runtime_error("no memory for a text");
    print(stream);
    std::fclose(stream);
    std::string result(text, length);
    std::free(text);
    return result;
}

}  // namespace tools
