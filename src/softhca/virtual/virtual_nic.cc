// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>

#include "softhca/virtual/virtual_fabric.h"

// The adapters of the virtual fabric: what happens to a request from its doorbell to its
// completion. A request starts when its queue, its doorbell register and its adapter are free;
// queues of one adapter take turns, one request each. A lost or refused message voids what its
// queue sent after it (a newer epoch), and the queue goes back to it.
namespace softhca {
namespace {

bool is_read(const Wqe& wqe) {
    return takes_data(wqe.opcode);
}

// wait_until of a queue that goes on only when the error under way has completed.
constexpr uint64_t kStopped = ~uint64_t{0};

}  // namespace

uint64_t VirtualFabricImpl::serialisation(uint16_t lid, uint64_t bytes, bool dc) const {
    const Model& model = options_.model;
    const bool is_first = (lid - 1u) % ports_per_node() < options_.ports_per_device;
    const double gbps =
        is_first || model.other_link_gbps <= 0 ? model.link_gbps : model.other_link_gbps;
    if (gbps <= 0) return 0;
    const double packets = std::max(1.0, std::ceil(double(bytes) / 4096));
    const double wire = double(bytes) + packets * model.packet_header + (dc ? model.dc_header : 0);
    return ps(wire * 8 / gbps);
}

void VirtualFabricImpl::schedule(uint64_t time, Kind kind, uint32_t qpn, Message* message,
                                 uint32_t epoch) {
    events_.push({std::max(time, now_), ++sequence_, kind, qpn, epoch, message});
}

void VirtualFabricImpl::schedule_transmit(Qp& qp, uint64_t time) {
    if (qp.scheduled) return;
    qp.scheduled = true;
    schedule(time, Kind::kTransmit, qp.record->number);
}
Message* VirtualFabricImpl::new_message() {
    if (free_.empty()) {
        messages_.push_back(std::make_unique<Message>());
        return messages_.back().get();
    }
    Message* message = free_.back();
    free_.pop_back();
    return message;
}

void VirtualFabricImpl::doorbell(Qp& qp, uint32_t posted) {
    const uint16_t lid = qp.record->lid;
    Port& port = ports_[lid];
    const QpState state = qp.record->state;
    ++port.counters.doorbells;
    port.counters.wqes += posted;
    charge(lid, options_.model.doorbell + posted * options_.model.wqe_post);
    if (state == QpState::kErr || state == QpState::kSqe) {
        flush_send_queue(qp);
        return;
    }
    const uint64_t at = now_ + node_of(lid).cpu;
    for (uint32_t i = qp.sq_tail - posted; i != qp.sq_tail; ++i) qp.wqe(i).posted_at = at;
    if (qp.sq_next != qp.sq_tail) schedule_transmit(qp, at);
}

bool VirtualFabricImpl::may_start(Qp& qp, const Wqe& wqe) {
    if (qp.wait_until != 0) return false;
    const QpState state = qp.record->state;
    if (state != QpState::kRts) return false;
    if (qp.inflight_reads > 0 && (wqe.flags & IBV_SEND_FENCE) != 0) return false;
    if (is_read(wqe) && qp.inflight_reads >= std::max<uint32_t>(qp.attr.max_rd_atomic, 1)) {
        return false;
    }
    return true;
}

void VirtualFabricImpl::transmit(Qp& qp) {
    const Model& model = options_.model;
    Port& port = ports_[qp.record->lid];
    if (qp.sq_next == qp.sq_tail || !nodes_[port.node].alive) return;
    const uint32_t position = qp.sq_next;
    Wqe& wqe = qp.wqe(position);
    if (!may_start(qp, wqe)) return;
    const bool dc = qp.kind == QpKind::kDci;
    if (dc) {
        // The target's number alone would do, were it not for a wrong LID or a reset.
        if (qp.target != wqe.dest_qpn) {
            if (qp.sq_next != qp.sq_done) return;  // the last reply comes back here
            qp.target = wqe.dest_qpn;
            ++port.counters.dci_switches;
            schedule_transmit(qp, now_ + ps(model.dci_switch));
            return;
        }
    }
    // The adapter stays free for other queues meanwhile.
    const uint64_t ready =
        std::max(wqe.posted_at + (wqe.inlined ? 0 : ps(model.wqe_fetch)), qp.rate_free);
    if (ready > now_) {
        schedule_transmit(qp, ready);
        return;
    }
    uint64_t start = std::max({now_, qp.context->thread_free, port.tx_free, qp.last_start});
    qp.context->thread_free = start + ps(dc ? model.thread_gap_dc : model.thread_gap_rc);
    port.tx_free = start + ps(dc ? model.nic_gap_dc : model.nic_gap_rc);
    if (!port.requesters.touch(qp.record->number)) {
        ++port.counters.requester_misses;
        port.tx_free += ps(model.requester_miss_gap);
        start += ps(model.cache_miss);
    }
    qp.last_start = start;
    if (model.qp_gbps > 0) qp.rate_free = start + ps(double(wqe.length) * 8 / model.qp_gbps);
    qp.sq_next = position + 1;
    wqe.done = false;
    if (stream_failed(qp, wqe)) {
        if (is_read(wqe)) ++qp.inflight_reads;
        wqe.done = true;
        wqe.status = IBV_WC_WR_FLUSH_ERR;
        complete_done(qp);
        return;
    }
    switch (faults.operation()) {
        case FaultInjector::Fate::kKillQp:
            fail_qp(*this, *qp.record, IBV_EVENT_QP_FATAL);
            return;
        case FaultInjector::Fate::kLinkDown:
            set_port(qp.record->lid, false);
            break;
        case FaultInjector::Fate::kNothing:
            break;
    }
    GatherList gather;
    const bool local = is_local(wqe.opcode);
    const ibv_wc_status status = local ? execute_local(qp, wqe) : prepare(qp, position, &gather);
    if (local || status != IBV_WC_SUCCESS) {
        wqe.done = true;
        wqe.status = uint8_t(status);
        if (status != IBV_WC_SUCCESS) qp.wait_until = kStopped;
        complete_done(qp);
        return;
    }
    if (is_read(wqe)) {
        ++qp.inflight_reads;
        wqe.length = uint32_t(gather.length);
    }
    send(qp, wqe, gather, start);
    if (qp.sq_next != qp.sq_tail) schedule_transmit(qp, start);
}

void VirtualFabricImpl::send(Qp& qp, const Wqe& wqe, const GatherList& gather, uint64_t start) {
    Port& port = ports_[qp.record->lid];
    Message* message = new_message();
    message->gather = gather;
    message->request = make_request(qp, wqe, message->gather);
    message->position = qp.sq_next - 1;
    message->epoch = qp.epoch;
    message->sent = start;
    message->reply = Reply::kAck;
    message->lost = message->stray = false;
    const uint64_t bytes = outgoing_bytes(wqe);
    if (!is_read(wqe)) {
        message->payload.resize(bytes);
        message->payload_iov = {message->payload.data(), bytes};
        copy_iov(&message->payload_iov, 1, gather.iov, gather.count);
        message->request.iov = &message->payload_iov;
        message->request.num_iov = bytes != 0 ? 1 : 0;
    }
    const uint64_t end = std::max(start, port.egress_free) +
                         serialisation(qp.record->lid, bytes, qp.kind == QpKind::kDci);
    port.egress_free = end;
    if (qp.kind == QpKind::kUd && faults.duplicate_datagram()) duplicate(qp, *message, end);
    if (!qp.has_ack()) {
        // Sent is done. The copy of the request that completes must not be the one that arrives.
        Message* done = new_message();
        done->request = message->request;
        done->position = message->position;
        done->epoch = message->epoch;
        done->reply = Reply::kAck;
        schedule(end, Kind::kReply, done->request.src_qpn, done);
    }
    launch(qp, message, end);
}

// A message whose last byte leaves at `end`.
void VirtualFabricImpl::launch(Qp& qp, Message* message, uint64_t end) {
    uint64_t arrival = end + ps(options_.model.one_way) + faults.message_delay_ns() * kPs;
    const uint64_t later = qp.kind == QpKind::kUd ? faults.datagram_delay_ns() : 0;
    if (later != 0) {
        message->stray = true;
        arrival += later * kPs;
    } else {
        arrival = std::max(arrival, qp.last_arrival);
        qp.last_arrival = arrival;
    }
    schedule(arrival, Kind::kArrive, message->request.src_qpn, message);
}

void VirtualFabricImpl::duplicate(Qp& qp, const Message& original, uint64_t end) {
    Message* copy = new_message();
    *copy = original;
    copy->payload_iov.iov_base = copy->payload.data();
    copy->request.iov = &copy->payload_iov;
    launch(qp, copy, end);
}

void VirtualFabricImpl::arrive(Message* message) {
    const RequestMessage& request = message->request;
    Qp* qp = qp_of(request.src_qpn);
    const bool acked = request.src_kind != QpKind::kUd && request.src_kind != QpKind::kUc;
    if (qp != nullptr && acked && message->epoch != qp->epoch) {
        free_message(message);
        return;
    }
    message->lost = !reachable(request.src_lid, request.dest_lid) || faults.drop_message() ||
                    (request.src_kind == QpKind::kUd && faults.drop_datagram());
    if (message->lost) {
        // In its turn: what arrived before it is not sent again.
        if (qp != nullptr && qp->last_delivery > now_) {
            schedule(qp->last_delivery, Kind::kDeliver, request.src_qpn, message);
        } else {
            lose(message);
        }
        return;
    }
    const Model& model = options_.model;
    Port& port = ports_[request.dest_lid];
    const uint64_t wire =
        takes_data(request.opcode)
            ? 0
            : serialisation(request.dest_lid, request.length, request.src_kind == QpKind::kDci);
    port.ingress_free = std::max(now_ - std::min(now_, wire), port.ingress_free) + wire;
    uint64_t start = std::max({now_, port.ingress_free, port.rx_free});
    port.rx_free = start + ps(model.responder_gap);
    if (!port.responders.touch((uint64_t{request.dest_qpn} << 32) | request.src_qpn)) {
        ++port.counters.responder_misses;
        port.rx_free += ps(model.responder_miss_gap);
        start += ps(model.cache_miss);
    }
    if (qp != nullptr && !message->stray) {
        start = std::max(start, qp->last_delivery);
        qp->last_delivery = start;
    }
    if (start > now_) {
        schedule(start, Kind::kDeliver, request.src_qpn, message);
    } else {
        deliver(message);
    }
}

void VirtualFabricImpl::deliver(Message* message) {
    RequestMessage& request = message->request;
    Qp* qp = qp_of(request.src_qpn);
    const bool acked = request.src_kind != QpKind::kUd && request.src_kind != QpKind::kUc;
    // A requester that is gone takes no data back; what it sent still lands.
    const bool void_message =
        qp == nullptr ? takes_data(request.opcode) : acked && message->epoch != qp->epoch;
    if (void_message) {
        free_message(message);
        return;
    }
    if (message->lost) {
        lose(message);
        return;
    }
    if (takes_data(request.opcode)) request.iov = message->gather.iov;
    uint8_t rnr_timer = 0;
    message->reply = respond(*this, request, &rnr_timer);
    Port& port = ports_[request.dest_lid];
    if (message->reply == Reply::kSilence || message->reply == Reply::kNotReady) {
        lose(message);
        return;
    }
    if (message->reply == Reply::kRnr) ++port.counters.rnr;
    if (message->reply == Reply::kAck) {
        ++port.counters.messages;
        port.counters.bytes += request.length;
    }
    // The responder's failure may have flushed the requester too, where both are one.
    qp = qp_of(request.src_qpn);
    if (!acked || qp == nullptr || message->epoch != qp->epoch) {
        free_message(message);
        return;
    }
    if (message->reply == Reply::kRnr) {
        const uint64_t wait = ps(double(rnr_wait_ns(rnr_timer)) * options_.model.rnr_timer_scale);
        back_off(*qp, message->position, now_ + ps(options_.model.one_way) + wait, Reply::kRnr);
        free_message(message);
        return;
    }
    if (message->reply != Reply::kAck) {
        ++qp->epoch;
        qp->wait_until = kStopped;
    }
    schedule(reply_time(*message), Kind::kReply, request.src_qpn, message);
}

uint64_t VirtualFabricImpl::reply_time(const Message& message) {
    const Model& model = options_.model;
    const RequestMessage& request = message.request;
    uint64_t leaves = now_;
    if (message.reply == Reply::kAck && takes_data(request.opcode)) {
        Port& port = ports_[request.dest_lid];
        const bool read = request.opcode == IBV_WR_RDMA_READ;
        leaves += ps(read ? model.responder_read : model.responder_atomic);
        leaves = std::max(leaves, port.egress_free) +
                 serialisation(request.dest_lid, request.length, false);
        port.egress_free = leaves;
    }
    return leaves + ps(model.one_way);
}

void VirtualFabricImpl::lose(Message* message) {
    const RequestMessage& request = message->request;
    Qp* qp = qp_of(request.src_qpn);
    if (qp != nullptr && qp->has_ack() && message->epoch == qp->epoch) {
        const uint64_t wait =
            ps(double(ack_wait_ns(qp->attr.timeout)) * options_.model.retry_timeout_scale);
        const bool for_ever = qp->attr.timeout == 0;
        if (for_ever) {
            ++qp->epoch;  // no timer: the queue hangs, as it would
            qp->wait_until = kStopped;
        } else {
            back_off(*qp, message->position, message->sent + wait, Reply::kSilence);
        }
    }
    free_message(message);
}

void VirtualFabricImpl::back_off(Qp& qp, uint32_t position, uint64_t until, Reply reason) {
    ++qp.epoch;
    for (uint32_t i = position; i != qp.sq_next; ++i) {
        if (is_read(qp.wqe(i))) --qp.inflight_reads;
    }
    qp.sq_next = position;
    qp.wait_until = std::max<uint64_t>(until, 1);
    qp.wait_reason_rnr = reason == Reply::kRnr;
    schedule(until, Kind::kRetry, qp.record->number, nullptr, qp.epoch);
}

void VirtualFabricImpl::retry(Qp& qp, uint32_t epoch) {
    if (epoch != qp.epoch || qp.wait_until == 0) return;
    qp.wait_until = 0;
    bool exhausted = false;
    if (qp.wait_reason_rnr) {
        exhausted = qp.attr.rnr_retry != 7 && qp.rnr_tries++ >= qp.attr.rnr_retry;
    } else {
        exhausted = qp.retries++ >= qp.attr.retry_cnt;
    }
    if (!exhausted) {
        ++ports_[qp.record->lid].counters.retransmissions;
        schedule_transmit(qp, now_);
        return;
    }
    Wqe& wqe = qp.wqe(qp.sq_next);
    wqe.done = true;
    wqe.status = uint8_t(qp.wait_reason_rnr ? IBV_WC_RNR_RETRY_EXC_ERR : IBV_WC_RETRY_EXC_ERR);
    if (is_read(wqe)) ++qp.inflight_reads;
    ++qp.sq_next;
    complete_done(qp);
}

void VirtualFabricImpl::reply(Message* message) {
    Qp* qp = qp_of(message->request.src_qpn);
    if (qp == nullptr || message->position - qp->sq_done >= qp->sq_next - qp->sq_done) {
        free_message(message);
        return;
    }
    Wqe& wqe = qp->wqe(message->position);
    wqe.done = true;
    wqe.status = uint8_t(status_of(message->reply));
    if (message->reply == Reply::kAck) qp->rnr_tries = qp->retries = 0;
    free_message(message);
    complete_done(*qp);
}

void VirtualFabricImpl::complete_done(Qp& qp) {
    while (qp.sq_done != qp.sq_next && qp.wqe(qp.sq_done).done) {
        const Wqe& wqe = qp.wqe(qp.sq_done);
        if (is_read(wqe) && qp.inflight_reads > 0) --qp.inflight_reads;
        const bool error = wqe.status != IBV_WC_SUCCESS && wqe.status != IBV_WC_WR_FLUSH_ERR;
        complete_oldest(qp, ibv_wc_status(wqe.status));
        if (!error) continue;
        qp.wait_until = 0;
        // Where only a DCI stream failed: what followed was not executed and is sent again.
        while (qp.sq_next != qp.sq_done) {
            if (is_read(qp.wqe(--qp.sq_next)) && qp.inflight_reads > 0) --qp.inflight_reads;
        }
    }
    if (qp.sq_next != qp.sq_tail) schedule_transmit(qp, now_);
}

void VirtualFabricImpl::qp_failed(QpRecord& record) {
    Qp* qp = qps.get(segment.index_of(record.number));
    if (qp == nullptr) return;
    ++qp->epoch;
    qp->wait_until = 0;
    qp->inflight_reads = 0;
    // The owner of a send queue that is being completed just now flushes it itself, after the
    // completion that tells the reason.
    if (!qp->completing) flush_send_queue(*qp);
}

void VirtualFabricImpl::quiesce(Qp& qp) {
    ++qp.epoch;
    qp.wait_until = 0;
    qp.inflight_reads = 0;
    qp.target = 0;
    qp.sq_next = qp.sq_done = qp.sq_tail;
}

bool VirtualFabricImpl::step() {
    if (events_.empty()) return false;
    const Event event = events_.top();
    events_.pop();
    now_ = std::max(now_, event.time);
    for (const uint64_t word : {event.time, uint64_t(event.kind), uint64_t{event.qpn}}) {
        hash_ = (hash_ ^ word) * 0x100000001b3;
    }
    switch (event.kind) {
        case Kind::kTransmit:
            if (Qp* qp = qp_of(event.qpn)) {
                qp->scheduled = false;
                transmit(*qp);
            }
            break;
        case Kind::kArrive:
            arrive(event.message);
            break;
        case Kind::kDeliver:
            deliver(event.message);
            break;
        case Kind::kReply:
            reply(event.message);
            break;
        case Kind::kRetry:
            if (Qp* qp = qp_of(event.qpn)) retry(*qp, event.epoch);
            break;
    }
    return true;
}
void VirtualFabricImpl::advance_to(uint64_t ns) {
    const uint64_t until = ns * kPs;
    while (!events_.empty() && events_.top().time <= until) step();
    now_ = std::max(now_, until);
}

}  // namespace softhca
