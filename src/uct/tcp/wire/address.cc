// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/wire/address.h"

#include <algorithm>
#include <cstring>

namespace uct::tcp {

namespace {

template <typename T>
void put(std::span<std::byte> bytes, size_t offset, const T& value) {
    std::memcpy(bytes.data() + offset, &value, sizeof(value));
}

template <typename T>
T get(std::span<const std::byte> bytes, size_t offset) {
    T value;
    std::memcpy(&value, bytes.data() + offset, sizeof(value));
    return value;
}

// Device: IP version 1, flags 1 (bit 0: loopback), IP 16, place 8.
constexpr size_t kFlags = 1, kIp = 2, kPlace = 18;
// TcpListener: port 2, zero 2, id 8, secret 16.
constexpr size_t kPort = 0, kZero = 2, kId = 4, kSecret = 12;

}  // namespace

void DeviceAddress::write(std::span<std::byte> bytes) const {
    put(bytes, 0, ip.version);
    put(bytes, kFlags, static_cast<uint8_t>(loopback ? 1 : 0));
    put(bytes, kIp, ip.bytes);
    put(bytes, kPlace, place);
}

std::optional<DeviceAddress> DeviceAddress::read(std::span<const std::byte> bytes) {
    if (bytes.size() != kLength) return std::nullopt;
    DeviceAddress address;
    address.ip.version = get<uint8_t>(bytes, 0);
    const auto flags = get<uint8_t>(bytes, kFlags);
    address.ip.bytes = get<std::array<uint8_t, 16>>(bytes, kIp);
    address.place = get<uint64_t>(bytes, kPlace);
    address.loopback = flags == 1;
    if ((address.ip.version != 4 && address.ip.version != 6) || flags > 1) return std::nullopt;
    if (std::ranges::all_of(address.ip.bytes, [](uint8_t byte) { return byte == 0; })) {
        return std::nullopt;
    }
    return address;
}

void ListenerAddress::write(std::span<std::byte> bytes) const {
    put(bytes, kPort, port);
    put(bytes, kZero, uint16_t{0});
    put(bytes, kId, id);
    put(bytes, kSecret, secret);
}

std::optional<ListenerAddress> ListenerAddress::read(std::span<const std::byte> bytes) {
    if (bytes.size() != kLength || get<uint16_t>(bytes, kZero) != 0) return std::nullopt;
    ListenerAddress address;
    address.port = get<uint16_t>(bytes, kPort);
    address.id = get<uint64_t>(bytes, kId);
    address.secret = get<wire::Secret>(bytes, kSecret);
    if (address.port == 0 || address.id == 0) return std::nullopt;
    return address;
}

}  // namespace uct::tcp
