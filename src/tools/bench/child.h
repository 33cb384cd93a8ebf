// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "tools/program/patterns.h"

namespace tools {

// A rank's place in its job, as the launcher hands it down in the environment.
struct JobPlace {
    static constexpr const char* kVariable = "SWIFTLANE_BENCH_PLACE";

    unsigned rank;
    int socket;
    int shared;

    std::string to_string() const;
    // Throws std::invalid_argument.
    static JobPlace from_string(const std::string& text);
};

// The life of one rank of a benchmark. Throws on any failure.
void run_child(const JobPlace& place, const Pattern<BenchOptions>& pattern, BenchOptions options,
               const std::string& memory);

}  // namespace tools
