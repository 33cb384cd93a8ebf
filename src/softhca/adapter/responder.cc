// SPDX-License-Identifier: BSD-3-Clause
#include "softhca/adapter/responder.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "softhca/adapter/gpu_memory.h"

namespace softhca {
namespace {

constexpr int kMaxSge = 32;
// Up to here a payload is copied under the locks, or carried in the CQ to another process. A copy
// of this size, twice, is cheaper than one system call (0.5 us).
constexpr uint64_t kShortBytes = 2048;
constexpr uint32_t kGrhBytes = 40;

// Announces the use of a region for as long as it lives.
class Hold {
  public:
    Hold() = default;
    Hold(Fabric& fabric, uint32_t key) : slot_(fabric.hold_region(key)) {}
    Hold(Hold&& other) noexcept : slot_(std::exchange(other.slot_, nullptr)) {}
    Hold& operator=(Hold&& other) noexcept {
        std::swap(slot_, other.slot_);
        return *this;
    }
    ~Hold() {
        if (slot_ != nullptr) slot_->store(0, std::memory_order_release);
    }

  private:
    std::atomic<uint32_t>* slot_ = nullptr;
};

// What the responder's QP record says, taken under its lock.
struct Target {
    Owner owner;
    QpKind kind;
    uint32_t number;
    uint32_t access;
    uint32_t pd;
    uint32_t recv_cq;
    uint32_t rq;
    uint8_t min_rnr_timer;
};

bool connecting(const QpRecord& qp) {
    const QpState state = qp.state.load(std::memory_order_acquire);
    return state == QpState::kReset || state == QpState::kInit;
}

bool accepts(const QpRecord& qp, const RequestMessage& request) {
    const QpState state = qp.state.load(std::memory_order_acquire);
    if (state != QpState::kRtr && state != QpState::kRts && state != QpState::kSqd &&
        state != QpState::kSqe) {
        return false;
    }
    if (qp.lid != request.dest_lid) return false;
    switch (request.src_kind) {
        case QpKind::kDci:
            return qp.kind == QpKind::kDct;
        case QpKind::kUd:
            return qp.kind == QpKind::kUd && qp.qkey == request.qkey;
        default:
            return qp.kind == request.src_kind && qp.dest_qpn == request.src_qpn &&
                   qp.dlid == request.src_lid;
    }
}

ibv_grh make_grh(Fabric& fabric, const RequestMessage& request) {
    ibv_grh grh{};
    grh.version_tclass_flow = htobe32(6u << 28);
    grh.paylen = htobe16(uint16_t(request.length));
    grh.next_hdr = 0x1b;
    grh.hop_limit = 64;
    grh.sgid.global.subnet_prefix = grh.dgid.global.subnet_prefix = htobe64(0xfe80000000000000);
    grh.sgid.global.interface_id = htobe64(fabric.guid_of_lid(request.src_lid));
    grh.dgid.global.interface_id = htobe64(fabric.guid_of_lid(request.dest_lid));
    return grh;
}

// One message into one posted receive.
class Receive {
  public:
    Receive(Fabric& fabric, const Target& target, const RequestMessage& request)
        : fabric_(fabric), target_(target), request_(request) {}

    Reply run() {
        RqRecord* rq = fabric_.segment.find_rq(target_.rq);
        if (rq == nullptr) return Reply::kSilence;
        lock_rq(fabric_, *rq);
        const uint32_t head = rq->head.load(std::memory_order_relaxed);
        if (head == rq->tail.load(std::memory_order_acquire)) {
            rq->lock.unlock();
            return Reply::kRnr;
        }
        if (request_.opcode == IBV_WR_SEND_WITH_INV &&
            !invalidate(fabric_, request_.imm, target_.number, target_.pd, target_.owner)) {
            rq->lock.unlock();
            return Reply::kAccess;
        }
        take(*rq, head);
        // Memory that only its owner touches, when it polls, needs no hold.
        const bool local = fabric_.local(target_.owner);
        const ibv_wc_status status = plan(*rq, local || total_ > kShortBytes);
        Reply reply = Reply::kAck;
        if (status != IBV_WC_SUCCESS) {
            cqe_.status = status;
            reply = push(nullptr);
            commit(*rq, head);
            if (reply == Reply::kAck) {
                reply =
                    status == IBV_WC_LOC_LEN_ERR ? Reply::kInvalidRequest : Reply::kRemoteOperation;
            }
            return reply;
        }
        if (total_ <= kShortBytes) {
            if (local) {
                const bool is_there = copy_iov(iov_, num_iov_, data_, num_data_);
                if (!is_there) cqe_.status = IBV_WC_LOC_PROT_ERR;
                reply = push(nullptr);
                commit(*rq, head);
                return is_there ? reply : Reply::kRemoteOperation;
            }
            if (!touches_gpu()) {
                Carried carried{sges_, num_iov_, data_, num_data_, uint32_t(total_)};
                const Push pushed =
                    push_completion(fabric_, target_.recv_cq, cqe_, request_.solicited, &carried);
                if (pushed != Push::kNoRoom) {
                    commit(*rq, head);
                    return pushed == Push::kDone ? Reply::kAck : Reply::kRemoteOperation;
                }
            }
            num_iov_ = 0;
            plan(*rq, true);
        }
        commit(*rq, head);
        // The entry is ours alone now; its regions are held until the bytes are there.
        const AccessResult reach =
            fabric_.move(target_.owner, data_, num_data_, iov_, num_iov_, true);
        if (reach == AccessResult::kDead) return Reply::kSilence;
        if (reach == AccessResult::kFault) {
            cqe_.status = IBV_WC_LOC_PROT_ERR;
            push(nullptr);
            return Reply::kRemoteOperation;
        }
        return push(nullptr);
    }

