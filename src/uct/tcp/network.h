// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace uct::tcp {

/** An IPv4 or IPv6 address; IPv4 uses the first 4 bytes. */
struct IpAddress {
    uint8_t version = 0;  //!< 4 or 6
    std::array<uint8_t, 16> bytes{};

    static IpAddress of(const sockaddr& address);
    size_t length() const { return version == 4 ? 4 : 16; }
    bool is_link_local() const {
        return version == 6 && bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80;
    }
    /** Do both lie in one network of so many leading bits? */
    bool shares_prefix(const IpAddress& other, unsigned bits) const;
    std::string text() const;
    friend bool operator==(const IpAddress&, const IpAddress&) = default;
};

/** An address with a port, as the socket calls want it. */
struct SocketAddress {
    /** @param scope  interface index, for link-local addresses */
    SocketAddress(const IpAddress& ip, uint16_t port, unsigned scope);
    SocketAddress() = default;
    const sockaddr* data() const { return reinterpret_cast<const sockaddr*>(&storage); }
    sockaddr* data() { return reinterpret_cast<sockaddr*>(&storage); }
    uint16_t port() const;

    sockaddr_storage storage{};
    socklen_t length = sizeof(storage);
};

/** A network interface that is up and has an address. */
struct NetworkDevice {
    std::string name;
    IpAddress address;
    unsigned prefix = 0;  //!< bits of the network part
    unsigned index = 0;
    bool loopback = false;
    bool default_route = false;
    double bandwidth = 0;  //!< bytes per second of payload
    double latency = 0;    //!< seconds
};

/**
 * The interfaces of this network namespace, that of the default route first and the loopback last.
 * @param families  "inet", "inet6": which address of an interface counts, best first
 */
std::vector<NetworkDevice> network_devices(std::span<const std::string> families);

/** What the kernel says of a device's link. */
struct LinkFacts {
    bool carrier = false;
    double megabits = 0;  //!< per second; 0: it does not say
    unsigned mtu = 0;
};
LinkFacts link_facts(const NetworkDevice& device);

/** The same for all processes of one network namespace of one running system. */
uint64_t network_namespace_id();

/** Would the kernel send to that address from this device's? Nothing is sent. */
bool routes_through(const NetworkDevice& device, const IpAddress& to);

}  // namespace uct::tcp
