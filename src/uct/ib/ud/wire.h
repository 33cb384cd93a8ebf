// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "uct/ib/base/address.h"

// Packets of ud_verbs. Little-endian, of fixed layout; every byte is checked when read.
namespace uct::ib::ud {

// Where datagrams to an interface go. The Q_Key differs between those that have the same number in
// turn.
struct UdAddress {
    uint32_t number = 0;  // of the queue pair, 24 bits
    uint32_t key = 0;     // Q_Key; the highest bit is not ours to use

    static constexpr size_t kLength = 8;
    void write(std::span<std::byte> bytes) const;
    static std::optional<UdAddress> read(std::span<const std::byte> bytes);

    friend auto operator<=>(const UdAddress&, const UdAddress&) = default;
};

// Who sends, in packets to somebody who may not know it yet.
struct Hello {
    PortAddress port;
    UdAddress address;
    uint64_t start = 0;  // of the connection; later ones replace earlier ones

    static constexpr size_t kLength = 40;
};

// Receivers keep, and selective acknowledgements cover, so many packets after a missing one.
inline constexpr uint32_t kMaxAhead = 256;
inline constexpr size_t kSelectiveWords = kMaxAhead / 64;

// All of a packet but its payload.
struct Header {
    static constexpr size_t kLength = 20;
    static constexpr size_t kMaxLength = kLength + Hello::kLength;

    bool asks_acknowledgement = false;
    bool is_numbered = false;  // data or ping: delivered in order; else only an acknowledgement
    bool is_ping = false;      // numbered, but no message
    bool has_more = false;     // the message goes on in the next packet
    uint8_t id = 0;            // of the active message
    uint32_t destination = 0;  // name of the receiving connection; 0: not known yet
    uint32_t source = 0;       // name of the sending connection
    uint32_t number = 0;
    uint32_t acknowledged = 0;  // all numbers below have arrived; counts if `destination` is known
    std::optional<Hello> hello;
    // Acknowledgements only: bit i of the words says that number acknowledged + 1 + i is here.
    uint8_t selective_words = 0;
    std::array<uint64_t, kSelectiveWords> selective{};

    size_t length() const {
        return kLength + (hello ? Hello::kLength : 0) + selective_words * sizeof(uint64_t);
    }
    // Write length() bytes.
    void write(std::byte* bytes) const;
    // @return nothing if the bytes cannot be a packet; the payload begins at length()
    static std::optional<Header> read(std::span<const std::byte> bytes);
};

}  // namespace uct::ib::ud
