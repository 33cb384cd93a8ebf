// SPDX-License-Identifier: BSD-3-Clause
// Compiled alone: it is off by default, and shall not change what compilers inline of transports.
#include "uct/checked/checked_endpoint.h"

#include <array>
#include <cstring>
#include <utility>

#include "uct/checked/checked_interface.h"
#include "uct/checked/crc32c.h"

namespace uct {
namespace {

// A message that another callback packs, with its word in front.
struct Packed {
    uint8_t id;
    PackCallback pack;
    void* arg;

    static size_t with_word(void* destination, void* arg) {
        const Packed& self = *static_cast<Packed*>(arg);
        std::byte* const message = static_cast<std::byte*>(destination) + sizeof(CheckWord);
        const size_t length = self.pack(message, self.arg);
        const CheckWord word{crc32c(self.id, message, length), static_cast<uint32_t>(length)};
        std::memcpy(destination, &word, sizeof(word));
        return sizeof(word) + length;
    }
};

}  // namespace

CheckedEndpoint::CheckedEndpoint(CheckedInterface& interface, std::unique_ptr<Endpoint> inner)
    : ForwardingEndpoint(interface, std::move(inner)), gate_(interface) {}

ucs_status_t CheckedEndpoint::am_short(uint8_t id, uint64_t header, const void* payload,
                                       uint32_t length) {
    std::array<std::byte, sizeof(header) + kMostShort> message;
    std::memcpy(message.data(), &header, sizeof(header));
    if (length != 0) std::memcpy(message.data() + sizeof(header), payload, length);
    const uint32_t whole = static_cast<uint32_t>(sizeof(header)) + length;
    const CheckWord word{crc32c(id, message.data(), whole), whole};
    uint64_t in_front;
    static_assert(sizeof(in_front) == sizeof(word));
    std::memcpy(&in_front, &word, sizeof(word));
    return inner().am_short(id, in_front, message.data(), whole);
}

ssize_t CheckedEndpoint::am_bcopy(uint8_t id, PackCallback pack, void* arg) {
    Packed packed{id, pack, arg};
    const ssize_t sent = inner().am_bcopy(id, Packed::with_word, &packed);
    return sent < 0 ? sent : sent - static_cast<ssize_t>(sizeof(CheckWord));
}

ucs_status_t CheckedEndpoint::am_zcopy(uint8_t id, std::span<const std::byte> header,
                                       std::span<const Iov> iov, Completion* completion) {
    size_t length = header.size();
    for (const Iov& piece : iov) length += piece.length;
    CheckWord word{crc32c(id, header.data(), header.size()), static_cast<uint32_t>(length)};
    for (const Iov& piece : iov) word.crc = crc32c(word.crc, piece.buffer, piece.length);
    std::array<std::byte, sizeof(word) + kMostHeader> front;
    std::memcpy(front.data(), &word, sizeof(word));
    if (!header.empty()) std::memcpy(front.data() + sizeof(word), header.data(), header.size());
    return inner().am_zcopy(id, std::span(front).first(sizeof(word) + header.size()), iov,
                            completion);
}

void CheckedEndpoint::set_receive_gate(ReceiveGate* gate) {
    gate_.set_next(gate);
    ForwardingEndpoint::set_receive_gate(gate != nullptr ? &gate_ : nullptr);
}

void CheckedEndpoint::Gate::hold(uint8_t id, const void* data, size_t length) {
    if (!interface_.admits(id, data, length)) return;
    next_->hold(id, static_cast<const std::byte*>(data) + sizeof(CheckWord),
                length - sizeof(CheckWord));
}

}  // namespace uct
