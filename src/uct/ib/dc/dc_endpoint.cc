// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/dc/dc_endpoint.h"

namespace uct::ib {

DcEndpoint::DcEndpoint(DcInterface& interface, const DcTarget& target, const DcTokens& tokens,
                       bool is_internal)
    : interface_(interface),
      target_(target),
      token_(tokens.outgoing),
      incoming_(tokens.incoming),
      credits_(static_cast<int16_t>(interface.credit_window())),
      dci_(interface.pool().assign()),
      has_flow_control_(interface.has_flow_control() && !is_internal),
      is_internal_(is_internal) {}

DcEndpoint::~DcEndpoint() {
    interface_.pool().drop_waiting(*this);
    if (grant_ != 0) interface_.forget_grant(grant_);
    if (dci_ == DciPool::kNone) return;
    // What is outstanding goes on without the endpoint, but for chains.
    Dci& dci = interface_.pool().at(dci_);
    if (dci.owner == this) dci.owner = nullptr;
    if (has_chain_ && !dci.queue.is_complete(last_chain_)) interface_.pool().cancel(dci);
    if (interface_.pool().is_shared()) dci.queue.forget_owner(this);
}

bool DcEndpoint::post(SendQueue& queue, WorkRequest& request, SendOperation* operation) {
    Dci& dci = Dci::of(queue);
    DciPool& pool = interface_.pool();
    request.target = target_;
    if (fence_next_) [[unlikely]] {
        request.fenced = true;
        fence_next_ = false;
    }
    if (pool.is_shared()) [[unlikely]] {
        request.signaled = true;
        operation->owner = this;
        operation->keep(request);
    } else if (dci_ == DciPool::kNone) {
        pool.take(dci, *this);
    }
    if (pool.is_scarce()) request.signaled = true;
    if (!queue.post(request, operation)) [[unlikely]]
        return false;
    ++dci.used;
    dci.last_target = target_;
    last_ = queue.posted();
    return true;
}

ssize_t DcEndpoint::post_chain(SendQueue& queue, Opcode opcode, std::span<const ChainPiece> pieces,
                               SendOperation& operation, const uint32_t* immediate) {
    Dci& dci = Dci::of(queue);
    const ssize_t taken = queue.post_chain(opcode, pieces, target_, operation, immediate);
    if (taken <= 0) return taken;
    if (dci_ == DciPool::kNone) interface_.pool().take(dci, *this);
    dci.used += static_cast<unsigned>(taken);
    dci.last_target = target_;
    last_ = last_chain_ = queue.posted();
    has_chain_ = true;
    return taken;
}

ucs_status_t DcEndpoint::no_room(Dci* dci) {
    interface_.reclaim_credits();
    if (dci == nullptr) {
        interface_.pool().signal_all();
    } else if (interface_.pool().is_over_quota(*dci)) {
        dci->queue.signal(dci->last_target);
    }
    return UCS_ERR_NO_RESOURCE;
}

bool DcEndpoint::has_own_room() const {
    DciPool& pool = interface_.pool();
    if (dci_ == DciPool::kNone || pool.is_shared()) return true;
    const Dci& dci = pool.at(dci_);
    return dci.queue.has_own_room() && !pool.is_over_quota(dci);
}

ucs_status_t DcEndpoint::fence() {
    if (status_ != UCS_OK) return status_;
    // On another initiator everything before is acknowledged.
    fence_next_ = dci_ != DciPool::kNone;
    return UCS_OK;
}

ucs_status_t DcEndpoint::flush(Completion* completion) {
    if (dci_ == DciPool::kNone) return status_;
    Dci& dci = interface_.pool().at(dci_);
    // Of a queue that others use, the last number may be so old that it looks new.
    if (dci.queue.is_idle() || dci.queue.is_complete(last_)) return status_;
    return flush_queue(dci.queue, target_, this, completion);
}

ucs_status_t DcEndpoint::pending_add(Pending* pending) {
    if (status_ != UCS_OK) return status_;
    DciPool& pool = interface_.pool();
    Dci* dci = dci_ != DciPool::kNone ? &pool.at(dci_) : pool.find_free();
    const bool has_room = dci != nullptr && dci->queue.has_room() && has_own_room() &&
                          !interface_.waits_for_objects();
    if (empty() && credits_ > 0 && has_room) return UCS_ERR_BUSY;
    push_back(*pending);
    pool.wait(*this);
    return UCS_OK;
}

void DcEndpoint::pending_remove(Pending* pending) {
    if (pending->is_queued()) interface_.pool().unwait(*this, *pending);
}

bool DcEndpoint::is_connected(const RemoteAddress& remote) const {
    if (status_ != UCS_OK) return false;
    const auto port = PortAddress::read(remote.device);
    const auto target = DctAddress::read(remote.interface);
    return port && target && target->number == target_.number &&
           interface_.find_address_handle(*port) == target_.ah;
}

void DcEndpoint::fail(ucs_status_t status) {
    if (status_ != UCS_OK) return;
    status_ = status;
    credits_ = 0;
    waits_for_grant_ = false;
    if (grant_ != 0) interface_.forget_grant(grant_);
    grant_ = 0;
    interface_.pool().drop_waiting(*this);
    if (!is_internal_) interface_.report_failure(this, status);
}

// --- flow control ---

bool DcEndpoint::send_control(const void* message, size_t length) {
    ucs_status_t status;
    SendQueue* queue = acquire(&status);
    // A failed endpoint has nobody left to tell.
    if (queue == nullptr) return status != UCS_ERR_NO_RESOURCE;
    WorkRequest request(Opcode::kSend);
    if (!keeps_requests()) {
        request.inlined = true;
        request.add(message, length);
        return post(*queue, request, nullptr);
    }
    BounceBuffer* buffer = interface_.bounce_buffer();
    if (buffer == nullptr) return false;
    std::memcpy(buffer->data, message, length);
    request.add(buffer->data, length, buffer->local_key);
    buffer->operation.pool = &interface_.bounce_pool();
    buffer->operation.finish = finish::release;
    if (post(*queue, request, &buffer->operation)) return true;
    buffer->operation.release();
    return false;
}

void DcEndpoint::request_grant() {
    if (grant_ != 0) return;
    uint64_t id = 0;
    try {
        id = interface_.await_grant(*this);
    } catch (const std::bad_alloc&) {
        return;  // the next message tries again
    }
    if (send_control(interface_.make_request(id))) {
        grant_ = id;
    } else {
        interface_.forget_grant(id);  // the next message tries again
    }
}

ucs_status_t DcEndpoint::wait_for_grant() {
    if (status_ != UCS_OK) return status_;
    request_grant();
    if (grant_ != 0) waits_for_grant_ = true;
    return UCS_ERR_NO_RESOURCE;
}

void DcEndpoint::granted() {
    grant_ = 0;
    credits_ = static_cast<int16_t>(interface_.credit_window());
    waits_for_grant_ = false;
    if (!empty()) interface_.pool().wait(*this);
}

void DcEndpoint::ask_again() {
    if (!waits_for_grant_) return;
    send_control(interface_.make_request(grant_));
}

}  // namespace uct::ib
