// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <cstring>
#include <new>

#include "softhca/verbs/verbs_ops.h"

using namespace softhca;

SOFTHCA_API ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
    Fabric& fabric = *Context::of(pd->context)->fabric;
    if (!Context::of(pd->context)->device.has_port(attr->port_num) ||
        (ethernet() && attr->is_global == 0)) {
        return refuse(EINVAL);
    }
    if (!has_source_gid(*attr)) return refuse(ENODATA);
    if (fabric.faults.fail_create()) return refuse(ENOMEM);
    auto* ah = new (std::nothrow) Ah;
    if (ah == nullptr) return refuse(ENOMEM);
    ah->verbs.context = pd->context;
    ah->verbs.pd = pd;
    ah->attr = *attr;
    ah->lid = fabric.resolve(*attr);
    return &ah->verbs;
}

SOFTHCA_API int ibv_destroy_ah(ibv_ah* ah) {
    delete Ah::of(ah);
    return 0;
}

SOFTHCA_API int ibv_init_ah_from_wc(ibv_context*, uint8_t port, ibv_wc* wc, ibv_grh* grh,
                                    ibv_ah_attr* attr) {
    std::memset(attr, 0, sizeof(*attr));
    attr->dlid = wc->slid;
    attr->sl = wc->sl;
    attr->src_path_bits = wc->dlid_path_bits;
    attr->port_num = port;
    if ((wc->wc_flags & IBV_WC_GRH) != 0) {
        attr->is_global = 1;
        attr->grh.dgid = grh->sgid;
        const uint32_t class_flow = be32toh(grh->version_tclass_flow);
        attr->grh.flow_label = class_flow & 0xfffff;
        attr->grh.traffic_class = uint8_t(class_flow >> 20);
        attr->grh.hop_limit = grh->hop_limit;
    }
    return 0;
}

SOFTHCA_API ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, uint8_t port) {
    ibv_ah_attr attr;
    ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr);
    return ibv_create_ah(pd, &attr);
}

SOFTHCA_API int ibv_resolve_eth_l2_from_gid(ibv_context*, ibv_ah_attr* attr, uint8_t* mac,
                                            uint16_t* vid) {
    // The emulated ports derive addresses from the GUID in the GID, as EUI-64 does.
    const uint8_t* id = attr->grh.dgid.raw + 8;
    const uint8_t bytes[ETHERNET_LL_SIZE] = {uint8_t(id[0] ^ 2), id[1], id[2], id[5], id[6], id[7]};
    std::memcpy(mac, bytes, sizeof(bytes));
    if (vid != nullptr) *vid = 0xffff;
    return 0;
}
