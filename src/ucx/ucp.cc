// SPDX-License-Identifier: BSD-3-Clause
// In the library as installed: the events' weak references alone would not have libucm loaded.
#include "ucm/api/ucm.h"

namespace {
[[gnu::used]] auto* const needed = &ucm_set_event_handler;
}
