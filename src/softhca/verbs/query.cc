// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "softhca/verbs/verbs_ops.h"

namespace softhca {
namespace {

constexpr uint32_t kVendor = 0x2c9;
constexpr uint32_t kPart = 4129;  // ConnectX-7
constexpr int kGidTable = 8;      // entries of a port's table, of which most are empty
constexpr uint64_t kPrefix = 0xfe80000000000000;

}  // namespace

bool ethernet() {
    static const bool value = [] {
        const char* layer = std::getenv("SOFTHCA_LINK_LAYER");
        return layer != nullptr && std::string_view(layer) == "ethernet";
    }();
    return value;
}

namespace {

union ibv_gid make_gid(const Context& context, unsigned port) {
    ibv_gid gid{};
    gid.global.subnet_prefix = htobe64(kPrefix);
    // A port's GUID: the first one's is the device's own.
    gid.global.interface_id = htobe64(context.device.guid + port - 1);
    return gid;
}

// RoCE: versions 1 and 2 of one address.
int num_gids() {
    return ethernet() ? 2 : 1;
}

void fill_in(const Context& context, ibv_device_attr& attr) {
    const Limits& limits = context.fabric->limits;
    attr = {};
    std::strcpy(attr.fw_ver, "28.0.0000");
    attr.node_guid = attr.sys_image_guid = htobe64(context.device.guid);
    attr.max_mr_size = ~uint64_t{0};
    attr.page_size_cap = 0xfffffffffffff000;
    attr.vendor_id = kVendor;
    attr.vendor_part_id = kPart;
    attr.max_qp = int(limits.max_qp);
    attr.max_qp_wr = int(limits.max_qp_wr);
    attr.device_cap_flags = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_RC_RNR_NAK_GEN |
                            IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_SYS_IMAGE_GUID |
                            IBV_DEVICE_CHANGE_PHY_PORT | IBV_DEVICE_MEM_WINDOW |
                            IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    attr.max_sge = attr.max_sge_rd = int(limits.max_sge);
    attr.max_cq = int(limits.max_cq);
    attr.max_cqe = int(limits.max_cqe);
    attr.max_mr = attr.max_mw = int(limits.max_mr);
    attr.max_pd = 1 << 20;
    attr.max_qp_rd_atom = attr.max_qp_init_rd_atom = int(limits.max_rd_atomic);
    attr.max_res_rd_atom = attr.max_qp_rd_atom * attr.max_qp;
    attr.atomic_cap = IBV_ATOMIC_HCA;
    attr.max_ah = 1 << 30;
    attr.max_srq = int(limits.max_srq);
    attr.max_srq_wr = int(limits.max_srq_wr);
    attr.max_srq_sge = int(limits.max_sge);
    attr.max_pkeys = 1;
    attr.local_ca_ack_delay = 16;
    attr.phys_port_cnt = context.device.num_ports;
}

// @return 0, or ENODATA for an empty entry of the table.
int fill_in(const Context& context, uint32_t port, uint32_t index, ibv_gid_entry* entry) {
    if (!context.device.has_port(port) || index >= uint32_t(kGidTable)) return EINVAL;
    if (index >= uint32_t(num_gids())) return ENODATA;
    *entry = {};
    entry->gid = make_gid(context, port);
    entry->gid_index = index;
    entry->port_num = port;
    entry->gid_type = !ethernet()  ? IBV_GID_TYPE_IB
                      : index == 0 ? IBV_GID_TYPE_ROCE_V1
                                   : IBV_GID_TYPE_ROCE_V2;
    return 0;
}

}  // namespace

bool has_source_gid(const ibv_ah_attr& attr) {
    return attr.is_global == 0 || int{attr.grh.sgid_index} < num_gids();
}

int query_port(ibv_context* handle, uint8_t port, ibv_port_attr* out, size_t size) {
    const Context& context = *Context::of(handle);
    if (!context.device.has_port(port)) return EINVAL;
    ibv_port_attr attr{};
    const uint16_t lid = context.device.lid_of(port);
    const bool up = context.fabric->port_up(lid);
    attr.state = up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
    attr.phys_state = up ? 5 : 3;  // LinkUp, Disabled
    attr.max_mtu = attr.active_mtu = IBV_MTU_4096;
    attr.gid_tbl_len = kGidTable;
    attr.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_EXTENDED_SPEEDS_SUP;
    attr.max_msg_sz = 1u << 30;
    attr.pkey_tbl_len = 1;
    attr.max_vl_num = 4;
    attr.active_width = 2;    // 4x
    attr.active_speed = 128;  // NDR, 100 Gb/s a lane
    if (ethernet()) {
        attr.link_layer = IBV_LINK_LAYER_ETHERNET;
        attr.flags = IBV_QPF_GRH_REQUIRED;
        attr.port_cap_flags |= IBV_PORT_IP_BASED_GIDS;
    } else {
        attr.link_layer = IBV_LINK_LAYER_INFINIBAND;
        attr.lid = lid;
        attr.sm_lid = 1;
        attr.subnet_timeout = 18;
    }
    std::memset(out, 0, size);
    std::memcpy(out, &attr, std::min(size, sizeof(attr)));
    return 0;
}

int query_device_ex(ibv_context* handle, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* out, size_t size) {
    if (input != nullptr && input->comp_mask != 0) return EINVAL;
    ibv_device_attr_ex attr{};
    fill_in(*Context::of(handle), attr.orig_attr);
    attr.completion_timestamp_mask = ~uint64_t{0};
    attr.hca_core_clock = 1000000;  // kHz: time stamps are nanoseconds
    attr.device_cap_flags_ex = attr.orig_attr.device_cap_flags;
    attr.pci_atomic_caps.fetch_add = attr.pci_atomic_caps.swap = attr.pci_atomic_caps.compare_swap =
        0;
    attr.phys_port_cnt_ex = attr.orig_attr.phys_port_cnt;
    attr.max_dm_size = kDeviceMemory;
    std::memset(out, 0, size);
    std::memcpy(out, &attr, std::min(size, sizeof(attr)));
    return 0;
}

int query_rt_values(ibv_context* handle, ibv_values_ex* values) {
    if ((values->comp_mask & ~uint32_t(IBV_VALUES_MASK_RAW_CLOCK)) != 0) return EOPNOTSUPP;
    const uint64_t now = Context::of(handle)->fabric->now_ns();
    values->raw_clock.tv_sec = 0;
    values->raw_clock.tv_nsec = long(now);
    return 0;
}

}  // namespace softhca

