// SPDX-License-Identifier: BSD-3-Clause
#include "softhca/adapter/fabric.h"

#include <cstdio>
#include <cstdlib>

namespace softhca {
namespace {

void override_from(const char* variable, uint32_t* value) {
    const char* text = std::getenv(variable);
    if (text == nullptr) return;
    char* end = nullptr;
    const unsigned long number = std::strtoul(text, &end, 0);
    if (end != text && *end == '\0' && number <= UINT32_MAX) *value = uint32_t(number);
}

}  // namespace

Limits Limits::from_environment() {
    Limits limits;
    override_from("SOFTHCA_MAX_QP", &limits.max_qp);
    override_from("SOFTHCA_MAX_CQ", &limits.max_cq);
    override_from("SOFTHCA_MAX_SRQ", &limits.max_srq);
    override_from("SOFTHCA_MAX_MR", &limits.max_mr);
    override_from("SOFTHCA_MAX_QP_WR", &limits.max_qp_wr);
    override_from("SOFTHCA_MAX_INLINE", &limits.max_inline);
    override_from("SOFTHCA_MEMLOCK", &limits.obeys_memlock);
    return limits;
}

uint16_t Fabric::resolve(const ibv_ah_attr& attr) const {
    // Within a subnet the LID leads the way; RoCE has only GIDs.
    if (attr.dlid != 0) return guid_of_lid(attr.dlid) != 0 ? attr.dlid : 0;
    if (attr.is_global == 0) return 0;
    return lid_of_guid(be64toh(attr.grh.dgid.global.interface_id));
}

bool Fabric::set_up_tables() {
    const size_t count = segment.layout().queues;
    return qps.resize(count) && cqs.resize(count) && srqs.resize(count);
}

Device Fabric::make_device(unsigned node, unsigned index, uint16_t lid, unsigned num_ports) {
    Device device;
    device.fabric = this;
    device.node = node;
    device.index = index;
    device.lid = lid;
    device.num_ports = uint8_t(num_ports);
    device.guid = guid_of_lid(lid);
    ibv_device& verbs = device.verbs;
    verbs.node_type = IBV_NODE_CA;
    verbs.transport_type = IBV_TRANSPORT_IB;
    std::snprintf(verbs.name, sizeof(verbs.name), "mlx5_%u", index);
    std::snprintf(verbs.dev_name, sizeof(verbs.dev_name), "uverbs%u", index);
    std::snprintf(verbs.dev_path, sizeof(verbs.dev_path), "/sys/class/infiniband_verbs/uverbs%u",
                  index);
    std::snprintf(verbs.ibdev_path, sizeof(verbs.ibdev_path), "/sys/class/infiniband/mlx5_%u",
                  index);
    return device;
}

}  // namespace softhca
