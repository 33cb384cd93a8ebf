// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/base/device.h"

#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <iterator>

#include "ucs/log/log.h"

namespace uct::ib {
namespace {

using DeviceList = std::unique_ptr<ibv_device*[], decltype(&ibv_free_device_list)>;

DeviceList list_devices(int* count) {
    *count = 0;
    return {ibv_get_device_list(count), &ibv_free_device_list};
}

bool is_active(ibv_context* context, uint8_t port) {
    ibv_port_attr attributes{};
    return ibv_query_port(context, port, &attributes) == 0 && attributes.state == IBV_PORT_ACTIVE;
}

// Gb/s of one lane, after encoding; the speed is a bit.
double lane_rate(uint8_t active_speed) {
    constexpr double kRates[] = {2, 4, 8, 10, 14.0 * 64 / 66, 25.0 * 64 / 66, 50, 100};
    return std::has_single_bit(active_speed) ? kRates[std::countr_zero(active_speed)] : 2;
}

// The width is a bit.
unsigned lane_count(uint8_t active_width) {
    constexpr unsigned kCounts[] = {1, 4, 8, 12, 2};
    const auto bit = static_cast<size_t>(std::countr_zero(active_width));
    return std::has_single_bit(active_width) && bit < std::size(kCounts) ? kCounts[bit] : 1;
}

// Of fe80::/10.
bool is_link_local(const ibv_gid& gid) {
    return gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80;
}

int rank(const ibv_gid_entry& entry) {
    const int version = entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? 3 : 0;
    if (is_mapped_ipv4(entry.gid.raw)) return version + 2;
    return version + (is_link_local(entry.gid) ? 0 : 1);
}

}  // namespace

std::vector<std::string> Device::find_all() {
    std::vector<std::string> found;
    int count;
    const DeviceList devices = list_devices(&count);
    for (int i = 0; i < count; ++i) {
        const ContextPtr context(ibv_open_device(devices[i]));
        ibv_device_attr attributes{};
        if (!context || ibv_query_device(context.get(), &attributes) != 0) continue;
        for (unsigned port = 1; port <= attributes.phys_port_cnt; ++port) {
            if (!is_active(context.get(), static_cast<uint8_t>(port))) continue;
            found.push_back(std::string(ibv_get_device_name(devices[i])) + ":" +
                            std::to_string(port));
        }
    }
    return found;
}

ucs_status_t Device::open(std::string_view name, std::unique_ptr<Device>* device) {
    const size_t colon = name.rfind(':');
    unsigned port = 1;
    std::string_view adapter = name;
    if (colon != name.npos) {
        adapter = name.substr(0, colon);
        const auto [end, error] =
            std::from_chars(name.data() + colon + 1, name.data() + name.size(), port);
        if (error != std::errc() || end != name.data() + name.size() || port > 255) {
            return UCS_ERR_NO_DEVICE;
        }
    }
    int count;
    const DeviceList devices = list_devices(&count);
    for (int i = 0; i < count; ++i) {
        if (adapter != ibv_get_device_name(devices[i])) continue;
        std::unique_ptr<Device> opened(new Device);
        opened->name_ = std::string(adapter) + ":" + std::to_string(port);
        opened->port_ = static_cast<uint8_t>(port);
        opened->mlx5_ = mlx5dv_is_supported(devices[i]);
        opened->context_.reset(ibv_open_device(devices[i]));
        if (!opened->context_ || ibv_query_device(opened->context(), &opened->attributes_) != 0 ||
            ibv_query_port(opened->context(), opened->port_, &opened->port_attributes_) != 0) {
            ucs::log_error("adapter {} cannot be opened: {}", name, std::strerror(errno));
            return UCS_ERR_IO_ERROR;
        }
        opened->events_ = std::make_unique<AsyncEvents>(opened->context(), opened->port_);
        *device = std::move(opened);
        return UCS_OK;
    }
    return UCS_ERR_NO_DEVICE;
}

double Device::bandwidth() const {
    return lane_rate(port_attributes_.active_speed) * lane_count(port_attributes_.active_width) *
           1e9 / 8;
}

ucs_status_t Device::find_gid(const TransportConfig& config, Path* path) const {
    ibv_gid_entry chosen{};
    if (config.gid_index) {
        if (ibv_query_gid_ex(context(), port_, *config.gid_index, &chosen, 0) != 0) {
            ucs::log_error("{} has no GID at UCX_IB_GID_INDEX={}", name_, *config.gid_index);
            return UCS_ERR_INVALID_PARAM;
        }
    } else {
        std::vector<ibv_gid_entry> table;
        const int entries = is_ethernet() ? port_attributes_.gid_tbl_len : 1;
        for (int i = 0; i < entries; ++i) {
            ibv_gid_entry entry{};
            if (ibv_query_gid_ex(context(), port_, static_cast<uint32_t>(i), &entry, 0) == 0) {
                table.push_back(entry);
            }
        }
        const ibv_gid_entry* best = preferred_gid(table);
        if (best == nullptr) {
            ucs::log_error("{} has no GID", name_);
            return UCS_ERR_INVALID_PARAM;
        }
        chosen = *best;
    }
    path->gid_index = static_cast<uint8_t>(chosen.gid_index);
    std::memcpy(path->address.gid.data(), chosen.gid.raw, sizeof(chosen.gid.raw));
    return UCS_OK;
}

ucs_status_t Device::find_pkey(const TransportConfig& config, Path* path) const {
    std::vector<uint16_t> table;
    for (int i = 0; i < port_attributes_.pkey_tbl_len; ++i) {
        uint16_t key;
        if (ibv_query_pkey(context(), port_, i, &key) != 0) break;
        table.push_back(be16toh(key));
    }
    const std::optional<uint16_t> found = find_partition(table, config.pkey);
    if (!found) {
        ucs::log_error("{} is not in the partition UCX_IB_PKEY={:#x}", name_, *config.pkey);
        return UCS_ERR_INVALID_PARAM;
    }
    path->pkey_index = *found;
    return UCS_OK;
}

ucs_status_t Device::make_path(const TransportConfig& config, Path* path) const {
    path->service_level = static_cast<uint8_t>(config.service_level);
    path->traffic_class = static_cast<uint8_t>(config.traffic_class);
    path->hop_limit = static_cast<uint8_t>(config.hop_limit);
    path->mtu = port_attributes_.active_mtu;
    if (config.path_mtu) {
        unsigned code = IBV_MTU_256;
        while (code < IBV_MTU_4096 && (128u << code) < *config.path_mtu) ++code;
        path->mtu = std::min(path->mtu, static_cast<ibv_mtu>(code));
    }
    path->address.ethernet = is_ethernet();
    path->address.routed = !is_ethernet() && (port_attributes_.flags & IBV_QPF_GRH_REQUIRED) != 0;
    path->address.mtu = static_cast<uint8_t>(path->mtu);
    path->address.lid = is_ethernet() ? 0 : port_attributes_.lid;
    if (const ucs_status_t status = find_gid(config, path); status != UCS_OK) return status;
    return find_pkey(config, path);
}

ibv_ah_attr Device::ah_attributes(const Path& path, const PortAddress& remote) const {
    ibv_ah_attr attributes{};
    attributes.port_num = port_;
    attributes.sl = path.service_level;
    attributes.dlid = remote.lid;
    if (remote.ethernet || remote.routed || path.address.routed ||
        remote.subnet_prefix() != path.address.subnet_prefix()) {
        attributes.is_global = 1;
        std::memcpy(attributes.grh.dgid.raw, remote.gid.data(), remote.gid.size());
        attributes.grh.sgid_index = path.gid_index;
        attributes.grh.hop_limit = path.hop_limit;
        attributes.grh.traffic_class = path.traffic_class;
    }
    return attributes;
}

uint8_t encode_timeout(ucs::Duration time) {
    uint8_t code = 1;
    while (code < 31 &&
           4096.0 * static_cast<double>(1u << code) < static_cast<double>(time.count())) {
        ++code;
    }
    return code;
}

uint8_t encode_rnr_timer(ucs::Duration time) {
    // Microseconds of the codes 1 to 31; code 0 is the longest (InfiniBand specification).
    static constexpr int kTimes[] = {10,    20,    30,     40,     60,     80,     120,   160,
                                     240,   320,   480,    640,    960,    1280,   1920,  2560,
                                     3840,  5120,  7680,   10240,  15360,  20480,  30720, 40960,
                                     61440, 81920, 122880, 163840, 245760, 327680, 491520};
    const auto* found = std::ranges::lower_bound(kTimes, time.count() / 1000);
    return found == std::end(kTimes) ? 0 : static_cast<uint8_t>(found - kTimes + 1);
}

const ibv_gid_entry* preferred_gid(std::span<const ibv_gid_entry> table) {
    const ibv_gid_entry* best = nullptr;
    for (const ibv_gid_entry& entry : table) {
        if (best == nullptr || rank(entry) > rank(*best)) best = &entry;
    }
    return best;
}

std::optional<uint16_t> find_partition(std::span<const uint16_t> table,
                                       std::optional<unsigned> wanted) {
    constexpr unsigned kKey = 0x7fff;
    for (size_t i = 0; i < table.size(); ++i) {
        const unsigned key = table[i] & kKey;
        if (wanted ? key == (*wanted & kKey) : key != 0) return static_cast<uint16_t>(i);
    }
    if (wanted) return {};
    return uint16_t{0};
}

}  // namespace uct::ib
