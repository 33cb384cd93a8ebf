// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "uct/api/memory_domain.h"

namespace uct::ib {

// The transports over RDMA adapters: dc_mlx5, rc_mlx5, rc_verbs and ud_verbs.
Component& component();

}  // namespace uct::ib