  private:
    void take(RqRecord& rq, uint32_t head) {
        rq.pop_cq = target_.recv_cq;
        wqe_ = fabric_.segment.at<RecvWqe>(rq.ring + uint64_t(head & (rq.depth - 1)) * rq.stride);
        cqe_.wr_id = wqe_->wr_id;
        cqe_.qpn = target_.number;
        cqe_.src_qp = request_.src_qpn;
        cqe_.slid = request_.src_lid;
        cqe_.sl = request_.sl;
        cqe_.is_recv = true;
        cqe_.rq = target_.rq;
        cqe_.rq_index = head;
        cqe_.byte_len = uint32_t(request_.length);
        const bool write = request_.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
        cqe_.opcode = write ? IBV_WC_RECV_RDMA_WITH_IMM - IBV_WC_RECV : 0;
        if (write || request_.opcode == IBV_WR_SEND_WITH_IMM) {
            cqe_.wc_flags |= IBV_WC_WITH_IMM;
            cqe_.imm = request_.imm;
        } else if (request_.opcode == IBV_WR_SEND_WITH_INV) {
            cqe_.wc_flags |= IBV_WC_WITH_INV;
            cqe_.imm = request_.imm;
        }
        if (write) return;
        if (request_.src_kind == QpKind::kUd) {
            if (request_.has_grh) {
                grh_ = make_grh(fabric_, request_);
                cqe_.wc_flags |= IBV_WC_GRH;
            }
            cqe_.byte_len += kGrhBytes;
            data_[num_data_++] = {&grh_, kGrhBytes};
        }
        for (int i = 0; i < request_.num_iov; ++i) data_[num_data_++] = request_.iov[i];
        total_ = cqe_.byte_len;
    }

    // Chooses the memory that the payload goes to.
    ibv_wc_status plan(const RqRecord& rq, bool hold) {
        uint64_t left = total_;
        for (uint32_t i = 0; i < wqe_->num_sge && left > 0; ++i) {
            const RecvSge& sge = wqe_->sge[i];
            const uint64_t bytes = std::min<uint64_t>(left, sge.length);
            if (bytes == 0) continue;
            if (hold) holds_[num_iov_] = Hold(fabric_, sge.lkey);
            const uint64_t addr = translate(fabric_, sge.lkey, sge.addr, sge.length,
                                            IBV_ACCESS_LOCAL_WRITE, rq.pd, target_.owner);
            if (addr == 0) return IBV_WC_LOC_PROT_ERR;
            sges_[num_iov_] = {addr, uint32_t(bytes), sge.lkey};
            iov_[num_iov_++] = {reinterpret_cast<void*>(addr), bytes};
            left -= bytes;
        }
        return left == 0 ? IBV_WC_SUCCESS : IBV_WC_LOC_LEN_ERR;
    }

    // What the owner finds in its CQ it scatters by itself, and what is put there is host memory.
    bool touches_gpu() {
        for (int i = 0; i < num_iov_; ++i) {
            if (fabric_.may_be_on_gpu(target_.owner, sges_[i].addr)) return true;
        }
        return std::any_of(data_, data_ + num_data_,
                           [](const iovec& piece) { return gpu::may_hold(piece.iov_base); });
    }

    Reply push(const Carried* carried) {
        return push_completion(fabric_, target_.recv_cq, cqe_, request_.solicited, carried) ==
                       Push::kDone
                   ? Reply::kAck
                   : Reply::kRemoteOperation;
    }

