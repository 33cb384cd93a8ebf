// SPDX-License-Identifier: BSD-3-Clause
// Compiled alone: it is off by default, and shall not change what compilers inline of transports.
#include "uct/checked/checked_messages.h"

#include <cstring>
#include <string_view>

#include "ucs/log/log.h"
#include "uct/checked/checked_endpoint.h"
#include "uct/checked/crc32c.h"

namespace uct {
namespace {

bool is_whole(uint8_t id, const void* data, size_t length) {
    CheckWord word;
    if (length < sizeof(word)) return false;
    std::memcpy(&word, data, sizeof(word));
    const std::byte* const message = static_cast<const std::byte*>(data) + sizeof(word);
    if (word.length != length - sizeof(word)) return false;
    return crc32c(id, message, word.length) == word.crc;
}

}  // namespace

CheckedMessages::CheckedMessages(const AmTable& handlers, const Report& report)
    : handlers_(handlers), report_(report) {
    for (unsigned id = 0; id < kMaxAmId; ++id) {
        slots_[id] = {this, static_cast<uint8_t>(id)};
        table_.entries[id] = {receive, &slots_[id]};
    }
    table_.lost = handlers.lost != nullptr ? lost : nullptr;
    table_.lost_arg = this;
    table_.sender = handlers.sender;
    table_.is_enough = handlers.is_enough;
    // What a message says is not asked about before it is known to be what was sent.
    if (table_.sender != nullptr)
        table_.admits = [](void*, PeerIdentity&, uint8_t, const void*, size_t) { return true; };
}

bool CheckedMessages::admits(uint8_t id, const void* data, size_t length) {
    PeerIdentity* const from = handlers_.sender != nullptr ? *handlers_.sender : nullptr;
    if (from != nullptr ? from->is_over : is_over_) return false;
    if (!is_whole(id, data, length)) [[unlikely]] {
        ucs::log_error(
            "a message of kind {} and {} bytes came over {} on {} and is not what was sent: its "
            "checksum (UCX_CHECKSUM) is wrong",
            id, length, polled_ != nullptr ? std::string_view(polled_->transport) : "?",
            polled_ != nullptr ? std::string_view(polled_->device) : "?");
        if (from == nullptr) is_over_ = true;
        report_.corrupted(report_.arg, from);
        return false;
    }
    return from == nullptr || handlers_.admits == nullptr ||
           handlers_.admits(handlers_.admits_arg, *from, id,
                            static_cast<const std::byte*>(data) + sizeof(CheckWord),
                            length - sizeof(CheckWord));
}

ucs_status_t CheckedMessages::receive(void* arg, void* data, size_t length,
                                      ReceiveDescriptor* descriptor) {
    const auto& [self, id] = *static_cast<const Slot*>(arg);
    if (!self->admits(id, data, length)) return UCS_OK;
    const AmTable::Entry& entry = self->handlers_.entries[id];
    return entry.handler(entry.arg, static_cast<std::byte*>(data) + sizeof(CheckWord),
                         length - sizeof(CheckWord), descriptor);
}

// A handler had no memory: the message had been checked.
void CheckedMessages::lost(void* arg, uint8_t id, const void* data, size_t length) {
    const AmTable& handlers = static_cast<CheckedMessages*>(arg)->handlers_;
    handlers.lost(handlers.lost_arg, id, static_cast<const std::byte*>(data) + sizeof(CheckWord),
                  length - sizeof(CheckWord));
}

}  // namespace uct
