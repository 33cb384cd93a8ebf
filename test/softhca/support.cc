// SPDX-License-Identifier: BSD-3-Clause
#include "softhca/support.h"

#include <fcntl.h>

namespace softhca::test {

std::optional<ibv_async_event> Host::async_event() {
    fcntl(context->async_fd, F_SETFL, fcntl(context->async_fd, F_GETFL) | O_NONBLOCK);
    ibv_async_event event{};
    if (ibv_get_async_event(context, &event) != 0) return std::nullopt;
    ibv_ack_async_event(&event);
    return event;
}

QueuePair::QueuePair(Host& h, const QpOptions& options) : host(h) {
    ibv_qp_init_attr_ex attr{};
    attr.send_cq = attr.recv_cq = host.cq;
    attr.srq = options.use_srq ? host.srq : nullptr;
    attr.qp_type = options.dc ? IBV_QPT_DRIVER : options.type;
    attr.sq_sig_all = options.sig_all;
    attr.pd = host.pd;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD;
    const bool dct = options.dc == MLX5DV_DCTYPE_DCT;
    if (!dct) {
        attr.cap = {options.depth, options.use_srq || options.dc ? 0 : options.depth, 4, 4,
                    options.max_inline};
        attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
        if (options.type != IBV_QPT_UD) {
            attr.send_ops_flags |= IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                                   IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                                   IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
        }
    }
    if (options.dc) {
        mlx5dv_qp_init_attr dv{};
        dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
        dv.dc_init_attr.dc_type = *options.dc;
        if (dct) {
            dv.dc_init_attr.dct_access_key = kDcKey;
        } else if (options.streams) {
            dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
            dv.dc_init_attr.dci_streams = *options.streams;
        }
        qp = mlx5dv_create_qp(host.context, &attr, &dv);
    } else {
        qp = ibv_create_qp_ex(host.context, &attr);
    }
    EXPECT_NE(qp, nullptr);
}

int QueuePair::modify(ibv_qp_state state) {
    ibv_qp_attr attr{};
    attr.qp_state = state;
    return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

ibv_qp_state QueuePair::state() const {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    EXPECT_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
    return attr.qp_state;
}

void QueuePair::connect(uint16_t dlid, uint32_t dest_qpn, const Wiring& wiring) {
    const bool ud = qp->qp_type == IBV_QPT_UD;
    const bool uc = qp->qp_type == IBV_QPT_UC;
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = wiring.port;
    attr.qkey = 0x11111111;
    attr.qp_access_flags = wiring.access;
    ASSERT_EQ(ibv_modify_qp(qp, &attr,
                            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                                (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)),
              0);
    attr = {};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_4096;
    attr.dest_qp_num = dest_qpn;
    attr.max_dest_rd_atomic = wiring.rd_atomic;
    attr.min_rnr_timer = wiring.min_rnr_timer;
    attr.ah_attr.dlid = dlid;
    attr.ah_attr.port_num = wiring.port;
    const int uc_rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    const int rc_rtr = uc_rtr | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    ASSERT_EQ(ibv_modify_qp(qp, &attr, ud ? IBV_QP_STATE : uc ? uc_rtr : rc_rtr), 0);
    attr = {};
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = wiring.timeout;
    attr.retry_cnt = wiring.retry_cnt;
    attr.rnr_retry = wiring.rnr_retry;
    attr.max_rd_atomic = wiring.rd_atomic;
    const int ud_rts = IBV_QP_STATE | IBV_QP_SQ_PSN;
    const int rc_rts =
        ud_rts | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    ASSERT_EQ(ibv_modify_qp(qp, &attr, ud || uc ? ud_rts : rc_rts), 0);
}

int QueuePair::post_recv(uint64_t id, const ibv_sge& sge) {
    ibv_sge list = sge;
    ibv_recv_wr wr{id, nullptr, &list, sge.length != 0 ? 1 : 0};
    ibv_recv_wr* bad = nullptr;
    return ibv_post_recv(qp, &wr, &bad);
}

int post_srq(Host& host, uint64_t id, const ibv_sge& sge) {
    ibv_sge list = sge;
    ibv_recv_wr wr{id, nullptr, &list, 1};
    ibv_recv_wr* bad = nullptr;
    return ibv_post_srq_recv(host.srq, &wr, &bad);
}

int QueuePair::send(uint64_t id, ibv_sge sge, unsigned flags) {
    ibv_send_wr wr{};
    wr.wr_id = id;
    wr.sg_list = &sge;
    wr.num_sge = sge.length != 0 ? 1 : 0;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = flags;
    return post(wr);
}

int QueuePair::rdma(ibv_wr_opcode opcode, uint64_t id, ibv_sge sge, uint64_t remote, uint32_t rkey,
                    unsigned flags, uint32_t imm) {
    ibv_send_wr wr{};
    wr.wr_id = id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.send_flags = flags;
    wr.imm_data = imm;
    wr.wr.rdma.remote_addr = remote;
    wr.wr.rdma.rkey = rkey;
    return post(wr);
}

int QueuePair::atomic(ibv_wr_opcode opcode, uint64_t id, ibv_sge sge, uint64_t remote,
                      uint32_t rkey, uint64_t compare_add, uint64_t swap) {
    ibv_send_wr wr{};
    wr.wr_id = id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.atomic = {remote, compare_add, swap, rkey};
    return post(wr);
}

void join(QueuePair& a, QueuePair& b, const Wiring& wiring) {
    a.connect(b.host.lid, b.qp->qp_num, wiring);
    b.connect(a.host.lid, a.qp->qp_num, wiring);
}

QueuePair make_dct(Host& host, const Wiring& wiring) {
    QueuePair dct(host, {.use_srq = true, .dc = MLX5DV_DCTYPE_DCT});
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = wiring.access;
    EXPECT_EQ(ibv_modify_qp(dct.qp, &attr,
                            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
              0);
    EXPECT_EQ(dct.qp->qp_num, 0u);
    attr = {};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_4096;
    attr.min_rnr_timer = wiring.min_rnr_timer;
    attr.ah_attr.port_num = 1;
    EXPECT_EQ(ibv_modify_qp(dct.qp, &attr,
                            IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU),
              0);
    EXPECT_NE(dct.qp->qp_num, 0u);
    return dct;
}

QueuePair make_dci(Host& host, const Wiring& wiring, std::optional<mlx5dv_dci_streams> streams) {
    QueuePair dci(host, {.dc = MLX5DV_DCTYPE_DCI, .streams = streams});
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    EXPECT_EQ(ibv_modify_qp(dci.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT), 0);
    attr = {};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_4096;
    EXPECT_EQ(ibv_modify_qp(dci.qp, &attr, IBV_QP_STATE | IBV_QP_PATH_MTU), 0);
    attr = {};
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = wiring.timeout;
    attr.retry_cnt = wiring.retry_cnt;
    attr.rnr_retry = wiring.rnr_retry;
    attr.max_rd_atomic = wiring.rd_atomic;
    EXPECT_EQ(ibv_modify_qp(dci.qp, &attr,
                            IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
              0);
    return dci;
}

}  // namespace softhca::test
