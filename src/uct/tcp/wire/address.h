// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "ucs/net/address.h"
#include "uct/tcp/wire/format.h"

namespace uct::tcp {

// A device's address: where it is in the network.
struct DeviceAddress {
    static constexpr size_t kLength = 26;

    ucs::net::IpAddress ip;
    bool loopback = false;
    uint64_t place = 0;  // network_namespace_id(): who shares a loopback

    void write(std::span<std::byte> bytes) const;
    static std::optional<DeviceAddress> read(std::span<const std::byte> bytes);
    friend bool operator==(const DeviceAddress&, const DeviceAddress&) = default;
};

// An interface's address: its port, its name among all, and what admits to it.
struct ListenerAddress {
    static constexpr size_t kLength = 28;

    uint16_t port = 0;
    uint64_t id = 0;
    wire::Secret secret{};

    void write(std::span<std::byte> bytes) const;
    static std::optional<ListenerAddress> read(std::span<const std::byte> bytes);
    friend bool operator==(const ListenerAddress&, const ListenerAddress&) = default;
};

}  // namespace uct::tcp
