// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "ucs/sys/process.h"
#include "ucs/sys/watched_process.h"

namespace uct::sm {

using ucs::pid_namespace;
using ucs::Process;
using ucs::WatchedProcess;

}  // namespace uct::sm
