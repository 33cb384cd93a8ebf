// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/base/address.h"

#include <algorithm>
#include <cstring>

namespace uct::ib {

namespace {

constexpr uint8_t kVersion = 1;
constexpr uint8_t kEthernet = 0x10, kRouted = 0x20;
constexpr uint8_t kDctMark = 0xd2, kQpMark = 0xa1;
constexpr uint32_t kMax24 = 0xffffff;
constexpr uint16_t kFirstMulticastLid = 0xc000;
constexpr size_t kMappedPrefix = 12;  // bytes before the IPv4 address

uint8_t byte_at(std::span<const std::byte> bytes, size_t at) {
    return std::to_integer<uint8_t>(bytes[at]);
}

void write24(std::span<std::byte> bytes, size_t at, uint32_t value) {
    for (size_t i = 0; i < 3; ++i) bytes[at + i] = static_cast<std::byte>(value >> (8 * i));
}

uint32_t read24(std::span<const std::byte> bytes, size_t at) {
    return byte_at(bytes, at) | uint32_t{byte_at(bytes, at + 1)} << 8 |
           uint32_t{byte_at(bytes, at + 2)} << 16;
}

bool is_number(uint32_t qp_number) {
    return qp_number > 1 && qp_number < kMax24;  // 0, 1 and 2^24 - 1 have other meanings
}

}  // namespace

void PortAddress::write(std::span<std::byte> bytes) const {
    bytes[0] =
        static_cast<std::byte>(kVersion | (ethernet ? kEthernet : 0) | (routed ? kRouted : 0));
    bytes[1] = static_cast<std::byte>(mtu);
    bytes[2] = static_cast<std::byte>(lid);
    bytes[3] = static_cast<std::byte>(lid >> 8);
    std::memcpy(&bytes[4], gid.data(), gid.size());
}

std::optional<PortAddress> PortAddress::read(std::span<const std::byte> bytes) {
    if (bytes.size() != kLength) return {};
    const uint8_t flags = byte_at(bytes, 0);
    PortAddress address;
    address.ethernet = (flags & kEthernet) != 0;
    address.routed = (flags & kRouted) != 0;
    address.mtu = byte_at(bytes, 1);
    address.lid = static_cast<uint16_t>(byte_at(bytes, 2) | byte_at(bytes, 3) << 8);
    std::memcpy(address.gid.data(), &bytes[4], address.gid.size());

    if ((flags & ~(kEthernet | kRouted)) != kVersion) return {};
    if (address.ethernet && address.routed) return {};
    if (address.mtu < 1 || address.mtu > 5) return {};
    if (address.lid >= kFirstMulticastLid) return {};
    if (address.ethernet != (address.lid == 0)) return {};
    const bool has_gid = std::ranges::any_of(address.gid, [](uint8_t byte) { return byte != 0; });
    if (!has_gid || address.gid[0] == 0xff) return {};  // multicast GIDs begin with 0xff
    return address;
}

uint64_t PortAddress::subnet_prefix() const {
    uint64_t prefix;
    std::memcpy(&prefix, gid.data(), sizeof(prefix));
    return prefix;
}

bool is_mapped_ipv4(const uint8_t* gid) {
    static constexpr uint8_t kPrefix[kMappedPrefix] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return std::memcmp(gid, kPrefix, sizeof(kPrefix)) == 0;
}

bool PortAddress::is_source(uint16_t slid, std::span<const std::byte> grh) const {
    constexpr size_t kGrh = 40, kGrhSource = 8, kIpv4 = 20, kIpv4Source = kIpv4 + 12;
    // On Ethernet there always is one.
    if (grh.size() != kGrh) return !ethernet && slid == lid;
    // An IPv4 header's checksum need not be there: Soft-RoCE writes none for its own host. Without
    // it, a GRH could pass for one only where IPv6 leads to this port, and IPv4 to that one.
    if (is_mapped_ipv4(gid.data()) && byte_at(grh, kIpv4) == 0x45)
        return std::memcmp(&grh[kIpv4Source], &gid[kMappedPrefix], 4) == 0;
    return std::memcmp(&grh[kGrhSource], gid.data(), gid.size()) == 0;
}

bool PortAddress::reachable_from(const PortAddress& local) const {
    if (ethernet != local.ethernet) return false;
    return ethernet || subnet_prefix() == local.subnet_prefix() || (routed && local.routed);
}

void DctAddress::write(std::span<std::byte> bytes) const {
    bytes[0] = std::byte{kDctMark};
    write24(bytes, 1, number);
    std::memcpy(&bytes[4], key.data(), key.size());
}

std::optional<DctAddress> DctAddress::read(std::span<const std::byte> bytes) {
    if (bytes.size() != kLength || byte_at(bytes, 0) != kDctMark) return {};
    DctAddress address;
    address.number = read24(bytes, 1);
    std::memcpy(address.key.data(), &bytes[4], address.key.size());
    return is_number(address.number) ? std::optional(address) : std::nullopt;
}

void QpAddress::write(std::span<std::byte> bytes) const {
    bytes[0] = std::byte{kQpMark};
    write24(bytes, 1, number);
    write24(bytes, 4, packet_number);
    bytes[7] = static_cast<std::byte>(max_rd_atomic);
}

std::optional<QpAddress> QpAddress::read(std::span<const std::byte> bytes) {
    if (bytes.size() != kLength || byte_at(bytes, 0) != kQpMark) return {};
    const QpAddress address{read24(bytes, 1), read24(bytes, 4), byte_at(bytes, 7)};
    if (!is_number(address.number)) return {};
    return address;
}

}  // namespace uct::ib