using namespace softhca;

SOFTHCA_API int ibv_query_device(ibv_context* context, ibv_device_attr* attr) {
    fill_in(*Context::of(context), *attr);
    return 0;
}

SOFTHCA_API int ibv_query_port(ibv_context* context, uint8_t port, _compat_ibv_port_attr* attr) {
    // The old struct ends before port_cap_flags2.
    return query_port(context, port, reinterpret_cast<ibv_port_attr*>(attr),
                      offsetof(ibv_port_attr, port_cap_flags2));
}

SOFTHCA_API int ibv_query_gid(ibv_context* context, uint8_t port, int index, ibv_gid* gid) {
    ibv_gid_entry entry;
    const int error =
        index < 0 ? EINVAL : fill_in(*Context::of(context), port, uint32_t(index), &entry);
    if (error == ENODATA) {
        *gid = {};  // this old call has no other word for an empty entry
        return 0;
    }
    if (error != 0) {
        errno = error;
        return -1;
    }
    *gid = entry.gid;
    return 0;
}

SOFTHCA_API int _ibv_query_gid_ex(ibv_context* context, uint32_t port, uint32_t index,
                                  ibv_gid_entry* entry, uint32_t flags, size_t) {
    if (flags != 0) return EINVAL;
    return fill_in(*Context::of(context), port, index, entry);
}

SOFTHCA_API ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries, size_t max,
                                         uint32_t flags, size_t) {
    if (flags != 0) return -EINVAL;
    const auto per_port = uint32_t(num_gids());
    const uint32_t count = per_port * Context::of(context)->device.num_ports;
    if (max < count) return -EINVAL;
    for (uint32_t i = 0; i < count; ++i) {
        fill_in(*Context::of(context), 1 + i / per_port, i % per_port, &entries[i]);
    }
    return ssize_t(count);
}

// As in rdma-core, which keeps this for its own tools: 0 is InfiniBand or RoCE v1, 1 is RoCE v2.
SOFTHCA_API int ibv_query_gid_type(ibv_context* context, uint8_t port, unsigned index, int* type) {
    ibv_gid_entry entry;
    const int error = fill_in(*Context::of(context), port, index, &entry);
    if (error == ENODATA) entry.gid_type = IBV_GID_TYPE_IB;
    if (error != 0 && error != ENODATA) {
        errno = error;
        return -1;
    }
    *type = entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? 1 : 0;
    return 0;
}

SOFTHCA_API int ibv_query_pkey(ibv_context* context, uint8_t port, int index, __be16* pkey) {
    if (!Context::of(context)->device.has_port(port) || index != 0) {
        errno = EINVAL;
        return -1;
    }
    *pkey = htobe16(0xffff);
    return 0;
}

SOFTHCA_API int ibv_get_pkey_index(ibv_context* context, uint8_t port, __be16 pkey) {
    if (Context::of(context)->device.has_port(port) && (be16toh(pkey) & 0x7fff) == 0x7fff) return 0;
    errno = ENOENT;
    return -1;
}
