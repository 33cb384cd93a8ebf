// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include "softhca/host/host_fabric.h"

/// Executing send queues in the process that owns them: at once, in posting order. A request that
/// has to wait (for a receive, for a peer that is not connected yet) stays at the front of its
/// queue, which is tried again by every poll and by the service thread.
namespace softhca {
namespace {

/// Empty polls in a row between offers of the processor: some microseconds.
constexpr uint32_t kPollsBeforeYield = 256;

}  // namespace

void HostFabric::doorbell(Qp& qp, uint32_t) {
    if (!run_queue(qp) || qp.stalled) return;
    qp.stalled = true;
    {
        std::lock_guard guard(stalled_mutex_);
        stalled_.push_back(&qp);
        num_stalled_.fetch_add(1);
    }
    wake(segment.self());
}

bool HostFabric::run_queue(Qp& qp) {
    while (qp.sq_next != qp.sq_tail) {
        const QpState state = qp.record->state.load(std::memory_order_acquire);
        if (state == QpState::kErr || state == QpState::kSqe) {
            flush_send_queue(qp);
            return false;
        }
        if (state != QpState::kRts) return false;
        if (qp.wait_until == 0) {
            switch (faults.operation()) {
                case FaultInjector::Fate::kKillQp:
                    fail_qp(*this, *qp.record, IBV_EVENT_QP_FATAL);
                    continue;
                case FaultInjector::Fate::kLinkDown:
                    if (down_lid_.load() == 0) down_lid_.store(qp.record->lid);
                    break;
                case FaultInjector::Fate::kNothing:
                    down_lid_.store(0);
                    break;
            }
        }
        if (stream_failed(qp, qp.wqe(qp.sq_next))) {
            complete_oldest(qp, IBV_WC_WR_FLUSH_ERR);
            continue;
        }
        if (is_local(qp.wqe(qp.sq_next).opcode)) {
            complete_oldest(qp, execute_local(qp, qp.wqe(qp.sq_next)));
            continue;
        }
        Gather gather;
        const ibv_wc_status status = prepare(qp, qp.sq_next, &gather);
        if (status != IBV_WC_SUCCESS) {
            complete_oldest(qp, status);
            continue;
        }
        Wqe& wqe = qp.wqe(qp.sq_next);
        if (takes_data(wqe.opcode)) wqe.length = uint32_t(gather.length);
        const Request request = make_request(qp, wqe, gather);
        uint8_t rnr_timer = 0;
        Reply reply = Reply::kSilence;
        // Every try of a message may be lost.
        for (unsigned tries = 0; tries <= qp.attr.retry_cnt; ++tries) {
            if (!reachable(request.src_lid, request.dest_lid) || faults.drop_message()) continue;
            if (qp.kind == QpKind::kUd && faults.active()) {
                send_astray(request);
            } else {
                reply = respond(*this, request, &rnr_timer);
            }
            break;
        }
        if (!handle_reply(qp, reply, rnr_timer)) return true;
    }
    return false;
}

// Without a clock of its own the fabric lets a delayed datagram be overtaken by the next one of the
// process.
void HostFabric::send_astray(const Request& request) {
    if (faults.drop_datagram()) return;
    uint8_t rnr_timer = 0;
    if (faults.datagram_delay_ns() != 0) {
        std::lock_guard guard(astray_mutex_);
        if (!astray_) {
            astray_.emplace(request, std::vector<char>(request.length));
            iovec copy{astray_->second.data(), request.length};
            copy_iov(&copy, 1, request.iov, request.num_iov);
            return;
        }
    }
    for (int copies = faults.duplicate_datagram() ? 2 : 1; copies != 0; --copies) {
        respond(*this, request, &rnr_timer);
    }
    std::unique_lock guard(astray_mutex_);
    if (!astray_) return;
    auto [late, payload] = std::move(*astray_);
    astray_.reset();
    guard.unlock();
    iovec piece{payload.data(), payload.size()};
    late.iov = &piece;
    late.num_iov = payload.empty() ? 0 : 1;
    respond(*this, late, &rnr_timer);
}

bool HostFabric::handle_reply(Qp& qp, Reply reply, uint8_t rnr_timer) {
    if (qp.has_ack()) {
        if (reply == Reply::kRnr && !wait_for_peer(qp, true, rnr_wait_ns(rnr_timer))) return false;
        if (reply == Reply::kNotReady && !wait_for_peer(qp, false, ack_wait_ns(qp.attr.timeout))) {
            return false;
        }
    } else {
        reply = Reply::kAck;  // nobody tells
    }
    qp.wait_until = 0;
    qp.rnr_tries = qp.retries = 0;
    complete_oldest(qp, status_of(reply));
    return true;
}

bool HostFabric::wait_for_peer(Qp& qp, bool rnr, uint64_t wait) {
    uint32_t& tries = rnr ? qp.rnr_tries : qp.retries;
    const uint32_t most = rnr ? qp.attr.rnr_retry : qp.attr.retry_cnt;
    const bool for_ever = rnr ? qp.attr.rnr_retry == 7 : wait == 0;
    const uint64_t now = now_ns();
    // Tries in between come for free; only those after the full wait count.
    if (qp.wait_until != 0 && now < qp.wait_until) return false;
    if (!for_ever && tries++ >= most) return true;
    qp.wait_until = now + std::max<uint64_t>(wait, 1);
    return false;
}

void HostFabric::before_poll(Cq&) {
    if (num_stalled_.load(std::memory_order_relaxed) != 0) retry_stalled();
    const uint32_t failures = segment.self_proc().qp_failures.load(std::memory_order_relaxed);
    if (failures != seen_failures_.load(std::memory_order_relaxed)) flush_failed();
}

void HostFabric::after_poll(Cq&, int polled) {
    // A program that spins on its CQ keeps its peers from running where processors are few.
    static thread_local uint32_t empty = 0;
    if (polled > 0) {
        empty = 0;
    } else if (++empty % kPollsBeforeYield == 0) {
        sched_yield();
    }
}

void HostFabric::retry_stalled() {
    // Nobody waits for this mutex with a sq_lock that we would wait for: those are only tried.
    std::unique_lock guard(stalled_mutex_, std::try_to_lock);
    if (!guard.owns_lock()) return;
    std::erase_if(stalled_, [this](Qp* qp) {
        if (!qp->sq_lock.try_lock()) return false;
        const bool waits = run_queue(*qp);
        if (!waits) {
            qp->stalled = false;
            num_stalled_.fetch_sub(1);
        }
        qp->sq_lock.unlock();
        return !waits;
    });
}

void HostFabric::flush_failed() {
    const uint32_t failures = segment.self_proc().qp_failures.load(std::memory_order_acquire);
    if (seen_failures_.exchange(failures) == failures) return;
    std::lock_guard guard(objects_mutex);
    for (Qp* qp : all_qps) {
        if (qp->record->state.load(std::memory_order_acquire) != QpState::kErr) continue;
        // One that is busy looks at the state itself before its next request.
        if (!qp->sq_lock.try_lock()) continue;
        flush_send_queue(*qp);
        qp->sq_lock.unlock();
    }
}

void HostFabric::quiesce(Qp& qp) {
    {
        std::lock_guard guard(stalled_mutex_);
        if (std::erase(stalled_, &qp) != 0) num_stalled_.fetch_sub(1);
    }
    qp.sq_lock.lock();
    qp.stalled = false;
    qp.wait_until = 0;
    qp.sq_next = qp.sq_done = qp.sq_tail;
    qp.sq_lock.unlock();
}

}  // namespace softhca
