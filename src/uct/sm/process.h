// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "ucs/sys/process.h"

namespace uct::sm {

using ucs::pid_namespace;
using ucs::Process;

}  // namespace uct::sm
