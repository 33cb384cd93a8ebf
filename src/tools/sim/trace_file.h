// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "tools/program/replay.h"

namespace tools {

// Throws std::runtime_error with the file's name and line where it is not a trace, and where the
// ranks' steps do not fit together: a message without a receive or with one that is too short, a
// barrier that not all enter.
Trace load_trace(const std::string& path);

}  // namespace tools
