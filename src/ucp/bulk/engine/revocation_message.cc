// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/engine/revocation_message.h"

#include <cstring>
#include <utility>

#include "ucs/sys/random.h"

namespace ucp::bulk {

bool parse_revoke(std::span<const std::byte> bytes, RevokeMessage* message) {
    RevokeHeader& header = message->header;
    if (bytes.size() < sizeof(header)) return false;
    std::memcpy(&header, bytes.data(), sizeof(header));
    bytes = bytes.subspan(sizeof(header));
    const std::pair<std::span<const std::byte>*, size_t> parts[] = {
        {&message->device, header.device_length},
        {&message->interface, header.interface_length},
        {&message->target_device, header.target_device_length},
        {&message->target_interface, header.target_interface_length},
    };
    for (const auto& [part, length] : parts) {
        if (length > bytes.size()) return false;
        *part = bytes.first(length);
        bytes = bytes.subspan(length);
    }
    return bytes.empty() && header.number != 0 && header.is_queue_pair <= 1;
}

std::vector<std::byte> pack_revoke(const RevokeMessage& message) {
    RevokeHeader header = message.header;
    header.device_length = static_cast<uint8_t>(message.device.size());
    header.interface_length = static_cast<uint8_t>(message.interface.size());
    header.target_device_length = static_cast<uint8_t>(message.target_device.size());
    header.target_interface_length = static_cast<uint8_t>(message.target_interface.size());
    const auto fixed = std::as_bytes(std::span(&header, 1));
    std::vector<std::byte> bytes(fixed.begin(), fixed.end());
    for (const auto part :
         {message.device, message.interface, message.target_device, message.target_interface}) {
        bytes.insert(bytes.end(), part.begin(), part.end());
    }
    return bytes;
}

uint64_t RevocationRecord::key(const RevokeMessage& message) {
    uint64_t hash = ucs::mix64(message.header.from) ^ ucs::mix64(message.header.name + 1);
    for (const auto part :
         {message.device, message.interface, message.target_device, message.target_interface}) {
        for (const std::byte byte : part) hash = ucs::mix64(hash ^ static_cast<uint8_t>(byte));
    }
    return hash;
}

bool RevocationRecord::is_done(const RevokeMessage& message) const {
    const auto found = last_.find(key(message));
    return found != last_.end() && found->second >= message.header.number;
}

void RevocationRecord::done(const RevokeMessage& message) {
    last_[key(message)] = message.header.number;
}

}  // namespace ucp::bulk
