// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/rc/rc_queue_pair.h"

#include <algorithm>

namespace uct::ib {

namespace {

template <typename Attributes>
void fill(Attributes& attributes, IbInterface& interface, uint32_t max_inline) {
    attributes.send_cq = interface.send_cq();
    attributes.recv_cq = interface.receive_cq();
    attributes.srq = interface.srq();
    attributes.qp_type = IBV_QPT_RC;
    attributes.sq_sig_all = 0;
    attributes.cap.max_send_wr = interface.config().tx_queue_len;
    attributes.cap.max_send_sge = interface.max_sge();
    attributes.cap.max_inline_data = max_inline;
}

}  // namespace

QpPtr create_rc_queue_pair(IbInterface& interface, bool extended, uint32_t* max_inline) {
    QpPtr qp;
    if (extended) {
        ibv_qp_init_attr_ex attributes{};
        fill(attributes, interface, *max_inline);
        attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        attributes.pd = interface.domain().pd();
        attributes.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE |
                                    IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
                                    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                                    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
        qp.reset(ibv_create_qp_ex(interface.device().context(), &attributes));
        *max_inline = attributes.cap.max_inline_data;
    } else {
        ibv_qp_init_attr attributes{};
        fill(attributes, interface, *max_inline);
        qp.reset(ibv_create_qp(interface.domain().pd(), &attributes));
        *max_inline = attributes.cap.max_inline_data;
    }
    return qp;
}

bool initialize_rc(ibv_qp* qp, const Device& device, const Device::Path& path) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.pkey_index = path.pkey_index;
    attributes.port_num = device.port();
    attributes.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                 IBV_ACCESS_REMOTE_READ |
                                 (device.has_atomics() ? unsigned{IBV_ACCESS_REMOTE_ATOMIC} : 0u);
    return ibv_modify_qp(qp, &attributes,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0;
}

bool connect_rc(ibv_qp* qp, const RcConnection& connection) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RTR;
    attributes.ah_attr = connection.device.ah_attributes(connection.path, connection.remote_port);
    attributes.path_mtu =
        static_cast<ibv_mtu>(std::min<int>(connection.path.mtu, connection.remote_port.mtu));
    attributes.dest_qp_num = connection.remote.number;
    attributes.rq_psn = connection.remote.packet_number;
    attributes.max_dest_rd_atomic = connection.local.max_rd_atomic;
    attributes.min_rnr_timer = encode_rnr_timer(connection.config.rnr_timeout);
    if (ibv_modify_qp(qp, &attributes,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) != 0) {
        return false;
    }
    attributes = {};
    attributes.qp_state = IBV_QPS_RTS;
    attributes.sq_psn = connection.local.packet_number;
    attributes.timeout = encode_timeout(connection.config.timeout);
    attributes.retry_cnt = static_cast<uint8_t>(
        std::min(connection.config.retry_count, connection.device.max_retry_count()));
    attributes.rnr_retry = static_cast<uint8_t>(connection.config.rnr_retry_count);
    attributes.max_rd_atomic = static_cast<uint8_t>(
        std::min<unsigned>(connection.config.max_rd_atomic, connection.remote.max_rd_atomic));
    return ibv_modify_qp(qp, &attributes,
                         IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                             IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0;
}

}  // namespace uct::ib
