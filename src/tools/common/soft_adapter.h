// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

namespace tools {

// Start this command anew, with these arguments, on the emulated adapter: the loader reads its path
// at start-up only. Returns if that has been done already. Throws std::system_error.
void restart_with_soft_adapter(const std::vector<std::string>& arguments);

}  // namespace tools
