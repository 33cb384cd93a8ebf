// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ucs/type/status.h"
#include "uct/ib/base/address.h"
#include "uct/ib/base/async_events.h"
#include "uct/ib/base/config.h"

namespace uct::ib {

// Owners of verbs objects: each is destroyed with its own call.
template <auto Destroy>
struct VerbsDeleter {
    template <typename T>
    void operator()(T* object) const {
        Destroy(object);
    }
};
template <typename T, auto Destroy>
using VerbsPtr = std::unique_ptr<T, VerbsDeleter<Destroy>>;

using ContextPtr = VerbsPtr<ibv_context, ibv_close_device>;
using DomainPtr = VerbsPtr<ibv_pd, ibv_dealloc_pd>;
using MrPtr = VerbsPtr<ibv_mr, ibv_dereg_mr>;
using CqPtr = VerbsPtr<ibv_cq, ibv_destroy_cq>;
using SrqPtr = VerbsPtr<ibv_srq, ibv_destroy_srq>;
using QpPtr = VerbsPtr<ibv_qp, ibv_destroy_qp>;
using AhPtr = VerbsPtr<ibv_ah, ibv_destroy_ah>;
using ChannelPtr = VerbsPtr<ibv_comp_channel, ibv_destroy_comp_channel>;

// A port of an adapter, opened.
class Device {
  public:
    // Names of all active ports of all adapters, in the order of the adapters: "mlx5_0:1".
    static std::vector<std::string> find_all();

    // @return UCS_ERR_NO_DEVICE, or UCS_ERR_IO_ERROR, logged
    static ucs_status_t open(std::string_view name, std::unique_ptr<Device>* device);

    const std::string& name() const { return name_; }
    ibv_context* context() const { return context_.get(); }
    AsyncEvents& events() { return *events_; }
    uint8_t port() const { return port_; }
    bool is_mlx5() const { return mlx5_; }
    bool is_ethernet() const { return port_attributes_.link_layer == IBV_LINK_LAYER_ETHERNET; }
    const ibv_device_attr& attributes() const { return attributes_; }
    const ibv_port_attr& port_attributes() const { return port_attributes_; }
    bool has_atomics() const { return attributes_.atomic_cap != IBV_ATOMIC_NONE; }
    bool atomics_reach_cpu() const { return attributes_.atomic_cap == IBV_ATOMIC_GLOB; }
    // Largest retry counter that ends. The specification's 3 bits end at 7; Soft-RoCE, in Linux's
    // kernel, takes 7 for "without end", as it is for the other counter, of receivers not ready.
    unsigned max_retry_count() const { return attributes_.vendor_id == kSoftRoceVendor ? 6 : 7; }
    // Bytes per second in one direction, after encoding.
    double bandwidth() const;

    // What one transport uses of the port: filled from its configuration.
    struct Path {
        PortAddress address;
        uint8_t gid_index;
        uint16_t pkey_index;
        uint8_t service_level;
        uint8_t traffic_class;
        uint8_t hop_limit;
        ibv_mtu mtu;
    };
    // @return UCS_ERR_INVALID_PARAM if the port has no such GID or partition, logged
    ucs_status_t make_path(const TransportConfig& config, Path* path) const;
    // Address attributes of packets from here to there.
    ibv_ah_attr ah_attributes(const Path& path, const PortAddress& remote) const;

  private:
    static constexpr uint32_t kSoftRoceVendor = 0xffffff;

    Device() = default;
    ucs_status_t find_gid(const TransportConfig& config, Path* path) const;
    ucs_status_t find_pkey(const TransportConfig& config, Path* path) const;

    std::string name_;
    ContextPtr context_;
    std::unique_ptr<AsyncEvents> events_;
    uint8_t port_ = 1;
    bool mlx5_ = false;
    ibv_device_attr attributes_{};
    ibv_port_attr port_attributes_{};
};

// Nearest value of a QP's timeout attribute, not below the time.
uint8_t encode_timeout(ucs::Duration time);
// Nearest value of a QP's RNR timer attribute, not below the time if there is one.
uint8_t encode_rnr_timer(ucs::Duration time);

// The GID of an Ethernet port to go by when the user names none: RoCE v2 before v1, as routers know
// only the former; of equal versions an IPv4 address, which both ends of a network most likely
// have, before a global IPv6 address, and that before a link-local one, which reaches no further
// than the switch; of equals the first.
// @return null: there is none
const ibv_gid_entry* preferred_gid(std::span<const ibv_gid_entry> table);

// Index of a partition key in a port's table; the highest bit, of membership, is left out.
// @param table   in the order of the table, in the processor's byte order
// @param wanted  none: the first that is valid, else the first
// @return none: the port is not in the partition
std::optional<uint16_t> find_partition(std::span<const uint16_t> table,
                                       std::optional<unsigned> wanted);

}  // namespace uct::ib