    void commit(RqRecord& rq, uint32_t head) {
        rq.head.store(head + 1, std::memory_order_release);
        const bool limit =
            rq.limit != 0 && rq.tail.load(std::memory_order_relaxed) - (head + 1) < rq.limit;
        if (limit) {
            rq.limit = 0;
            rq.events.fetch_or(1u << IBV_EVENT_SRQ_LIMIT_REACHED);
        }
        const Owner owner = rq.owner;
        const uint16_t lid = rq.lid;
        rq.lock.unlock();
        if (limit) fabric_.raised_events(owner, lid);
    }

    Fabric& fabric_;
    const Target& target_;
    const RequestMessage& request_;
    const RecvWqe* wqe_ = nullptr;
    Cqe cqe_{};
    ibv_grh grh_{};
    uint64_t total_ = 0;
    iovec data_[kMaxSge + 1];
    int num_data_ = 0;
    iovec iov_[kMaxSge];
    RecvSge sges_[kMaxSge];
    Hold holds_[kMaxSge];
    int num_iov_ = 0;
};

Reply remote_memory(Fabric& fabric, const Target& target, const RequestMessage& request) {
    const bool write =
        request.opcode == IBV_WR_RDMA_WRITE || request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    const uint32_t right = write ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ;
    // An operation that the queue is not set up for is invalid, whatever its key.
    if ((target.access & right) == 0) return Reply::kInvalidRequest;
    if (request.length == 0) return Reply::kAck;
    Hold hold(fabric, request.rkey);
    const uint64_t addr = translate(fabric, request.rkey, request.remote_addr, request.length,
                                    right, target.pd, target.owner, target.number);
    if (addr == 0) return Reply::kAccess;
    iovec theirs{reinterpret_cast<void*>(addr), request.length};
    switch (fabric.move(target.owner, request.iov, request.num_iov, &theirs, 1, write)) {
        case AccessResult::kOk:
            return Reply::kAck;
        case AccessResult::kDead:
            return Reply::kSilence;
        case AccessResult::kFault:
            break;
    }
    return Reply::kAccess;
}

Reply remote_atomic(Fabric& fabric, const Target& target, const RequestMessage& request) {
    if ((target.access & IBV_ACCESS_REMOTE_ATOMIC) == 0) return Reply::kInvalidRequest;
    if (request.remote_addr % 8 != 0) return Reply::kInvalidRequest;
    Hold hold(fabric, request.rkey);
    const uint64_t addr =
        translate(fabric, request.rkey, request.remote_addr, 8, IBV_ACCESS_REMOTE_ATOMIC, target.pd,
                  target.owner, target.number);
    if (addr == 0) return Reply::kAccess;
    uint64_t old = 0;
    switch (fabric.atomic(target.owner, addr, request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP,
                          request.compare_add, request.swap, &old)) {
        case AccessResult::kOk:
            break;
        case AccessResult::kDead:
            return Reply::kSilence;
        case AccessResult::kFault:
            return Reply::kAccess;
    }
    const iovec answer{&old, 8};
    return copy_iov(request.iov, request.num_iov, &answer, 1) ? Reply::kAck : Reply::kAccess;
}

Reply execute(Fabric& fabric, const Target& target, const RequestMessage& request) {
    switch (request.opcode) {
        case IBV_WR_SEND:
        case IBV_WR_SEND_WITH_IMM:
        case IBV_WR_SEND_WITH_INV:
        case IBV_WR_RDMA_WRITE_WITH_IMM:  // respond() has placed its data
            return Receive(fabric, target, request).run();
        case IBV_WR_RDMA_WRITE:
        case IBV_WR_RDMA_READ:
            return remote_memory(fabric, target, request);
        case IBV_WR_ATOMIC_CMP_AND_SWP:
        case IBV_WR_ATOMIC_FETCH_AND_ADD:
            return remote_atomic(fabric, target, request);
        default:
            return Reply::kInvalidRequest;
    }
}

// What an error does to the responder. A DCT serves others too and goes on; a datagram's sender
// does not hear of it, but the receive has failed and its queue pair with it.
void fail_responder(Fabric& fabric, QpRecord& qp, Reply reply) {
    if (qp.kind == QpKind::kDct) return;
    if (qp.kind == QpKind::kUd) {
        if (reply == Reply::kInvalidRequest || reply == Reply::kRemoteOperation) {
            fail_qp_locked(fabric, qp, -1);
        }
        return;
    }
    switch (reply) {
        case Reply::kAccess:
            fail_qp_locked(fabric, qp, IBV_EVENT_QP_ACCESS_ERR);
            break;
        case Reply::kInvalidRequest:
            fail_qp_locked(fabric, qp, IBV_EVENT_QP_REQ_ERR);
            break;
        case Reply::kRemoteOperation:
            fail_qp_locked(fabric, qp, IBV_EVENT_QP_FATAL);
            break;
        default:
            break;
    }
}

}  // namespace

bool copy_iov(const iovec* to, int num_to, const iovec* from, int num_from) {
    size_t to_used = 0;
    size_t from_used = 0;
    for (int t = 0, f = 0; t < num_to && f < num_from;) {
        const size_t bytes = std::min(to[t].iov_len - to_used, from[f].iov_len - from_used);
        // An empty piece may have no address.
        if (bytes != 0 &&
            !copy_memory(static_cast<char*>(to[t].iov_base) + to_used,
                         static_cast<const char*>(from[f].iov_base) + from_used, bytes)) {
            return false;
        }
        to_used += bytes;
        from_used += bytes;
        if (to_used == to[t].iov_len) {
            ++t;
            to_used = 0;
        }
        if (from_used == from[f].iov_len) {
            ++f;
            from_used = 0;
        }
    }
    return true;
}

uint64_t translate(Fabric& fabric, uint32_t key, uint64_t addr, uint64_t length, uint32_t access,
                   uint32_t pd, Owner owner, uint32_t qpn) {
    const MrRecord* mr = fabric.segment.mr_of_key(key);
    if (mr == nullptr || key == 0 || mr->key.load(std::memory_order_acquire) != key) return 0;
    if (mr->owner != owner || mr->pd != pd || (mr->access & access) != access) return 0;
    if (mr->window && (qpn == 0 || (mr->window_qpn != 0 && mr->window_qpn != qpn))) return 0;
    if (addr < mr->iova || length > mr->length || addr - mr->iova > mr->length - length) return 0;
    return mr->addr + (addr - mr->iova);
}

Reply respond(Fabric& fabric, const RequestMessage& request, uint8_t* rnr_timer) {
    QpRecord* qp = fabric.segment.find_qp(request.dest_qpn);
    if (qp == nullptr || fabric.segment.dead(qp->owner)) return Reply::kSilence;
    fabric.segment.lock(qp->lock);
    if (qp->number.load(std::memory_order_relaxed) != request.dest_qpn || !accepts(*qp, request)) {
        const Reply reply = connecting(*qp) ? Reply::kNotReady : Reply::kSilence;
        qp->lock.unlock();
        return reply;
    }
    const Target target{qp->owner, qp->kind,    request.dest_qpn, qp->access,
                        qp->pd,    qp->recv_cq, qp->rq,           qp->min_rnr_timer};
    if (target.kind == QpKind::kDct && qp->dc_key != request.dc_key) {
        qp->lock.unlock();
        return Reply::kAccess;
    }
    // As on a wire the data of a write goes before its immediate; after RNR the whole message comes
    // again. Without the lock, as the owner's service thread may have to place it.
    if (request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
        qp->lock.unlock();
        const Reply reply = remote_memory(fabric, target, request);
        if (reply == Reply::kSilence) return reply;
        fabric.segment.lock(qp->lock);
        const bool is_same = qp->number.load(std::memory_order_relaxed) == request.dest_qpn;
        if (reply != Reply::kAck || !is_same || !accepts(*qp, request)) {
            if (is_same) fail_responder(fabric, *qp, reply);
            qp->lock.unlock();
            return reply == Reply::kAck ? Reply::kSilence : reply;
        }
    }
    // One-sided operations run without the lock: they may be long, and they touch no queue. The
    // region that they hold keeps the memory in place.
    const bool one_sided = request.opcode == IBV_WR_RDMA_WRITE ||
                           request.opcode == IBV_WR_RDMA_READ ||
                           request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
                           request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    if (one_sided) qp->lock.unlock();
    const Reply reply = execute(fabric, target, request);
    if (reply == Reply::kRnr) *rnr_timer = target.min_rnr_timer;
    if (one_sided) {
        if (reply == Reply::kAck || reply == Reply::kSilence) return reply;
        fabric.segment.lock(qp->lock);
        if (qp->number.load(std::memory_order_relaxed) != request.dest_qpn) {
            qp->lock.unlock();
            return reply;
        }
    }
    fail_responder(fabric, *qp, reply);
    qp->lock.unlock();
    return reply;
}

// --- queue pairs that fail ---

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
