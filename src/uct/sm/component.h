// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "uct/api/memory_domain.h"

namespace uct::sm {

// Transports between processes of one host: sm_fifo and sm_ring on the device "memory".
Component& component();

}  // namespace uct::sm
