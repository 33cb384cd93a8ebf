// SPDX-License-Identifier: BSD-3-Clause
// In libucp as installed, the names by which memory events are asked for lead to libswiftlane_ucm.
// They are not exported.
#include "ucm/functions.h"

ucs_status_t ucm_set_event_handler(int events, int priority, ucm_event_callback_t cb, void* arg) {
    return swiftlane_ucm_set_event_handler(events, priority, cb, arg);
}

void ucm_unset_event_handler(int events, ucm_event_callback_t cb, void* arg) {
    swiftlane_ucm_unset_event_handler(events, cb, arg);
}
