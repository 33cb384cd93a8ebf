// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/engine/revocation_message.h"

#include <cstring>
#include <utility>

#include "ucs/random.h"

namespace ucp::bulk {

bool parse_cut(std::span<const std::byte> bytes, Cut* cut) {
    CutMessage& header = cut->header;
    if (bytes.size() < sizeof(header)) return false;
    std::memcpy(&header, bytes.data(), sizeof(header));
    bytes = bytes.subspan(sizeof(header));
    const std::pair<std::span<const std::byte>*, size_t> parts[] = {
        {&cut->device, header.device_length},
        {&cut->interface, header.interface_length},
        {&cut->target_device, header.target_device_length},
        {&cut->target_interface, header.target_interface_length},
    };
    for (const auto& [part, length] : parts) {
        if (length > bytes.size()) return false;
        *part = bytes.first(length);
        bytes = bytes.subspan(length);
    }
    return bytes.empty() && header.number != 0 && header.is_strand <= 1;
}

std::vector<std::byte> pack_cut(const Cut& cut) {
    CutMessage header = cut.header;
    header.device_length = static_cast<uint8_t>(cut.device.size());
    header.interface_length = static_cast<uint8_t>(cut.interface.size());
    header.target_device_length = static_cast<uint8_t>(cut.target_device.size());
    header.target_interface_length = static_cast<uint8_t>(cut.target_interface.size());
    const auto fixed = std::as_bytes(std::span(&header, 1));
    std::vector<std::byte> bytes(fixed.begin(), fixed.end());
    for (const auto part : {cut.device, cut.interface, cut.target_device, cut.target_interface}) {
        bytes.insert(bytes.end(), part.begin(), part.end());
    }
    return bytes;
}

uint64_t CutRecord::key(const Cut& cut) {
    uint64_t hash = ucs::mix64(cut.header.from) ^ ucs::mix64(cut.header.name + 1);
    for (const auto part : {cut.device, cut.interface, cut.target_device, cut.target_interface}) {
        for (const std::byte byte : part) hash = ucs::mix64(hash ^ static_cast<uint8_t>(byte));
    }
    return hash;
}

bool CutRecord::is_done(const Cut& cut) const {
    const auto found = last_.find(key(cut));
    return found != last_.end() && found->second >= cut.header.number;
}

void CutRecord::done(const Cut& cut) {
    last_[key(cut)] = cut.header.number;
}

}  // namespace ucp::bulk
