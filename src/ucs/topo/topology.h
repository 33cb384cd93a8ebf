// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

// How far devices are from the CPUs that this process may use.
namespace ucs::topo {

// Seconds that a message's way between CPU and adapter takes more, once, when it leaves the NUMA
// node, and when it leaves the package. Round figures: what counts is their order, and that a
// nearer adapter of another speed class does not win by them.
inline constexpr double kOtherNode = 100e-9;
inline constexpr double kOtherPackage = 300e-9;

// A machine's packages, NUMA nodes and devices.
class Topology {
  public:
    // This machine's. Takes milliseconds. @return null if it cannot be found out
    static std::unique_ptr<Topology> load();
    // The same, loaded when it is first asked for and kept to the end. Any thread.
    static const Topology* machine();
    // For tests: what machine() says from now on, null being this machine again.
    static void replace_machine(const Topology* other);
    // From a text that `lstopo --of xml` wrote. @return null if it is none
    static std::unique_ptr<Topology> from_xml(const std::string& xml);
    virtual ~Topology() = default;

    // Seconds from the CPUs to a device ("mlx5_0", "eth0"), on average over the CPUs.
    // @return 0 for a device or CPUs that the topology does not know
    virtual double distance(std::string_view device, const std::vector<unsigned>& cpus) const = 0;
    // The CPUs next to a device, by their numbers in the system; empty if it is not known.
    virtual std::vector<unsigned> cpus_near(std::string_view device) const = 0;
};

}  // namespace ucs::topo
