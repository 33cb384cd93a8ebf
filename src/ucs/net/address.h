// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "ucs/config/types.h"

namespace ucs::net {

// An IPv4 or IPv6 address; IPv4 uses the first 4 bytes.
struct IpAddress {
    uint8_t version = 0;  // 4 or 6; 0: none of these
    std::array<uint8_t, 16> bytes{};

    static IpAddress of(const sockaddr& address);
    int family() const { return version == 4 ? AF_INET : AF_INET6; }
    size_t length() const { return version == 4 ? 4 : 16; }
    bool is_link_local() const {
        return version == 6 && bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80;
    }
    // Do both lie in one network of so many leading bits?
    bool shares_prefix(const IpAddress& other, unsigned bits) const;
    std::string text() const;
    friend bool operator==(const IpAddress&, const IpAddress&) = default;
};

// Where a socket is: an address of IPv4 or IPv6 with its port.
class SocketAddress {
  public:
    SocketAddress() = default;
    // @param scope  interface index, for link-local addresses
    SocketAddress(const IpAddress& ip, uint16_t port, unsigned scope);
    // @return nothing for other families, or a length that is not the family's
    static std::optional<SocketAddress> from(const ucs_sock_addr_t& address);
    // What one of the system's calls writes: int(sockaddr*, socklen_t*). Empty if it fails.
    template <typename Call>
    static SocketAddress written_by(Call&& call) {
        SocketAddress result;
        result.length_ = sizeof(result.storage_);
        if (call(reinterpret_cast<sockaddr*>(&result.storage_), &result.length_) != 0) return {};
        return result;
    }

    // False for an unbound or unconnected socket's.
    bool is_known() const { return family() == AF_INET || family() == AF_INET6; }
    int family() const { return storage_.ss_family; }
    IpAddress ip() const { return IpAddress::of(*get()); }
    uint16_t port() const;
    const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
    socklen_t length() const { return length_; }
    const sockaddr_storage& storage() const { return storage_; }
    // With the port: "10.0.0.1:80", "[fe80::1]:80".
    std::string text() const;

  private:
    sockaddr_storage storage_{};
    socklen_t length_ = 0;
};

}  // namespace ucs::net
