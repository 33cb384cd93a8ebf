// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/perf/channel.h"
#include "tools/perf/options.h"
#include "tools/perf/report.h"

namespace tools::perf {

// What is said while it runs; on_progress may be empty.
struct Listener {
    std::function<void(const std::string& lane)> on_lane;
    std::function<void(const Row&)> on_row;
    std::function<void(const std::string&)> on_progress;
    // After Ctrl-C, with what was finished; threads are at work: it ends the process.
    std::function<void(const std::vector<Row>&)> on_interrupt;
};

// The process that takes the time. The other end of the channel is run_target(). Throws on any
// failure; what the library holds refers to the stack that is gone then: end the process.
std::vector<Row> run_initiator(Channel& channel, const Options& options, const Listener& listener);

// The other process, for one initiator.
void run_target(Channel& channel);

}  // namespace tools::perf
