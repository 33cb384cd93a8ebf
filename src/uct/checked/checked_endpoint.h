// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "uct/base/forwarding.h"

namespace uct {

class CheckedInterface;

// What goes before each message that is checked (docs/design/checksums.md).
struct CheckWord {
    uint32_t crc;     // crc32c() of the message, beginning with its id
    uint32_t length;  // of the message, without this word
};

// An endpoint of a CheckedInterface: each message gets a CheckWord. Messages only.
class CheckedEndpoint final : public ForwardingEndpoint {
  public:
    // Bytes of a short message: it is put together on the stack.
    static constexpr size_t kMostShort = 256;
    // Of the header of a message that is gathered, which gets the word in front.
    static constexpr size_t kMostHeader = 256;

    CheckedEndpoint(CheckedInterface& interface, std::unique_ptr<Endpoint> inner);

    ucs_status_t am_short(uint8_t id, uint64_t header, const void* payload,
                          uint32_t length) override;
    ssize_t am_bcopy(uint8_t id, PackCallback pack, void* arg) override;
    ucs_status_t am_zcopy(uint8_t id, std::span<const std::byte> header, std::span<const Iov> iov,
                          Completion* completion) override;

    void set_receive_gate(ReceiveGate* gate) override;

  private:
    // Before the gate of whoever uses the endpoint: that gets what was checked.
    class Gate final : public ReceiveGate {
      public:
        explicit Gate(CheckedInterface& interface) : interface_(interface) {}
        void set_next(ReceiveGate* next) { next_ = next; }
        void hold(uint8_t id, const void* data, size_t length) override;

      private:
        CheckedInterface& interface_;
        ReceiveGate* next_ = nullptr;
    };

    Gate gate_;
};

}  // namespace uct
