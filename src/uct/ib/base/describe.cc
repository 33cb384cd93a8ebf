// SPDX-License-Identifier: BSD-3-Clause
// A port of an adapter in words.
#include <arpa/inet.h>
#include <endian.h>
#include <fmt/format.h>

#include "ucs/config/source.h"
#include "uct/ib/base/domain.h"

namespace uct::ib {

namespace {

/** A GID as an IPv6 address; one that holds an IPv4 address shows it. */
std::string gid_text(const Gid& gid) {
    char text[INET6_ADDRSTRLEN] = {};
    inet_ntop(AF_INET6, gid.data(), text, sizeof(text));
    return text;
}

/** Kinds of GIDs in the words of the kernel's sysfs. */
std::string gid_type(ibv_context* context, uint8_t port, uint8_t index) {
    ibv_gid_entry entry{};
    if (ibv_query_gid_ex(context, port, index, &entry, 0) != 0) return "unknown";
    switch (entry.gid_type) {
        case IBV_GID_TYPE_IB:
            return "InfiniBand";
        case IBV_GID_TYPE_ROCE_V1:
            return "RoCE v1";
        case IBV_GID_TYPE_ROCE_V2:
            return "RoCE v2";
        default:
            return "unknown";
    }
}

/** The key and its place in the port's table. */
std::string partition_text(const Device& device, uint16_t index) {
    uint16_t key = 0;
    if (ibv_query_pkey(device.context(), device.port(), index, &key) != 0) return "unknown";
    return fmt::format("{:#06x} (entry {})", be16toh(key), index);
}

const char* atomics_text(const Device& device) {
    if (!device.has_atomics()) return "none";
    return device.atomics_reach_cpu() ? "64 bit, with the CPU's" : "64 bit, among adapters";
}

unsigned mtu_bytes(ibv_mtu mtu) {
    return 128u << static_cast<unsigned>(mtu);
}

}  // namespace

std::vector<DeviceFact> Domain::describe() const {
    const Device& device = *device_;
    const ibv_device_attr& limits = device.attributes();
    const ibv_port_attr& port = device.port_attributes();
    std::vector<DeviceFact> facts;
    facts.push_back({"adapter", fmt::format("{}, port {} of {}{}, firmware {}",
                                            ibv_get_device_name(device.context()->device),
                                            device.port(), limits.phys_port_cnt,
                                            device.is_mlx5() ? ", mlx5" : "", limits.fw_ver)});
    facts.push_back(
        {"link", fmt::format("{}, {}, {:.0f} Gb/s, MTU {} of {}",
                             device.is_ethernet() ? "Ethernet" : "InfiniBand",
                             ibv_port_state_str(port.state), device.bandwidth() * 8 / 1e9,
                             mtu_bytes(port.active_mtu), mtu_bytes(port.max_mtu))});
    TransportConfig config{};
    std::string error;
    Device::Path path{};
    const bool is_configured =
        transport_table(TransportKind::kRcVerbs)
            .load(ucs::config::Source::from_environment(), config, error) == UCS_OK;
    if (is_configured && device.make_path(config, &path) == UCS_OK) {
        std::string address = device.is_ethernet() ? "" : fmt::format("LID {}, ", port.lid);
        address += fmt::format("GID {} ({}, {}), partition key {}", path.gid_index,
                               gid_text(path.address.gid),
                               gid_type(device.context(), device.port(), path.gid_index),
                               partition_text(device, path.pkey_index));
        facts.push_back({"address", std::move(address)});
    }
    facts.push_back({"limits", fmt::format("{} queue pairs of {} requests, {} completion queues of "
                                           "{}, {} shared receive queues, {} registrations",
                                           limits.max_qp, limits.max_qp_wr, limits.max_cq,
                                           limits.max_cqe, limits.max_srq, limits.max_mr)});
    facts.push_back({"remote access", fmt::format("{} reads and atomics at a time, atomics: {}",
                                                  limits.max_qp_rd_atom, atomics_text(device))});
    return facts;
}

}  // namespace uct::ib
