// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/ud/wire.h"

#include <bit>
#include <cstring>

namespace uct::ib::ud {

namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint8_t kVersion = 1;
constexpr std::byte kAddressMark{0xd0};
constexpr uint32_t kMax24 = 0xffffff;
constexpr uint8_t kMaxId = 31;

enum Flag : uint8_t { kHello = 1, kAsks = 2, kNumbered = 4, kPing = 8, kMore = 16, kAll = 31 };

template <typename T>
void put(std::byte* bytes, size_t at, T value) {
    std::memcpy(bytes + at, &value, sizeof(value));
}

template <typename T>
T get(const std::byte* bytes, size_t at) {
    T value;
    std::memcpy(&value, bytes + at, sizeof(value));
    return value;
}

// Hello: port address, interface address, start, reserved 4.
constexpr size_t kAddressAt = PortAddress::kLength;
constexpr size_t kStartAt = kAddressAt + UdAddress::kLength;
constexpr size_t kReservedAt = kStartAt + sizeof(uint64_t);
static_assert(kReservedAt + sizeof(uint32_t) == Hello::kLength);
// The payload's alignment must not depend on the hello.
static_assert(Hello::kLength % 8 == 0);

void write_hello(const Hello& hello, std::byte* bytes) {
    hello.port.write({bytes, PortAddress::kLength});
    hello.address.write({bytes + kAddressAt, UdAddress::kLength});
    put(bytes, kStartAt, hello.start);
    put(bytes, kReservedAt, uint32_t{0});
}

std::optional<Hello> read_hello(const std::byte* bytes) {
    const auto port = PortAddress::read({bytes, PortAddress::kLength});
    const auto address = UdAddress::read({bytes + kAddressAt, UdAddress::kLength});
    const auto start = get<uint64_t>(bytes, kStartAt);
    if (!port || !address || start == 0 || get<uint32_t>(bytes, kReservedAt) != 0) return {};
    return Hello{*port, *address, start};
}

}  // namespace

void UdAddress::write(std::span<std::byte> bytes) const {
    bytes[0] = kAddressMark;
    for (size_t i = 0; i < 3; ++i) bytes[1 + i] = static_cast<std::byte>(number >> (8 * i));
    put(bytes.data(), 4, key);
}

std::optional<UdAddress> UdAddress::read(std::span<const std::byte> bytes) {
    if (bytes.size() != kLength || bytes[0] != kAddressMark) return {};
    const UdAddress address{get<uint32_t>(bytes.data(), 0) >> 8, get<uint32_t>(bytes.data(), 4)};
    if (address.number <= 1 || address.number >= kMax24 || address.key >> 31 != 0) return {};
    return address;
}

void Header::write(std::byte* bytes) const {
    put(bytes, 0, kVersion);
    put(bytes, 1,
        static_cast<uint8_t>((hello ? kHello : 0) | (asks_acknowledgement ? kAsks : 0) |
                             (is_numbered ? kNumbered : 0) | (is_ping ? kPing : 0) |
                             (has_more ? kMore : 0)));
    put(bytes, 2, id);
    put(bytes, 3, selective_words);
    put(bytes, 4, destination);
    put(bytes, 8, source);
    put(bytes, 12, number);
    put(bytes, 16, acknowledged);
    bytes += kLength;
    if (hello) {
        write_hello(*hello, bytes);
        bytes += Hello::kLength;
    }
    if (selective_words != 0) {
        std::memcpy(bytes, selective.data(), selective_words * sizeof(uint64_t));
    }
}

std::optional<Header> Header::read(std::span<const std::byte> bytes) {
    if (bytes.size() < kLength) return {};
    const std::byte* const data = bytes.data();
    const auto flags = get<uint8_t>(data, 1);
    Header header;
    header.asks_acknowledgement = (flags & kAsks) != 0;
    header.is_numbered = (flags & kNumbered) != 0;
    header.is_ping = (flags & kPing) != 0;
    header.has_more = (flags & kMore) != 0;
    header.id = get<uint8_t>(data, 2);
    header.selective_words = get<uint8_t>(data, 3);
    header.destination = get<uint32_t>(data, 4);
    header.source = get<uint32_t>(data, 8);
    header.number = get<uint32_t>(data, 12);
    header.acknowledged = get<uint32_t>(data, 16);

    if (get<uint8_t>(data, 0) != kVersion || (flags & ~kAll) != 0) return {};
    if (header.id > kMaxId || header.selective_words > kSelectiveWords) return {};
    if (header.source == 0) return {};
    if (!header.is_numbered && (header.is_ping || header.has_more)) return {};
    if (header.is_ping && header.has_more) return {};
    if (header.is_numbered && header.selective_words != 0) return {};
    const bool has_hello = (flags & kHello) != 0;
    if (!has_hello && header.destination == 0) return {};

    size_t at = kLength;
    if (has_hello) {
        if (bytes.size() < at + Hello::kLength) return {};
        header.hello = read_hello(data + at);
        if (!header.hello) return {};
        at += Hello::kLength;
    }
    const size_t selective_bytes = header.selective_words * sizeof(uint64_t);
    if (bytes.size() < at + selective_bytes) return {};
    if (selective_bytes != 0) {
        std::memcpy(header.selective.data(), data + at, selective_bytes);
    }
    // Nothing but messages has a payload.
    if ((!header.is_numbered || header.is_ping) && bytes.size() != at + selective_bytes) return {};
    return header;
}

}  // namespace uct::ib::ud
