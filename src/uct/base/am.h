// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <new>

#include "uct/api/interface.h"

namespace uct {

// Hand one message to its handler. A handler without memory must not leave the transport in the
// middle of its queue: the loss is told to the table's owner.
// @return true if the handler kept the descriptor
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

// The same; release() gives the message back unless its handler has kept it: also if that throws,
// or its thread is cancelled there.
template <typename Release>
inline void dispatch_am_once(const AmTable& table, uint8_t id, void* data, size_t length,
                             ReceiveDescriptor* descriptor, Release release) {
    try {
        if (dispatch_am(table, id, data, length, descriptor)) return;
    } catch (...) {
        release();
        throw;
    }
    release();
}

// Pack what is to be sent; a generic datatype's pack is the program's and may throw: release()
// gives back then what was taken to send it.
template <typename Release>
size_t pack_or_release(PackCallback pack, void* to, void* arg, Release release) {
    try {
        return pack(to, arg);
    } catch (...) {
        release();
        throw;
    }
}

// May a message of that sender be handed over? One that there is no memory to ask about is lost.
[[gnu::noinline]] inline bool is_admitted(const AmTable& table, PeerIdentity& from, uint8_t id,
                                          const void* data, size_t length) {
    try {
        return table.admits(table.admits_arg, from, id, data, length);
    } catch (const std::bad_alloc&) {
        if (table.lost == nullptr) throw;
        table.lost(table.lost_arg, id, data, length);
        return false;
    }
}

// As dispatch_am(), a message whose sender the transport knows.
inline bool dispatch_am_from(const AmTable& table, PeerIdentity& from, uint8_t id, void* data,
                             size_t length, ReceiveDescriptor* descriptor) {
    if (table.admits == nullptr) return dispatch_am(table, id, data, length, descriptor);
    if (!is_admitted(table, from, id, data, length)) return false;
    // However the handler ends: one of the program's may throw.
    struct SenderScope {
        SenderScope(PeerIdentity** place, PeerIdentity& from) : place_(place) { *place_ = &from; }
        ~SenderScope() { *place_ = nullptr; }
        SenderScope(SenderScope&&) = delete;

      private:
        PeerIdentity** const place_;
    } const sender(table.sender, from);
    return dispatch_am(table, id, data, length, descriptor);
}

// The same for messages of which most are short and name nobody: the worker is asked only about
// those that it wants to be asked about. Who is the sender stands in the table's place for the
// whole of a poll, so that one message costs no more than to write it there.
class SenderPlace {
  public:
    explicit SenderPlace(const AmTable& table)
        : table_(table), place_(table.sender != nullptr ? table.sender : &nobody_) {}
    SenderPlace(SenderPlace&&) = delete;

    // No message is handled any more.
    void clear() { *place_ = nullptr; }

    // Messages come from that peer until another one is set.
    void set(PeerIdentity& from) { *place_ = &from; }
    // May the message be handed over? Whom it is from is known until the next one.
    bool admits(PeerIdentity& from, uint8_t id, const void* data, size_t length) {
        set(from);
        return admits_next(from, id, data, length);
    }
    // The same of one from the peer that is set.
    bool admits_next(PeerIdentity& from, uint8_t id, const void* data, size_t length) {
        return (table_.asked >> id & 1) == 0 || is_admitted(table_, from, id, data, length);
    }

  private:
    const AmTable& table_;
    PeerIdentity* nobody_ = nullptr;
    PeerIdentity** const place_;
};

// The identity goes, perhaps while a message of it is handled.
inline void forget_sender(const AmTable& table, const PeerIdentity& from) {
    if (table.sender != nullptr && *table.sender == &from) *table.sender = nullptr;
}

// Until its end, however that comes about, messages are handled.
class SenderScope : public SenderPlace {
  public:
    using SenderPlace::SenderPlace;
    ~SenderScope() { clear(); }
};

// Fill a table with handlers that drop what nobody expects; ids come from outside.
inline void drop_all(AmTable& table) {
    table.entries.fill(
        {[](void*, void*, size_t, ReceiveDescriptor*) -> ucs_status_t { return UCS_OK; }, nullptr});
}

}  // namespace uct
