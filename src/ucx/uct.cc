// SPDX-License-Identifier: BSD-3-Clause
// libuct.so.0 exists to be linked with -luct; programs expect no name of it.
#include "uct/api/version.h"

static_assert(UCT_API == UCT_VERSION(UCT_VERNO_MAJOR, UCT_VERNO_MINOR));
