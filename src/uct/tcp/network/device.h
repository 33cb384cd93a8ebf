// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "ucs/net/socket.h"
#include "ucs/sys/time.h"

namespace uct::tcp {

using ucs::net::IpAddress;
using ucs::net::Socket;
using ucs::net::SocketAddress;

// A network interface that is up and has an address.
struct NetworkDevice {
    std::string name;
    IpAddress address;
    unsigned prefix = 0;  // bits of the network part
    unsigned index = 0;
    bool loopback = false;
    bool default_route = false;
    double bandwidth = 0;  // bytes per second of payload
    double latency = 0;    // seconds
};

// The interfaces of this network namespace, that of the default route first and the loopback last.
// @param families  "inet", "inet6": which address of an interface counts, best first
std::vector<NetworkDevice> network_devices(std::span<const std::string> families);

// What the kernel says of a device's link.
struct LinkFacts {
    bool carrier = false;
    double megabits = 0;  // per second; 0: it does not say
    unsigned mtu = 0;
};
LinkFacts link_facts(const NetworkDevice& device);

// The same for all processes of one network namespace of one running system.
uint64_t network_namespace_id();

// Would the kernel send to that address from this device's? Nothing is sent. Four system calls.
bool routes_through(const NetworkDevice& device, const IpAddress& to);

// The same, asked once for an address and a second.
class Routes {
  public:
    using Ask = bool (*)(const NetworkDevice& device, const IpAddress& to);

    // @param device  outlives this
    explicit Routes(const NetworkDevice& device, Ask ask = routes_through)
        : device_(device), ask_(ask) {}

    bool lead_to(const IpAddress& to, ucs::Time now);
    // A device has lost its link, or has it back: routes change with that.
    void forget() { answers_.clear(); }
    size_t kept() const { return answers_.size(); }

  private:
    static constexpr ucs::Duration kAge = std::chrono::seconds(1);
    static constexpr size_t kMost = 4096;  // answers that are kept
    struct Answer {
        bool leads;
        ucs::Time asked;
    };

    const NetworkDevice& device_;
    const Ask ask_;
    std::map<std::array<uint8_t, 17>, Answer> answers_;  // by version and address
};

}  // namespace uct::tcp
