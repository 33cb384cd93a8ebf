// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/queue_pairs/addresses.h"

#include <cstring>

namespace ucp::bulk {
namespace {

#pragma pack(push, 1)
struct Header {
    uint32_t kind;
    uint8_t domain;
    uint8_t partner_domain;
    uint8_t count;
    uint8_t device_length;
    uint8_t address_length;
};
#pragma pack(pop)

void append(std::vector<std::byte>& bytes, std::span<const std::byte> more) {
    bytes.insert(bytes.end(), more.begin(), more.end());
}

}  // namespace

std::vector<std::byte> encode(std::span<const RailAddresses> rails) {
    std::vector<std::byte> bytes;
    for (const RailAddresses& rail : rails) {
        const size_t length = rail.addresses.empty() ? 0 : rail.addresses.front().size();
        const Header header{rail.kind,
                            rail.domain,
                            rail.partner_domain,
                            static_cast<uint8_t>(rail.addresses.size()),
                            static_cast<uint8_t>(rail.device.size()),
                            static_cast<uint8_t>(length)};
        append(bytes, std::as_bytes(std::span(&header, 1)));
        append(bytes, rail.device);
        for (const auto& address : rail.addresses) append(bytes, address);
    }
    return bytes;
}

std::optional<std::vector<RailAddresses>> decode_rail_addresses(std::span<const std::byte> bytes) {
    std::vector<RailAddresses> rails;
    const auto take = [&bytes](size_t length) {
        const auto part = bytes.first(length);
        bytes = bytes.subspan(length);
        return std::vector<std::byte>(part.begin(), part.end());
    };
    while (!bytes.empty()) {
        Header header;
        if (bytes.size() < sizeof(header)) return {};
        std::memcpy(&header, bytes.data(), sizeof(header));
        bytes = bytes.subspan(sizeof(header));
        const size_t rest =
            size_t{header.device_length} + size_t{header.count} * size_t{header.address_length};
        const bool has_length = header.address_length != 0;
        if (header.count > kMaxQueuePairsPerRail || has_length != (header.count != 0) ||
            bytes.size() < rest) {
            return {};
        }
        RailAddresses& rail = rails.emplace_back();
        rail.kind = header.kind;
        rail.domain = header.domain;
        rail.partner_domain = header.partner_domain;
        rail.device = take(header.device_length);
        for (unsigned i = 0; i < header.count; ++i) {
            rail.addresses.push_back(take(header.address_length));
        }
    }
    return rails;
}

}  // namespace ucp::bulk
