// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>

#include "tools/common/process.h"
#include "tools/program/options.h"
#include "tools/report/result.h"

namespace tools {

struct LaunchSettings {
    ExecSettings exec;
    std::function<void(const Row&)> on_row;
    // Called a few times a second with the messages per second of late; may be empty.
    std::function<void(double)> on_progress;
};

// Run one process a rank of this executable to the end. If a rank fails or dies, the others are
// killed and std::runtime_error says which it was. After Ctrl-C, if there is an Interrupt, what was
// finished until then is returned.
RunResult launch(const BenchOptions& options, const LaunchSettings& settings);

}  // namespace tools
