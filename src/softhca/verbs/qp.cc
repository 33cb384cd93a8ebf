// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <bit>
#include <cerrno>

#include "softhca/verbs/verbs_ops.h"

namespace softhca {
namespace {

constexpr uint64_t kSendOps = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                              IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                              IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                              IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_SEND_WITH_INV |
                              IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;

int kind_of(const ibv_qp_init_attr_ex& attr, const mlx5dv_qp_init_attr* dv, QpKind* kind) {
    switch (attr.qp_type) {
        case IBV_QPT_RC:
            *kind = QpKind::kRc;
            return 0;
        case IBV_QPT_UC:
            *kind = QpKind::kUc;
            return 0;
        case IBV_QPT_UD:
            *kind = QpKind::kUd;
            return 0;
        case IBV_QPT_DRIVER:
            break;
        default:
            return EOPNOTSUPP;
    }
    if (dv == nullptr || (dv->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_DC) == 0) return EINVAL;
    if (dv->dc_init_attr.dc_type == MLX5DV_DCTYPE_DCI) {
        *kind = QpKind::kDci;
    } else if (dv->dc_init_attr.dc_type == MLX5DV_DCTYPE_DCT) {
        *kind = QpKind::kDct;
    } else {
        return EINVAL;
    }
    return 0;
}

int check_attributes(const Fabric& fabric, const ibv_qp_init_attr_ex& attr, QpKind kind) {
    constexpr uint32_t kMask =
        IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    const Limits& limits = fabric.limits;
    if ((attr.comp_mask & ~kMask) != 0) return EOPNOTSUPP;
    if ((attr.comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || attr.pd == nullptr) return EINVAL;
    // Without multicast, no queue gets its own multicast messages.
    const uint32_t flags = kind == QpKind::kUd ? uint32_t(IBV_QP_CREATE_BLOCK_SELF_MCAST_LB) : 0;
    if ((attr.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 &&
        (attr.create_flags & ~flags) != 0) {
        return EOPNOTSUPP;
    }
    if ((attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0 &&
        (attr.send_ops_flags & ~kSendOps) != 0) {
        return EOPNOTSUPP;
    }
    if (kind == QpKind::kDct) {
        return attr.srq != nullptr && attr.recv_cq != nullptr ? 0 : EINVAL;
    }
    if (attr.send_cq == nullptr || (attr.recv_cq == nullptr && kind != QpKind::kDci)) {
        return EINVAL;
    }
    if (kind == QpKind::kDci && attr.cap.max_recv_wr != 0) return EINVAL;
    if (attr.cap.max_send_wr > limits.max_qp_wr || attr.cap.max_recv_wr > limits.max_qp_wr ||
        attr.cap.max_send_sge > limits.max_sge || attr.cap.max_recv_sge > limits.max_sge ||
        attr.cap.max_inline_data > limits.max_inline) {
        return EINVAL;
    }
    return 0;
}

// Sizes are given back in attr.cap, as adapters round up.
bool make_queues(Qp& qp, ibv_qp_init_attr_ex& attr, uint16_t lid) {
    ibv_qp_cap& cap = attr.cap;
    if (qp.kind == QpKind::kDct) {
        cap = {};
    } else {
        cap.max_send_wr = std::max(cap.max_send_wr, 1u);
        cap.max_send_sge = std::max(cap.max_send_sge, 1u);
        const uint32_t slots = std::bit_ceil(cap.max_send_wr);
        qp.sq.resize(slots);
        qp.sq_mask = slots - 1;
        qp.sq_stride =
            (std::max<uint32_t>(cap.max_send_sge * sizeof(ibv_sge), cap.max_inline_data) + 15) &
            ~15u;
        qp.sq_data = std::make_unique<char[]>(uint64_t{slots} * qp.sq_stride);
    }
    if (attr.srq != nullptr || qp.kind == QpKind::kDci || qp.kind == QpKind::kDct) {
        cap.max_recv_wr = cap.max_recv_sge = 0;
    } else {
        cap.max_recv_sge = std::max(cap.max_recv_sge, 1u);
        qp.rq = create_rq(*qp.fabric, lid, cap.max_recv_wr, cap.max_recv_sge, qp.pd);
        if (qp.rq == nullptr) return false;
    }
    qp.cap = cap;
    return true;
}

void fill_record(Qp& qp, const ibv_qp_init_attr_ex& attr, const mlx5dv_qp_init_attr* dv,
                 uint16_t lid) {
    QpRecord& record = *qp.record;
    record.kind = qp.kind;
    record.state = QpState::kReset;
    record.min_rnr_timer = 0;
    record.path_mtu = IBV_MTU_4096;
    record.events = 0;
    record.access = 0;
    record.pd = qp.pd;
    record.dest_qpn = 0;
    record.qkey = 0;
    record.dc_key = qp.kind == QpKind::kDct ? dv->dc_init_attr.dct_access_key : 0;
    record.recv_cq = attr.recv_cq != nullptr ? Cq::of(attr.recv_cq)->record->number.load() : 0;
    record.uses_srq = attr.srq != nullptr;
    record.rq = attr.srq != nullptr ? Srq::of(attr.srq)->record->number.load()
                                    : (qp.rq != nullptr ? qp.rq->number.load() : 0);
    record.lid = lid;
    record.dlid = 0;
    record.last_wqe_told = false;
}

void fill_handle(Qp& qp, const Context& context, const ibv_qp_init_attr_ex& attr) {
    ibv_qp& base = qp.base;
    base.context = const_cast<Context&>(context).verbs();
    base.qp_context = attr.qp_context;
    base.pd = attr.pd;
    base.send_cq = attr.send_cq;
    base.recv_cq = attr.recv_cq;
    base.srq = attr.srq;
    base.handle = qp.record->number;
    // A DCT has its number from the transition to RTR on.
    base.qp_num = qp.kind == QpKind::kDct ? 0 : qp.record->number.load();
    base.state = IBV_QPS_RESET;
    base.qp_type = attr.qp_type;
    pthread_mutex_init(&base.mutex, nullptr);
    pthread_cond_init(&base.cond, nullptr);
}

void count_users(Qp& qp, int change) {
    if (qp.base.send_cq != nullptr) Cq::of(qp.base.send_cq)->users += change;
    if (qp.base.recv_cq != nullptr) Cq::of(qp.base.recv_cq)->users += change;
    if (qp.base.srq != nullptr) Srq::of(qp.base.srq)->users += change;
    Pd::of(qp.base.pd)->users += change;
}

}  // namespace

ibv_qp* create_any_qp(Context& context, ibv_qp_init_attr_ex& attr, const mlx5dv_qp_init_attr* dv) {
    Fabric& fabric = *context.fabric;
    QpKind kind{};
    int error = kind_of(attr, dv, &kind);
    if (error == 0) error = check_attributes(fabric, attr, kind);
    if (error == 0) error = check_queue_memory("MLX_QP_ALLOC_TYPE");
    if (error != 0) return refuse(error);
    auto qp = std::make_unique<Qp>();
    qp->fabric = &fabric;
    qp->context = &context;
    qp->kind = kind;
    qp->pd = Pd::of(attr.pd)->real()->number;
    qp->sig_all = attr.sq_sig_all != 0;
    if (kind == QpKind::kDci && (dv->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS) != 0) {
        qp->max_failed_streams = 1u << dv->dc_init_attr.dci_streams.log_num_errored;
        qp->failed_streams.reserve(qp->max_failed_streams);
    }
    qp->extended = (attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
    std::lock_guard guard(fabric.objects_mutex);
    if (fabric.qp_count(context.device.lid) >= fabric.limits.max_qp ||
        fabric.faults.fail_create() || (qp->record = fabric.segment.allocate_qp()) == nullptr) {
        return refuse(ENOMEM);
    }
    qp->record->state = QpState::kReset;
    if (!make_queues(*qp, attr, context.device.lid)) {
        Segment::release(*qp->record);
        return refuse(ENOMEM);
    }
    fill_record(*qp, attr, dv, context.device.lid);
    fill_handle(*qp, context, attr);
    install_builders(*qp);
    count_users(*qp, 1);
    ++fabric.qp_count(context.device.lid);
    fabric.qps.set(fabric.segment.index_of(qp->record->number), qp.get());
    fabric.all_qps.push_back(qp.get());
    return &qp.release()->base;
}

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr) {
    return create_any_qp(*Context::of(context), *attr, nullptr);
}

void forget_qp(Qp& qp) {
    Fabric& fabric = *qp.fabric;
    fabric.quiesce(qp);
    fabric.segment.lock(qp.record->lock);
    qp.record->state = QpState::kReset;
    const uint32_t qpn = qp.record->number;
    Segment::release(*qp.record);
    qp.record->lock.unlock();
    if (qp.base.send_cq != nullptr) clean_cq(*Cq::of(qp.base.send_cq), qpn);
    if (qp.base.recv_cq != nullptr) clean_cq(*Cq::of(qp.base.recv_cq), qpn);
    {
        std::lock_guard guard(fabric.objects_mutex);
        fabric.qps.set(fabric.segment.index_of(qpn), nullptr);
        std::erase(fabric.all_qps, &qp);
        --fabric.qp_count(qp.context->device.lid);
    }
    if (qp.rq != nullptr) destroy_rq(fabric, *qp.rq);
    count_users(qp, -1);
}

}  // namespace softhca

using namespace softhca;

SOFTHCA_API ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* init) {
    ibv_qp_init_attr_ex attr{};
    attr.qp_context = init->qp_context;
    attr.send_cq = init->send_cq;
    attr.recv_cq = init->recv_cq;
    attr.srq = init->srq;
    attr.cap = init->cap;
    attr.qp_type = init->qp_type;
    attr.sq_sig_all = init->sq_sig_all;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD;
    attr.pd = pd;
    ibv_qp* qp = create_any_qp(*Context::of(pd->context), attr, nullptr);
    if (qp != nullptr) init->cap = attr.cap;
    return qp;
}

SOFTHCA_API int ibv_destroy_qp(ibv_qp* handle) {
    std::unique_ptr<Qp> qp(Qp::of(handle));
    forget_qp(*qp);
    drop_async_events(*qp->context, qp.get());
    await_acks(qp->base.mutex, qp->base.cond, qp->base.events_completed, qp->async_events);
    pthread_mutex_destroy(&qp->base.mutex);
    pthread_cond_destroy(&qp->base.cond);
    return 0;
}

SOFTHCA_API ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* handle) {
    Qp* qp = Qp::of(handle);
    return qp->extended ? &qp->ex : nullptr;
}

SOFTHCA_API int ibv_query_qp(ibv_qp* handle, ibv_qp_attr* attr, int, ibv_qp_init_attr* init) {
    Qp& qp = *Qp::of(handle);
    *attr = qp.attr;
    attr->qp_state = attr->cur_qp_state =
        ibv_qp_state(qp.record->state.load(std::memory_order_acquire));
    attr->cap = qp.cap;
    attr->sq_draining = 0;
    handle->state = attr->qp_state;
    if (init != nullptr) {
        init->qp_context = handle->qp_context;
        init->send_cq = handle->send_cq;
        init->recv_cq = handle->recv_cq;
        init->srq = handle->srq;
        init->qp_type = handle->qp_type;
        init->cap = qp.cap;
        init->sq_sig_all = qp.sig_all ? 1 : 0;
    }
    return 0;
}

SOFTHCA_API int ibv_query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, uint32_t) {
    return 0;
}
