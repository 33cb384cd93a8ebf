// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <new>

#include "uct/api/interface.h"

namespace uct {

/**
 * Hand one message to its handler. A handler without memory must not leave the transport in the
 * middle of its queue: the loss is told to the table's owner.
 * @return true if the handler kept the descriptor
 */
inline bool dispatch_am(const AmTable& table, uint8_t id, void* data, size_t length,
                        ReceiveDescriptor* descriptor) {
    const AmTable::Entry& entry = table.entries[id];
    try {
        return entry.handler(entry.arg, data, length, descriptor) == UCS_INPROGRESS;
    } catch (const std::bad_alloc&) {
        if (table.lost == nullptr) throw;
        table.lost(table.lost_arg, id, data, length);
        return false;
    }
}

/** The same for a message whose sender the transport knows. */
inline bool dispatch_am_from(const AmTable& table, PeerIdentity& from, uint8_t id, void* data,
                             size_t length, ReceiveDescriptor* descriptor) {
    if (table.admits == nullptr) return dispatch_am(table, id, data, length, descriptor);
    if (!table.admits(table.admits_arg, from, id, data, length)) return false;
    // However the handler ends: one of the program's may throw.
    struct Sender {
        Sender(PeerIdentity** place, PeerIdentity& from) : place_(place) { *place_ = &from; }
        ~Sender() { *place_ = nullptr; }
        Sender(const Sender&) = delete;
        Sender& operator=(const Sender&) = delete;

      private:
        PeerIdentity** const place_;
    } const sender(table.sender, from);
    return dispatch_am(table, id, data, length, descriptor);
}

/** Fill a table with handlers that drop what nobody expects; ids come from outside. */
inline void drop_all(AmTable& table) {
    table.entries.fill(
        {[](void*, void*, size_t, ReceiveDescriptor*) -> ucs_status_t { return UCS_OK; }, nullptr});
}

}  // namespace uct
