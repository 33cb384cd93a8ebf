// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

namespace ucs {

// Writes to the log, whatever its level, what the user has asked for by a variable of its own.
void log_requested(std::string_view text);

}  // namespace ucs
