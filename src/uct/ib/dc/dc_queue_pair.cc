// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/dc/dc_queue_pair.h"

#include <algorithm>

#include "uct/ib/base/ib_interface.h"

namespace uct::ib {

namespace {

QpPtr make_dct(ibv_context* context, ibv_pd* pd, ibv_cq* cq, ibv_srq* srq) {
    ibv_qp_init_attr_ex attributes{};
    attributes.comp_mask = IBV_QP_INIT_ATTR_PD;
    attributes.pd = pd;
    attributes.recv_cq = attributes.send_cq = cq;
    attributes.srq = srq;
    attributes.qp_type = IBV_QPT_DRIVER;
    mlx5dv_qp_init_attr dynamic{};
    dynamic.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
    dynamic.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
    dynamic.dc_init_attr.dct_access_key = kDcKey;
    return QpPtr(mlx5dv_create_qp(context, &attributes, &dynamic));
}

QpPtr make_dci(ibv_context* context, ibv_pd* pd, ibv_cq* cq, unsigned depth, unsigned max_sge,
               uint32_t* max_inline) {
    ibv_qp_init_attr_ex attributes{};
    attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attributes.pd = pd;
    attributes.send_cq = attributes.recv_cq = cq;
    attributes.qp_type = IBV_QPT_DRIVER;
    attributes.cap.max_send_wr = depth;
    attributes.cap.max_send_sge = max_sge;
    attributes.cap.max_inline_data = *max_inline;
    attributes.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE |
                                IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                                IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
    mlx5dv_qp_init_attr dynamic{};
    dynamic.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
    dynamic.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
    QpPtr qp(mlx5dv_create_qp(context, &attributes, &dynamic));
    *max_inline = attributes.cap.max_inline_data;
    return qp;
}

// Address attributes of packets that leave by the interface's port, whatever their target.
ibv_ah_attr local_path(const IbInterface& interface) {
    ibv_ah_attr attributes{};
    attributes.port_num = interface.device().port();
    attributes.sl = interface.path().service_level;
    if (interface.device().is_ethernet() || interface.path().address.routed) {
        attributes.is_global = 1;
        attributes.grh.hop_limit = interface.path().hop_limit;
        attributes.grh.traffic_class = interface.path().traffic_class;
        attributes.grh.sgid_index = interface.path().gid_index;
    }
    return attributes;
}

}  // namespace

bool probe_dc(ibv_context* context) {
    const DomainPtr pd(ibv_alloc_pd(context));
    const CqPtr cq(pd ? ibv_create_cq(context, 16, nullptr, nullptr, 0) : nullptr);
    if (!cq) return false;
    ibv_srq_init_attr attributes{};
    attributes.attr.max_wr = 1;
    attributes.attr.max_sge = 1;
    const SrqPtr srq(ibv_create_srq(pd.get(), &attributes));
    if (!srq || !make_dct(context, pd.get(), cq.get(), srq.get())) return false;
    uint32_t max_inline = 0;
    return make_dci(context, pd.get(), cq.get(), 4, 1, &max_inline) != nullptr;
}

QpPtr create_dct(IbInterface& interface) {
    QpPtr dct = make_dct(interface.device().context(), interface.domain().pd(),
                         interface.receive_cq(), interface.srq());
    if (!dct) return dct;

    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.pkey_index = interface.path().pkey_index;
    attributes.port_num = interface.device().port();
    attributes.qp_access_flags =
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
        (interface.device().has_atomics() ? unsigned{IBV_ACCESS_REMOTE_ATOMIC} : 0u);
    if (ibv_modify_qp(dct.get(), &attributes,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0) {
        return nullptr;
    }
    attributes = {};
    attributes.qp_state = IBV_QPS_RTR;
    attributes.path_mtu = interface.path().mtu;
    attributes.min_rnr_timer = encode_rnr_timer(interface.config().rnr_timeout);
    attributes.ah_attr = local_path(interface);
    if (ibv_modify_qp(dct.get(), &attributes,
                      IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER | IBV_QP_AV) != 0) {
        return nullptr;
    }
    return dct;
}

QpPtr create_dci(IbInterface& interface, uint32_t* max_inline) {
    return make_dci(interface.device().context(), interface.domain().pd(), interface.send_cq(),
                    interface.config().tx_queue_len, interface.max_sge(), max_inline);
}

bool bring_up_dci(ibv_qp* qp, const IbInterface& interface) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.pkey_index = interface.path().pkey_index;
    attributes.port_num = interface.device().port();
    if (ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT) != 0) {
        return false;
    }
    attributes = {};
    attributes.qp_state = IBV_QPS_RTR;
    attributes.path_mtu = interface.path().mtu;
    attributes.ah_attr = local_path(interface);
    if (ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_AV) != 0) {
        return false;
    }
    const TransportConfig& config = interface.config();
    attributes = {};
    attributes.qp_state = IBV_QPS_RTS;
    attributes.timeout = encode_timeout(config.timeout);
    attributes.retry_cnt = static_cast<uint8_t>(config.retry_count);
    attributes.rnr_retry = static_cast<uint8_t>(config.rnr_retry_count);
    attributes.max_rd_atomic = static_cast<uint8_t>(std::min<unsigned>(
        config.max_rd_atomic,
        static_cast<unsigned>(interface.device().attributes().max_qp_init_rd_atom)));
    return ibv_modify_qp(qp, &attributes,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                             IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0;
}

}  // namespace uct::ib
