// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>

#include "softhca/adapter/requester.h"
#include "softhca/verbs/verbs_ops.h"

// ibv_modify_qp: the transitions, and the attributes that each one requires and allows.
namespace softhca {
namespace {

struct Transition {
    QpKind kind;
    QpState from;
    QpState to;
    int required;
    int optional;
};

constexpr int kInitBase = IBV_QP_PKEY_INDEX | IBV_QP_PORT;
constexpr int kRcRtr = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kRcRts =
    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
constexpr int kPaths = IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;
constexpr int kRcUpdate =
    IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | IBV_QP_CUR_STATE | kPaths | IBV_QP_RATE_LIMIT;

constexpr Transition kTransitions[] = {
    {QpKind::kRc, QpState::kReset, QpState::kInit, kInitBase | IBV_QP_ACCESS_FLAGS, 0},
    {QpKind::kRc, QpState::kInit, QpState::kInit, 0, kInitBase | IBV_QP_ACCESS_FLAGS},
    {QpKind::kRc, QpState::kInit, QpState::kRtr, kRcRtr,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {QpKind::kRc, QpState::kRtr, QpState::kRts, kRcRts, kRcUpdate},
    {QpKind::kRc, QpState::kRts, QpState::kRts, 0, kRcUpdate},
    {QpKind::kRc, QpState::kRts, QpState::kSqd, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {QpKind::kRc, QpState::kSqd, QpState::kRts, 0, kRcUpdate},

    {QpKind::kUc, QpState::kReset, QpState::kInit, kInitBase | IBV_QP_ACCESS_FLAGS, 0},
    {QpKind::kUc, QpState::kInit, QpState::kInit, 0, kInitBase | IBV_QP_ACCESS_FLAGS},
    {QpKind::kUc, QpState::kInit, QpState::kRtr,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {QpKind::kUc, QpState::kRtr, QpState::kRts, IBV_QP_SQ_PSN, kRcUpdate},
    {QpKind::kUc, QpState::kRts, QpState::kRts, 0, kRcUpdate},

    {QpKind::kUd, QpState::kReset, QpState::kInit, kInitBase | IBV_QP_QKEY, 0},
    {QpKind::kUd, QpState::kInit, QpState::kInit, 0, kInitBase | IBV_QP_QKEY},
    {QpKind::kUd, QpState::kInit, QpState::kRtr, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    {QpKind::kUd, QpState::kRtr, QpState::kRts, IBV_QP_SQ_PSN, IBV_QP_CUR_STATE | IBV_QP_QKEY},
    {QpKind::kUd, QpState::kRts, QpState::kRts, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY},
    {QpKind::kUd, QpState::kSqe, QpState::kRts, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY},

    {QpKind::kDci, QpState::kReset, QpState::kInit, kInitBase, IBV_QP_ACCESS_FLAGS},
    {QpKind::kDci, QpState::kInit, QpState::kRtr, IBV_QP_PATH_MTU, IBV_QP_AV | IBV_QP_PKEY_INDEX},
    {QpKind::kDci, QpState::kRtr, QpState::kRts, kRcRts, IBV_QP_MIN_RNR_TIMER},
    {QpKind::kDci, QpState::kRts, QpState::kRts, 0, IBV_QP_MIN_RNR_TIMER},

    {QpKind::kDct, QpState::kReset, QpState::kInit, kInitBase | IBV_QP_ACCESS_FLAGS, 0},
    {QpKind::kDct, QpState::kInit, QpState::kRtr,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER, IBV_QP_PKEY_INDEX},
};

bool allowed(QpKind kind, QpState from, QpState to, int mask) {
    mask &= ~(IBV_QP_STATE | IBV_QP_CUR_STATE);
    if (to == QpState::kReset) return mask == 0 && kind != QpKind::kDct;
    // InfiniBand's figure leads there from anywhere; Linux refuses it out of reset, for any
    // adapter.
    if (to == QpState::kErr) return mask == 0 && from != QpState::kReset;
    for (const Transition& t : kTransitions) {
        if (t.kind == kind && t.from == from && t.to == to) {
            return (mask & t.required) == t.required && (mask & ~(t.required | t.optional)) == 0;
        }
    }
    return false;
}

int check_values(const Qp& qp, const ibv_qp_attr& attr, int mask) {
    const Limits& limits = qp.fabric->limits;
    if ((mask & IBV_QP_PORT) != 0 && !qp.context->device.has_port(attr.port_num)) return EINVAL;
    if ((mask & IBV_QP_PKEY_INDEX) != 0 && attr.pkey_index != 0) return EINVAL;
    if ((mask & IBV_QP_PATH_MTU) != 0 &&
        (attr.path_mtu < IBV_MTU_256 || attr.path_mtu > IBV_MTU_4096)) {
        return EINVAL;
    }
    if ((mask & IBV_QP_DEST_QPN) != 0 && (attr.dest_qp_num >> 24) != 0) return EINVAL;
    if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0 && attr.max_rd_atomic > limits.max_rd_atomic) {
        return EINVAL;
    }
    if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0 && attr.max_dest_rd_atomic > limits.max_rd_atomic) {
        return EINVAL;
    }
    if ((mask & IBV_QP_TIMEOUT) != 0 && attr.timeout > 31) return EINVAL;
    if ((mask & IBV_QP_RETRY_CNT) != 0 && attr.retry_cnt > 7) return EINVAL;
    if ((mask & IBV_QP_RNR_RETRY) != 0 && attr.rnr_retry > 7) return EINVAL;
    if ((mask & IBV_QP_MIN_RNR_TIMER) != 0 && attr.min_rnr_timer > 31) return EINVAL;
    if ((mask & IBV_QP_AV) != 0) {
        // Packets leave by the queue pair's port; 0 does not say.
        if (attr.ah_attr.port_num != 0 && attr.ah_attr.port_num != qp.attr.port_num) return EINVAL;
        if (!has_source_gid(attr.ah_attr)) return ENODATA;
    }
    return 0;
}

// Keeps what `mask` names, here and in the record that peers see.
void apply(Qp& qp, const ibv_qp_attr& attr, int mask) {
    ibv_qp_attr& own = qp.attr;
    QpRecord& record = *qp.record;
    if ((mask & IBV_QP_ACCESS_FLAGS) != 0) {
        own.qp_access_flags = attr.qp_access_flags;
        record.access = attr.qp_access_flags;
    }
    if ((mask & IBV_QP_PKEY_INDEX) != 0) own.pkey_index = attr.pkey_index;
    if ((mask & IBV_QP_PORT) != 0) {
        own.port_num = attr.port_num;
        record.lid = qp.context->device.lid_of(attr.port_num);
    }
    if ((mask & IBV_QP_QKEY) != 0) own.qkey = record.qkey = attr.qkey;
    if ((mask & IBV_QP_AV) != 0) {
        own.ah_attr = attr.ah_attr;
        record.dlid = qp.fabric->resolve(attr.ah_attr);
    }
    if ((mask & IBV_QP_PATH_MTU) != 0) {
        own.path_mtu = attr.path_mtu;
        record.path_mtu = uint8_t(attr.path_mtu);
    }
    if ((mask & IBV_QP_TIMEOUT) != 0) own.timeout = attr.timeout;
    if ((mask & IBV_QP_RETRY_CNT) != 0) own.retry_cnt = attr.retry_cnt;
    if ((mask & IBV_QP_RNR_RETRY) != 0) own.rnr_retry = attr.rnr_retry;
    if ((mask & IBV_QP_RQ_PSN) != 0) own.rq_psn = attr.rq_psn & 0xffffff;
    if ((mask & IBV_QP_SQ_PSN) != 0) own.sq_psn = attr.sq_psn & 0xffffff;
    if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0) own.max_rd_atomic = attr.max_rd_atomic;
    if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0) own.max_dest_rd_atomic = attr.max_dest_rd_atomic;
    if ((mask & IBV_QP_MIN_RNR_TIMER) != 0) {
        own.min_rnr_timer = attr.min_rnr_timer;
        record.min_rnr_timer = attr.min_rnr_timer;
    }
    if ((mask & IBV_QP_DEST_QPN) != 0) own.dest_qp_num = record.dest_qpn = attr.dest_qp_num;
    if ((mask & IBV_QP_PATH_MIG_STATE) != 0) own.path_mig_state = attr.path_mig_state;
    if ((mask & IBV_QP_ALT_PATH) != 0) {
        own.alt_ah_attr = attr.alt_ah_attr;
        own.alt_port_num = attr.alt_port_num;
        own.alt_pkey_index = attr.alt_pkey_index;
        own.alt_timeout = attr.alt_timeout;
    }
}

void reset_queues(Qp& qp) {
    Fabric& fabric = *qp.fabric;
    fabric.quiesce(qp);
    const uint32_t qpn = qp.record->number;
    if (qp.base.send_cq != nullptr) clean_cq(*Cq::of(qp.base.send_cq), qpn);
    if (qp.base.recv_cq != nullptr) clean_cq(*Cq::of(qp.base.recv_cq), qpn);
    if (qp.rq != nullptr) {
        lock_rq(fabric, *qp.rq);
        qp.rq->head.store(qp.rq->tail.load());
        qp.rq->lock.unlock();
        qp.rq_outstanding = 0;
    }
    qp.failed_streams.clear();
    qp.sq_head = qp.sq_done = qp.sq_next = qp.sq_tail;
    qp.rnr_tries = qp.retries = 0;
    qp.attr = {};
    qp.record->access = 0;
    qp.record->dest_qpn = 0;
    qp.record->last_wqe_told = false;
}

void move(Qp& qp, QpState to) {
    QpRecord& record = *qp.record;
    switch (to) {
        case QpState::kReset:
            record.state.store(QpState::kReset, std::memory_order_release);
            record.lock.unlock();
            reset_queues(qp);
            return;
        case QpState::kErr:
            fail_qp_locked(*qp.fabric, record, -1);
            break;
        default:
            record.state.store(to, std::memory_order_release);
            break;
    }
    record.lock.unlock();
    if (qp.kind == QpKind::kDct && to == QpState::kRtr) qp.base.qp_num = record.number;
    if (to == QpState::kSqd && qp.attr.en_sqd_async_notify != 0) {
        raise_qp_event(*qp.fabric, record, IBV_EVENT_SQ_DRAINED);
    }
    if (to == QpState::kErr || to == QpState::kRts) {
        qp.sq_lock.lock();
        if (to == QpState::kErr) {
            flush_send_queue(qp);
        } else if (qp.sq_next != qp.sq_tail) {
            qp.fabric->doorbell(qp, 0);
        }
        qp.sq_lock.unlock();
    }
}

}  // namespace
}  // namespace softhca

using namespace softhca;

SOFTHCA_API int ibv_modify_qp(ibv_qp* handle, ibv_qp_attr* attr, int mask) {
    Qp& qp = *Qp::of(handle);
    QpRecord& record = *qp.record;
    if ((mask & IBV_QP_CAP) != 0) return EOPNOTSUPP;
    int error = check_values(qp, *attr, mask);
    if (error != 0) return error;
    qp.fabric->segment.lock(record.lock);
    const QpState from = record.state.load(std::memory_order_relaxed);
    const QpState to = (mask & IBV_QP_STATE) != 0 ? QpState(attr->qp_state) : from;
    if (((mask & IBV_QP_CUR_STATE) != 0 && QpState(attr->cur_qp_state) != from) ||
        !allowed(qp.kind, from, to, mask)) {
        record.lock.unlock();
        return EINVAL;
    }
    if ((mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) != 0) {
        qp.attr.en_sqd_async_notify = attr->en_sqd_async_notify;
    }
    apply(qp, *attr, mask);
    move(qp, to);
    handle->state = ibv_qp_state(to);
    return 0;
}
