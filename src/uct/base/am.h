// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "uct/api/interface.h"

namespace uct {

/** Hand one message to its handler. @return true if the handler kept the descriptor */
inline bool dispatch_am(const AmTable& table, uint8_t id, void* data, size_t length,
                        ReceiveDescriptor* descriptor) {
    const AmTable::Entry& entry = table.entries[id];
    return entry.handler(entry.arg, data, length, descriptor) == UCS_INPROGRESS;
}

/** Fill a table with handlers that drop what nobody expects; ids come from outside. */
inline void drop_all(AmTable& table) {
    table.entries.fill(
        {[](void*, void*, size_t, ReceiveDescriptor*) -> ucs_status_t { return UCS_OK; }, nullptr});
}

}  // namespace uct
