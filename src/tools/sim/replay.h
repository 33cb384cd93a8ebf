// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/program/rank.h"

namespace tools {

// What the ranks of a program did, as a file tells it (docs/benchmarks.md has its form).
struct ProgramTrace {
    struct Step {
        enum class Kind : uint8_t { kSend, kReceive, kWait, kBarrier, kCompute } kind;
        unsigned peer = 0;
        uint64_t size = 0;  // bytes
        int64_t time = 0;   // nanoseconds
    };
    std::vector<std::vector<Step>> ranks;  // each one's steps, in their order
    uint64_t largest = 0;                  // message, bytes
};

struct ReplayOptions {
    std::string path;
    ProgramTrace trace;
};

// Each rank's steps, one after the other; sends and receives are awaited by `wait`, and at the end.
Task replay(Rank& rank, const ReplayOptions& options);

// Throws std::runtime_error with the file's name and line where it is not a trace, and where the
// ranks' steps do not fit together: a message without a receive or with one that is too short, a
// barrier that not all enter.
ProgramTrace load_trace(const std::string& path);

}  // namespace tools
