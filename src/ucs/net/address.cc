// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/net/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

namespace ucs::net {

IpAddress IpAddress::of(const sockaddr& address) {
    IpAddress ip;
    if (address.sa_family == AF_INET) {
        ip.version = 4;
        std::memcpy(ip.bytes.data(), &reinterpret_cast<const sockaddr_in&>(address).sin_addr, 4);
    } else if (address.sa_family == AF_INET6) {
        ip.version = 6;
        std::memcpy(ip.bytes.data(), &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, 16);
    }
    return ip;
}

bool IpAddress::shares_prefix(const IpAddress& other, unsigned bits) const {
    if (version != other.version || bits > 8 * length()) return false;
    const size_t whole = bits / 8;
    if (!std::equal(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(whole),
                    other.bytes.begin())) {
        return false;
    }
    if (bits % 8 == 0) return true;
    const auto mask = static_cast<uint8_t>(0xff00u >> (bits % 8));
    return ((bytes[whole] ^ other.bytes[whole]) & mask) == 0;
}

std::string IpAddress::text() const {
    char buffer[INET6_ADDRSTRLEN] = "?";
    inet_ntop(family(), bytes.data(), buffer, sizeof(buffer));
    return buffer;
}

SocketAddress::SocketAddress(const IpAddress& ip, uint16_t port, unsigned scope) {
    if (ip.version == 4) {
        auto& in = reinterpret_cast<sockaddr_in&>(storage_);
        in.sin_family = AF_INET;
        in.sin_port = htons(port);
        std::memcpy(&in.sin_addr, ip.bytes.data(), 4);
        length_ = sizeof(in);
    } else {
        auto& in = reinterpret_cast<sockaddr_in6&>(storage_);
        in.sin6_family = AF_INET6;
        in.sin6_port = htons(port);
        std::memcpy(&in.sin6_addr, ip.bytes.data(), 16);
        if (ip.is_link_local()) in.sin6_scope_id = scope;
        length_ = sizeof(in);
    }
}

std::optional<SocketAddress> SocketAddress::from(const ucs_sock_addr_t& address) {
    if (address.addr == nullptr) return {};
    size_t length = 0;
    if (address.addr->sa_family == AF_INET) length = sizeof(sockaddr_in);
    if (address.addr->sa_family == AF_INET6) length = sizeof(sockaddr_in6);
    if (length == 0 || address.addrlen < length) return {};
    SocketAddress result;
    std::memcpy(&result.storage_, address.addr, length);
    result.length_ = static_cast<socklen_t>(length);
    return result;
}

uint16_t SocketAddress::port() const {
    // Both families have the port in the same place.
    return ntohs(reinterpret_cast<const sockaddr_in&>(storage_).sin_port);
}

std::string SocketAddress::text() const {
    const std::string host = ip().text();
    return family() == AF_INET6 ? fmt::format("[{}]:{}", host, port())
                                : fmt::format("{}:{}", host, port());
}

}  // namespace ucs::net
