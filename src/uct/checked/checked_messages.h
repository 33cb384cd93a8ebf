// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "uct/api/interface.h"

namespace uct {

// Compares the checksums of a worker's messages before its handlers see them: the table of handlers
// of all transports below its CheckedInterfaces. Outlives them.
class CheckedMessages {
  public:
    // Where messages that are not what was sent are told of.
    struct Report {
        // @param from  whose connection it came over; null: the transport does not know
        void (*corrupted)(void* arg, PeerIdentity* from) = nullptr;
        void* arg = nullptr;
    };

    // @param handlers  get what was checked; outlive this
    CheckedMessages(const AmTable& handlers, const Report& report);
    CheckedMessages(CheckedMessages&&) = delete;

    // For the transports.
    const AmTable& table() const { return table_; }
    // Is the message what was sent, and may its sender send it? If not, that is told.
    bool admits(uint8_t id, const void* data, size_t length);
    // Messages come over that interface now.
    void polled(const InterfaceAttributes& attributes) { polled_ = &attributes; }

  private:
    struct Slot {
        CheckedMessages* self;
        uint8_t id;
    };

    static ucs_status_t receive(void* slot, void* data, size_t length,
                                ReceiveDescriptor* descriptor);
    static void lost(void* self, uint8_t id, const void* data, size_t length);

    const AmTable& handlers_;
    const Report report_;
    std::array<Slot, kMaxAmId> slots_;
    AmTable table_;
    const InterfaceAttributes* polled_ = nullptr;
    bool is_over_ = false;  // one was wrong, and the transport does not know whose it was
};

}  // namespace uct
