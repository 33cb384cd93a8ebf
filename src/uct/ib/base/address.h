// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <span>

#include "ucs/net/key_pair.h"

// Addresses on the wire. Little-endian, of fixed length; every byte is checked when read.
namespace uct::ib {

using Gid = std::array<uint8_t, 16>;

// The GID of an IPv4 address (RoCE v2; RFC 4291, section 2.5.5.2). @param gid  16 bytes
bool is_mapped_ipv4(const uint8_t* gid);

// Where a port is: what a packet needs to get there. The key of shared address handles.
struct PortAddress {
    bool ethernet = false;
    bool routed = false;  // needs a GRH although it is InfiniBand
    uint8_t mtu = 0;      // enum ibv_mtu
    uint16_t lid = 0;
    Gid gid{};

    static constexpr size_t kLength = 20;
    void write(std::span<std::byte> bytes) const;
    static std::optional<PortAddress> read(std::span<const std::byte> bytes);

    uint64_t subnet_prefix() const;
    // Did a datagram come from there?
    // @param slid  of its completion
    // @param grh   the 40 bytes before it, if they were written: a GRH, or an IPv4 header at their
    //              end
    bool is_source(uint16_t slid, std::span<const std::byte> grh) const;
    // Can a port with the address `local` send there?
    bool reachable_from(const PortAddress& local) const;

    friend auto operator<=>(const PortAddress&, const PortAddress&) = default;
};

// A target of dynamically connected senders: the interface address of dc_mlx5.
struct DctAddress {
    uint32_t number = 0;      // 24 bits
    ucs::net::PublicKey key;  // of the worker: DcKeys

    static constexpr size_t kLength = 36;
    void write(std::span<std::byte> bytes) const;
    static std::optional<DctAddress> read(std::span<const std::byte> bytes);
};

// One end of a reliable connection: the endpoint address of rc_mlx5 and rc_verbs.
struct QpAddress {
    uint32_t number = 0;         // 24 bits
    uint32_t packet_number = 0;  // of the first packet that this end sends, 24 bits
    uint8_t max_rd_atomic = 0;   // reads and atomics that this end answers at a time

    static constexpr size_t kLength = 8;
    void write(std::span<std::byte> bytes) const;
    static std::optional<QpAddress> read(std::span<const std::byte> bytes);
};

}  // namespace uct::ib
