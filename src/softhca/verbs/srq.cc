// SPDX-License-Identifier: BSD-3-Clause
#include <bit>
#include <cerrno>

#include "softhca/adapter/responder.h"
#include "softhca/verbs/verbs_ops.h"

namespace softhca {
namespace {

// Appends receives. @return errno, with the request that failed in `bad`.
int post(Fabric& fabric, Context& context, RqRecord& rq, std::atomic<int32_t>& outstanding,
         uint32_t max_wr, ibv_recv_wr* wr, ibv_recv_wr** bad) {
    int error = 0;
    uint32_t posted = 0;
    lock_rq(fabric, rq);
    uint32_t tail = rq.tail.load(std::memory_order_relaxed);
    for (; wr != nullptr; wr = wr->next, ++posted) {
        if (wr->num_sge < 0 || uint32_t(wr->num_sge) > rq.max_sge) {
            error = EINVAL;
            break;
        }
        if (outstanding.load(std::memory_order_relaxed) >= int32_t(max_wr) ||
            tail - rq.head.load(std::memory_order_relaxed) >= rq.depth) {
            error = ENOMEM;
            break;
        }
        auto* wqe =
            fabric.segment.at<RecvWqe>(rq.ring + uint64_t(tail & (rq.depth - 1)) * rq.stride);
        wqe->wr_id = wr->wr_id;
        wqe->num_sge = uint32_t(wr->num_sge);
        for (int i = 0; i < wr->num_sge; ++i) {
            wqe->sge[i] = {wr->sg_list[i].addr, wr->sg_list[i].length, wr->sg_list[i].lkey};
        }
        rq.tail.store(++tail, std::memory_order_release);
        outstanding.fetch_add(1, std::memory_order_relaxed);
    }
    rq.lock.unlock();
    if (error != 0 && bad != nullptr) *bad = wr;
    fabric.charge_recv_post(context, posted);
    return error;
}

}  // namespace

RqRecord* create_rq(Fabric& fabric, uint16_t lid, uint32_t depth, uint32_t max_sge, uint32_t pd) {
    RqRecord* rq = fabric.segment.allocate_rq();
    if (rq == nullptr) return refuse(ENOMEM);
    rq->lid = lid;
    rq->shared = false;
    rq->depth = std::bit_ceil(std::max(depth, 1u));
    rq->max_sge = max_sge;
    rq->stride = uint32_t(std::bit_ceil(sizeof(RecvWqe) + max_sge * sizeof(RecvSge)));
    rq->ring_bytes = uint64_t{rq->depth} * rq->stride;
    rq->head = rq->tail = 0;
    rq->pop_cq = 0;
    rq->limit = 0;
    rq->pd = pd;
    rq->events = 0;
    rq->ring = fabric.segment.allocate_block(rq->ring_bytes);
    if (rq->ring == 0) {
        Segment::release(*rq);
        return refuse(ENOMEM);
    }
    return rq;
}

void destroy_rq(Fabric& fabric, RqRecord& rq) {
    fabric.segment.lock(rq.lock);
    const uint64_t ring = rq.ring;
    rq.ring = 0;
    rq.head.store(rq.tail.load());
    Segment::release(rq);
    rq.lock.unlock();
    fabric.segment.free_block(ring, rq.ring_bytes);
}

int post_recv(ibv_qp* handle, ibv_recv_wr* wr, ibv_recv_wr** bad) {
    Qp& qp = *Qp::of(handle);
    const QpState state = qp.record->state.load(std::memory_order_acquire);
    if (qp.rq == nullptr || state == QpState::kReset) {
        if (bad != nullptr) *bad = wr;
        return EINVAL;
    }
    const int error =
        post(*qp.fabric, *qp.context, *qp.rq, qp.rq_outstanding, qp.cap.max_recv_wr, wr, bad);
    if (qp.record->state.load(std::memory_order_acquire) == QpState::kErr) {
        flush_receive_queue(*qp.fabric, *qp.record);
    }
    return error;
}

int post_srq_recv(ibv_srq* handle, ibv_recv_wr* wr, ibv_recv_wr** bad) {
    Srq& srq = *Srq::of(handle);
    return post(*srq.fabric, *Context::of(handle->context), *srq.record, srq.outstanding,
                srq.max_wr, wr, bad);
}

ibv_srq* create_srq_ex(ibv_context*, ibv_srq_init_attr_ex* attr) {
    if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0 ||
        ((attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0 && attr->srq_type != IBV_SRQT_BASIC)) {
        return refuse(EOPNOTSUPP);
    }
    return ibv_create_srq(attr->pd, reinterpret_cast<ibv_srq_init_attr*>(attr));
}

int get_srq_num(ibv_srq* srq, uint32_t* number) {
    *number = Srq::of(srq)->record->number;
    return 0;
}

}  // namespace softhca

