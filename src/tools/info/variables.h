// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tools {

// A variable of the library or of one of its modules.
struct Variable {
    std::string name;  // UCX_TLS
    std::string value;
    std::string default_value;
    std::string expected;
    std::string help;
    std::vector<std::string> fallbacks;  // variables that set it where it is not set itself
    std::string table;                   // whose it is: "protocols and lanes"
};

// What ucp_config_print() writes. Throws std::runtime_error.
std::string configuration(const char* title, unsigned flags);

// All of them, in the order of `swiftlane info -f`. Throws std::runtime_error.
std::vector<Variable> read_variables();

// Reads what ucp_config_print() writes with documentation.
std::vector<Variable> parse_variables(std::string_view text);

}  // namespace tools
