// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "uct/api/memory_domain.h"

namespace uct::tcp {

/** The transport over TCP: "tcp" on each network interface that is up. */
Component& component();

}  // namespace uct::tcp
