// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace tools {

// The CUDA devices of this host and which reach each other's memory, as lines of `info -d`; a line
// that says why if there are none. Starts the driver, but makes no context.
std::string describe_cuda_devices();

}  // namespace tools
