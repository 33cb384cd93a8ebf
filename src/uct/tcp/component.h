// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "uct/api/memory_domain.h"

namespace uct::tcp {

// The transport over TCP: "tcp" on each network interface that is up.
Component& component();

// UCX_TCP_JOB_KEY of this process; empty: there is none.
std::string job_key();

}  // namespace uct::tcp
