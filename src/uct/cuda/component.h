// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "uct/api/memory_domain.h"

namespace uct::cuda {

/** CUDA memory for the whole library (memory.h). Its buffers are staged: it has no transport. */
Component& component();

}  // namespace uct::cuda
