// SPDX-License-Identifier: BSD-3-Clause
#include "softhca/adapter/responder.h"

namespace softhca {

void raise_qp_event(Fabric& fabric, QpRecord& qp, ibv_event_type event) {
    qp.events.fetch_or(1u << event, std::memory_order_release);
    fabric.raised_events(qp.owner, qp.lid);
}

void flush_receive_queue(Fabric& fabric, QpRecord& qp) {
    RqRecord* rq = qp.uses_srq ? nullptr : fabric.segment.find_rq(qp.rq);
    if (rq == nullptr) return;
    lock_rq(fabric, *rq);
    rq->pop_cq = qp.recv_cq;
    uint32_t head = rq->head.load(std::memory_order_relaxed);
    for (; head != rq->tail.load(std::memory_order_acquire); ++head) {
        const auto* wqe =
            fabric.segment.at<RecvWqe>(rq->ring + uint64_t(head & (rq->depth - 1)) * rq->stride);
        Cqe cqe{};
        cqe.wr_id = wqe->wr_id;
        cqe.qpn = qp.number.load(std::memory_order_relaxed);
        cqe.status = IBV_WC_WR_FLUSH_ERR;
        cqe.is_recv = true;
        cqe.rq = qp.rq;
        cqe.rq_index = head;
        push_completion(fabric, qp.recv_cq, cqe, true);
        rq->head.store(head + 1, std::memory_order_release);
    }
    rq->lock.unlock();
}

void fail_qp_locked(Fabric& fabric, QpRecord& qp, int event) {
    if (qp.state.load(std::memory_order_relaxed) == QpState::kErr) return;
    qp.state.store(QpState::kErr, std::memory_order_release);
    flush_receive_queue(fabric, qp);
    if (event >= 0) raise_qp_event(fabric, qp, ibv_event_type(event));
    if (qp.uses_srq && !qp.last_wqe_told) {
        qp.last_wqe_told = true;
        raise_qp_event(fabric, qp, IBV_EVENT_QP_LAST_WQE_REACHED);
    }
    fabric.qp_failed(qp);
}

void fail_qp(Fabric& fabric, QpRecord& qp, int event) {
    fabric.segment.lock(qp.lock);
    fail_qp_locked(fabric, qp, event);
    qp.lock.unlock();
}

}  // namespace softhca
