// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tools/program/options.h"
#include "tools/report/result.h"

namespace tools {

struct LaunchSettings {
    std::vector<std::string> arguments;  // the command line, which the ranks read again
    std::vector<std::pair<std::string, std::string>> environment;  // set for the ranks
    // Words before each rank's command, split at spaces, %r is the rank: "ip netns exec node%r".
    std::string prefix;
    bool pin = false;  // rank i on the i-th processor that this process may use
    std::function<void(const Row&)> on_row;
    // Called a few times a second with the messages per second of late; may be empty.
    std::function<void(double)> on_progress;
};

// Run one process a rank of this executable to the end. If a rank fails or dies, the others are
// killed and std::runtime_error says which it was.
RunResult launch(const BenchOptions& options, const LaunchSettings& settings);

}  // namespace tools
