// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/ud/ud_queue_pair.h"

namespace uct::ib::ud {

QpPtr create_queue_pair(IbInterface& interface, uint32_t* max_inline) {
    ibv_qp_init_attr attributes{};
    attributes.send_cq = interface.send_cq();
    attributes.recv_cq = interface.receive_cq();
    attributes.srq = interface.srq();
    attributes.qp_type = IBV_QPT_UD;
    attributes.cap.max_send_wr = interface.config().tx_queue_len;
    attributes.cap.max_send_sge = 1;
    attributes.cap.max_inline_data = *max_inline;
    QpPtr qp(ibv_create_qp(interface.domain().pd(), &attributes));
    *max_inline = attributes.cap.max_inline_data;
    return qp;
}

bool start_queue_pair(ibv_qp* qp, const Device& device, const Device::Path& path, uint32_t key) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.pkey_index = path.pkey_index;
    attributes.port_num = device.port();
    attributes.qkey = key;
    if (ibv_modify_qp(qp, &attributes,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) != 0) {
        return false;
    }
    attributes.qp_state = IBV_QPS_RTR;
    if (ibv_modify_qp(qp, &attributes, IBV_QP_STATE) != 0) return false;
    attributes.qp_state = IBV_QPS_RTS;
    attributes.sq_psn = 0;
    return ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0;
}

}  // namespace uct::ib::ud
