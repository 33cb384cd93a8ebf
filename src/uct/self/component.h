// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "uct/api/memory_domain.h"

namespace uct::self {

/** The transport from a worker to itself: "self" on the device "memory". */
Component& component();

}  // namespace uct::self
