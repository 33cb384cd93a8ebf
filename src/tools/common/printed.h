// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace tools {

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
