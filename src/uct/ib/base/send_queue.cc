// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/base/send_queue.h"

#include <algorithm>

#include "ucs/log/log.h"

namespace uct::ib {

ucs_status_t status_of(ibv_wc_status status) {
    switch (status) {
        case IBV_WC_SUCCESS:
            return UCS_OK;
        case IBV_WC_RETRY_EXC_ERR:
        case IBV_WC_RNR_RETRY_EXC_ERR:
        case IBV_WC_RESP_TIMEOUT_ERR:
            return UCS_ERR_ENDPOINT_TIMEOUT;
        case IBV_WC_REM_ACCESS_ERR:
            return UCS_ERR_REJECTED;
        case IBV_WC_REM_INV_REQ_ERR:
        case IBV_WC_REM_OP_ERR:
        case IBV_WC_REM_ABORT_ERR:
            return UCS_ERR_CONNECTION_RESET;
        case IBV_WC_WR_FLUSH_ERR:
            return UCS_ERR_CANCELED;
        default:
            return UCS_ERR_IO_ERROR;
    }
}

SendQueue::SendQueue(SendQueueOwner& owner, CompletionCredits& credits, unsigned depth,
                     unsigned moderation)
    : owner_(owner), credits_(credits), depth_(depth), moderation_(moderation) {
    credits_.available -= static_cast<int>(kReserve);
}

SendQueue::~SendQueue() {
    qp_.reset();
    credits_.available += static_cast<int>(kReserve + outstanding() - (reserve_used_ ? 1 : 0));
}

void SendQueue::attach(QpPtr qp, bool extended, bool dynamic, uint32_t token) {
    qp_ = std::move(qp);
    token_ = token;
    if (extended) extended_ = ibv_qp_to_qp_ex(qp_.get());
    if (dynamic) dynamic_ = mlx5dv_qp_ex_from_ibv_qp_ex(extended_);
}

bool SendQueue::post(const WorkRequest& request, SendOperation* operation) {
    // The moderation is at most a quarter of the depth: a full queue always has a completion due.
    const bool signaled = request.signaled || posted_ + 1 - signaled_ >= moderation_;
    if (!submit(request, signaled)) return false;
    --credits_.available;
    if (operation != nullptr) {
        operation->index = posted_;
        operation->has_request = true;
        operations_.push_back(*operation);
    }
    return true;
}

bool SendQueue::submit(const WorkRequest& request, bool signaled) {
    const uint32_t index = posted_ + 1;
    const uint64_t id = uint64_t{token_} << 32 | index;
    const unsigned flags = (signaled ? unsigned{IBV_SEND_SIGNALED} : 0u) |
                           (request.fenced ? unsigned{IBV_SEND_FENCE} : 0u);
    const bool done =
        extended_ != nullptr ? post_extended(request, id, flags) : post_plain(request, id, flags);
    if (!done) [[unlikely]]
        return refused();
    posted_ = index;
    if (signaled) signaled_ = index;
    count_plain();
    return true;
}

// Completions make more room than this says; the next signalled request finds it.
void SendQueue::count_plain() {
    const uint32_t unsignaled = posted_ - signaled_;
    const bool any = extended_ != nullptr && outstanding() < depth_ && unsignaled + 1 < moderation_;
    plain_left_ = any ? std::min(depth_ - outstanding(), moderation_ - 1 - unsignaled) : 0;
}

bool SendQueue::refused() const {
    ucs::log_error("queue pair {:#x} refuses a work request with {} of {} outstanding", qp_->qp_num,
                   outstanding(), depth_);
    return false;
}

bool SendQueue::post_extended(const WorkRequest& request, uint64_t id, unsigned flags) {
    ibv_qp_ex* const qp = extended_;
    ibv_wr_start(qp);
    qp->wr_id = id;
    qp->wr_flags = flags;
    switch (request.opcode) {
        case Opcode::kSend:
            ibv_wr_send(qp);
            break;
        case Opcode::kWrite:
            ibv_wr_rdma_write(qp, request.remote_key, request.remote_address);
            break;
        case Opcode::kRead:
            ibv_wr_rdma_read(qp, request.remote_key, request.remote_address);
            break;
        case Opcode::kFetchAdd:
            ibv_wr_atomic_fetch_add(qp, request.remote_key, request.remote_address,
                                    request.operand);
            break;
        case Opcode::kCompareSwap:
            ibv_wr_atomic_cmp_swp(qp, request.remote_key, request.remote_address, request.compare,
                                  request.operand);
            break;
    }
    if (dynamic_ != nullptr) {
        mlx5dv_wr_set_dc_addr(dynamic_, request.target.ah, request.target.number, kDcKey);
    }
    if (request.inlined) {
        ibv_data_buf pieces[kMaxSge];
        for (unsigned i = 0; i < request.pieces; ++i) {
            pieces[i] = {reinterpret_cast<void*>(request.sge[i].addr), request.sge[i].length};
        }
        ibv_wr_set_inline_data_list(qp, request.pieces, pieces);
    } else if (request.pieces == 1) {
        ibv_wr_set_sge(qp, request.sge[0].lkey, request.sge[0].addr, request.sge[0].length);
    } else {
        ibv_wr_set_sge_list(qp, request.pieces, request.sge);
    }
    return ibv_wr_complete(qp) == 0;
}

bool SendQueue::post_plain(const WorkRequest& request, uint64_t id, unsigned flags) {
    static constexpr ibv_wr_opcode kOpcodes[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
                                                 IBV_WR_ATOMIC_FETCH_AND_ADD,
                                                 IBV_WR_ATOMIC_CMP_AND_SWP};
    ibv_send_wr plain{};
    plain.wr_id = id;
    plain.sg_list = const_cast<ibv_sge*>(request.sge);
    plain.num_sge = request.pieces;
    plain.opcode = kOpcodes[static_cast<size_t>(request.opcode)];
    plain.send_flags = flags | (request.inlined ? unsigned{IBV_SEND_INLINE} : 0u);
    if (is_datagram_) {
        plain.wr.ud = {request.target.ah, request.target.number, request.remote_key};
    } else if (request.opcode == Opcode::kFetchAdd) {
        plain.wr.atomic = {request.remote_address, request.operand, 0, request.remote_key};
    } else if (request.opcode == Opcode::kCompareSwap) {
        plain.wr.atomic = {request.remote_address, request.compare, request.operand,
                           request.remote_key};
    } else {
        plain.wr.rdma = {request.remote_address, request.remote_key};
    }
    ibv_send_wr* bad;
    return ibv_post_send(qp_.get(), &plain, &bad) == 0;
}

bool SendQueue::signal(const DcTarget& target) {
    if (!has_unsignaled()) return true;
    WorkRequest nothing(Opcode::kWrite);
    nothing.inlined = true;
    nothing.target = target;
    if (has_room()) {
        nothing.signaled = true;
        return post(nothing);
    }
    if (reserve_used_ || failed_) return false;
    if (!submit(nothing, true)) return false;
    reserve_used_ = true;
    reserved_signal_ = posted_;
    return true;
}

bool SendQueue::ride(SendOperation& operation, const DcTarget& target) {
    if (!signal(target)) return false;
    operation.index = posted_;
    operation.has_request = false;
    operations_.push_back(operation);
    return true;
}

void SendQueue::finish(uint32_t index, ucs_status_t status) {
    if (is_complete(index)) return;
    credits_.available += static_cast<int>(index - completed_);
    completed_ = index;
    if (reserve_used_ && is_complete(reserved_signal_)) {
        reserve_used_ = false;
        --credits_.available;  // it came out of the reserve and goes back there
    }
    // Out of the list first: a callback may destroy the endpoint and this queue.
    OperationList done;
    while (!operations_.empty() && is_complete(operations_.front().index)) {
        SendOperation& operation = operations_.front();
        operations_.pop_front();
        done.push_back(operation);
    }
    finish_all(done, status);
}

void SendQueue::complete(uint32_t index, ibv_wc_status status, uint32_t vendor_error) {
    if (status == IBV_WC_SUCCESS) [[likely]] {
        finish(index, UCS_OK);
        return;
    }
    if (failed_) return;
    ucs::log_debug("queue pair {:#x}: work request {} failed: {} (vendor error {:#x})", qp_->qp_num,
                   index, ibv_wc_status_str(status), vendor_error);
    failed_ = true;
    plain_left_ = 0;
    owner_.on_failed(*this, index, status_of(status));
}

void SendQueue::fail(ucs_status_t status) {
    if (failed_) return;
    failed_ = true;
    plain_left_ = 0;
    owner_.on_failed(*this, completed_ + 1, status);
}

void SendQueue::refuse_messages() {
    if (qp_ == nullptr || token_ == 0) return;  // reset: it takes none
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    if (ibv_modify_qp(qp_.get(), &attributes, IBV_QP_STATE) != 0) {
        ucs::log_error("queue pair {:#x} cannot be stopped", qp_->qp_num);
    }
}

void SendQueue::reset(uint32_t failed, OperationList* done, OperationList* rest) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RESET;
    if (ibv_modify_qp(qp_.get(), &attributes, IBV_QP_STATE) != 0) {
        ucs::log_error("queue pair {:#x} cannot be reset", qp_->qp_num);
    }
    failed_ = true;
    plain_left_ = 0;
    token_ = 0;
    credits_.available += static_cast<int>(outstanding() - (reserve_used_ ? 1 : 0));
    reserve_used_ = false;
    while (!operations_.empty()) {
        SendOperation& operation = operations_.front();
        operations_.pop_front();
        const bool earlier = ucs::is_before(operation.index, failed);
        (earlier ? done : rest)->push_back(operation);
    }
    signaled_ = completed_ = posted_;  // numbers go on: endpoints remember them
}

void SendQueue::restart(uint32_t token) {
    token_ = token;
    failed_ = false;
}

OperationList SendQueue::take_all() {
    OperationList all;
    all.swap(operations_);
    return all;
}

void SendQueue::forget_owner(const void* owner) {
    for (SendOperation& operation : operations_) {
        if (operation.owner == owner) operation.owner = nullptr;
    }
}

void finish_failed(OperationList& operations, ucs_status_t status) {
    if (operations.empty()) return;
    OperationList others;
    others.swap(operations);
    SendOperation& first = others.front();
    others.pop_front();
    first.finish(first, status);
    finish_all(others, status_of_others(status));
}

void finish_all(OperationList& operations, ucs_status_t status) {
    while (!operations.empty()) {
        SendOperation& operation = operations.front();
        operations.pop_front();
        operation.finish(operation, status);
    }
}

}  // namespace uct::ib
