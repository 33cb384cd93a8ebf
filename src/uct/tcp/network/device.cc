// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/network/device.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <fstream>

#include "ucs/sys/host.h"
#include "ucs/sys/random.h"

namespace uct::tcp {

namespace {

// Where the kernel knows no speed: virtual interfaces, bridges, the loopback.
constexpr double kUnknownSpeed = 1e9 / 8, kLoopbackSpeed = 40e9 / 8;
// One way, application to application: a fast network with its interrupts, a slow one.
constexpr double kFastLatency = 30e-6, kSlowLatency = 60e-6, kLoopbackLatency = 15e-6;
constexpr double kFastSpeed = 10e9 / 8;
// Ethernet framing and the headers of IPv4 and TCP with timestamps, a packet.
constexpr double kFrameOverhead = 38, kHeaders = 52, kDefaultMtu = 1500;

double read_number(const std::string& interface, const char* file, double otherwise) {
    std::ifstream in("/sys/class/net/" + interface + "/" + file);
    double value = 0;
    return in >> value && value > 0 ? value : otherwise;
}

std::string default_route_device() {
    std::ifstream in("/proc/net/route");
    std::string line, name, destination;
    std::getline(in, line);
    while (in >> name >> destination && std::getline(in, line)) {
        if (destination == "00000000") return name;
    }
    return {};
}

unsigned prefix_of(const sockaddr* mask) {
    if (mask == nullptr) return 0;
    const IpAddress bytes = IpAddress::of(*mask);
    unsigned bits = 0;
    for (size_t i = 0; i < bytes.length(); ++i) {
        bits += static_cast<unsigned>(std::popcount(bytes.bytes[i]));
    }
    return bits;
}

void fill_costs(NetworkDevice& device) {
    if (device.loopback) {
        device.bandwidth = kLoopbackSpeed;
        device.latency = kLoopbackLatency;
        return;
    }
    const double megabits = read_number(device.name, "speed", kUnknownSpeed * 8 / 1e6);
    const double mtu = read_number(device.name, "mtu", kDefaultMtu);
    const double speed = megabits * 1e6 / 8;
    device.bandwidth = speed * std::max(mtu - kHeaders, 1.0) / (mtu + kFrameOverhead);
    device.latency = speed >= kFastSpeed ? kFastLatency : kSlowLatency;
}

// Rank of an address among those of its interface, less is better; negative: not to be used.
int rank(const IpAddress& address, std::span<const std::string> families) {
    const char* family = address.version == 4 ? "inet" : "inet6";
    const auto found = std::ranges::find(families, family);
    if (found == families.end()) return -1;
    const int position = static_cast<int>(found - families.begin());
    return 2 * position + (address.is_link_local() ? 1 : 0);
}

}  // namespace

std::vector<NetworkDevice> network_devices(std::span<const std::string> families) {
    ifaddrs* list = nullptr;
    if (getifaddrs(&list) != 0) return {};
    const std::string default_name = default_route_device();
    std::vector<NetworkDevice> devices;
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
        constexpr unsigned kNeeded = IFF_UP | IFF_RUNNING;
        if (entry->ifa_addr == nullptr || (entry->ifa_flags & kNeeded) != kNeeded) continue;
        NetworkDevice found;
        found.address = IpAddress::of(*entry->ifa_addr);
        if (found.address.version == 0 || rank(found.address, families) < 0) continue;
        found.name = entry->ifa_name;
        found.prefix = prefix_of(entry->ifa_netmask);
        found.index = if_nametoindex(entry->ifa_name);
        found.loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
        found.default_route = found.name == default_name;
        const auto known = std::ranges::find(devices, found.name, &NetworkDevice::name);
        if (known == devices.end()) {
            fill_costs(found);
            devices.push_back(found);
        } else if (rank(found.address, families) < rank(known->address, families)) {
            known->address = found.address;
            known->prefix = found.prefix;
        }
    }
    freeifaddrs(list);
    std::ranges::stable_sort(devices, {}, [](const NetworkDevice& device) {
        return device.loopback ? 2 : device.default_route ? 0 : 1;
    });
    return devices;
}

LinkFacts link_facts(const NetworkDevice& device) {
    LinkFacts facts;
    facts.carrier = read_number(device.name, "carrier", 0) != 0;
    facts.megabits = read_number(device.name, "speed", 0);
    facts.mtu = static_cast<unsigned>(read_number(device.name, "mtu", 0));
    return facts;
}

uint64_t network_namespace_id() {
    struct stat about {};
    const bool known = stat("/proc/self/ns/net", &about) == 0;
    return ucs::mix64(ucs::host_id() ^ (known ? ucs::mix64(about.st_ino) : 0));
}

bool routes_through(const NetworkDevice& device, const IpAddress& to) {
    // Connecting a datagram socket asks the routing table and sends nothing.
    constexpr uint16_t kDiscard = 9;
    Socket probe(socket(to.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
    return probe && probe.connect({to, kDiscard, device.index}) == UCS_INPROGRESS &&
           probe.local().ip() == device.address;
}

bool Routes::lead_to(const IpAddress& to, ucs::Time now) {
    std::array<uint8_t, 17> key;
    key[0] = to.version;
    std::ranges::copy(to.bytes, key.begin() + 1);
    const auto known = answers_.find(key);
    if (known != answers_.end() && now < known->second.asked + kAge) return known->second.leads;
    if (answers_.size() >= kMost) answers_.clear();
    const bool leads = ask_(device_, to);
    answers_.insert_or_assign(key, Answer{leads, now});
    return leads;
}

}  // namespace uct::tcp