using namespace softhca;

SOFTHCA_API ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* init) {
    Context& context = *Context::of(pd->context);
    Fabric& fabric = *context.fabric;
    if (init->attr.max_wr > fabric.limits.max_srq_wr ||
        init->attr.max_sge > fabric.limits.max_sge) {
        return refuse(EINVAL);
    }
    if (const int error = check_queue_memory("MLX_SRQ_ALLOC_TYPE"); error != 0)
        return refuse(error);
    auto srq = std::make_unique<Srq>();
    std::lock_guard guard(fabric.objects_mutex);
    if (fabric.all_srqs.size() >= fabric.limits.max_srq || fabric.faults.fail_create())
        return refuse(ENOMEM);
    const uint32_t max_sge = std::max(init->attr.max_sge, 1u);
    const uint32_t max_wr = std::max(init->attr.max_wr, 1u);
    srq->record =
        create_rq(fabric, context.device.lid, max_wr, max_sge, Pd::of(pd)->real()->number);
    if (srq->record == nullptr) return nullptr;
    srq->record->shared = true;
    srq->fabric = &fabric;
    srq->max_wr = init->attr.max_wr = max_wr;
    init->attr.max_sge = max_sge;
    srq->verbs.context = pd->context;
    srq->verbs.srq_context = init->srq_context;
    srq->verbs.pd = pd;
    srq->verbs.handle = srq->record->number;
    pthread_mutex_init(&srq->verbs.mutex, nullptr);
    pthread_cond_init(&srq->verbs.cond, nullptr);
    ++Pd::of(pd)->users;
    fabric.srqs.set(fabric.segment.index_of(srq->record->number), srq.get());
    fabric.all_srqs.push_back(srq.get());
    return &srq.release()->verbs;
}

SOFTHCA_API int ibv_modify_srq(ibv_srq* handle, ibv_srq_attr* attr, int mask) {
    Srq& srq = *Srq::of(handle);
    if ((mask & IBV_SRQ_MAX_WR) != 0) return EOPNOTSUPP;
    if ((mask & IBV_SRQ_LIMIT) != 0) {
        if (attr->srq_limit > srq.max_wr) return EINVAL;
        lock_rq(*srq.fabric, *srq.record);
        srq.record->limit = attr->srq_limit;
        srq.record->lock.unlock();
    }
    return 0;
}

SOFTHCA_API int ibv_query_srq(ibv_srq* handle, ibv_srq_attr* attr) {
    Srq& srq = *Srq::of(handle);
    attr->max_wr = srq.max_wr;
    attr->max_sge = srq.record->max_sge;
    attr->srq_limit = srq.record->limit;
    return 0;
}

SOFTHCA_API int ibv_destroy_srq(ibv_srq* handle) {
    std::unique_ptr<Srq> srq(Srq::of(handle));
    Fabric& fabric = *srq->fabric;
    {
        std::lock_guard guard(fabric.objects_mutex);
        if (srq->users.load() != 0) {
            static_cast<void>(srq.release());
            return EBUSY;
        }
        fabric.srqs.set(fabric.segment.index_of(srq->record->number), nullptr);
        std::erase(fabric.all_srqs, srq.get());
    }
    drop_async_events(*Context::of(handle->context), srq.get());
    await_acks(srq->verbs.mutex, srq->verbs.cond, srq->verbs.events_completed, srq->async_events);
    destroy_rq(fabric, *srq->record);
    --Pd::of(handle->pd)->users;
    pthread_mutex_destroy(&srq->verbs.mutex);
    pthread_cond_destroy(&srq->verbs.cond);
    return 0;
}
