// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/rc/rc_endpoint.h"

#include <cerrno>
#include <cstring>

#include "ucs/log/log.h"
#include "uct/ib/rc/rc_queue_pair.h"

namespace uct::ib {

RcEndpoint::RcEndpoint(RcInterface& interface, QpPtr qp, const QpAddress& local)
    : interface_(interface),
      queue_(std::in_place, static_cast<SendQueueOwner&>(*this), interface.credits(),
             interface.queue_depth(), interface.moderation()),
      credits_(interface.credit_window()),
      soft_(interface.config().fc_enable ? interface.soft_threshold() : -1),
      hard_(interface.hard_threshold()),
      used_per_message_(interface.config().fc_enable ? 1 : 0),
      local_(local) {
    queue_->attach(std::move(qp), interface.is_extended(), false, interface.add_queue(*queue_));
    interface_.add(*this, local.number);
}

RcEndpoint::~RcEndpoint() {
    stop_waiting();
    interface_.pending().drop_all(*this);
    if (queue_->token() != 0) interface_.remove_queue(queue_->token());
    // A message that came in between would be dropped with its queue pair, and its buffer lost to
    // the shared receive queue for good.
    queue_->refuse_messages();
    interface_.keep_receives();
    if (gate_ != nullptr) {
        interface_.drop_kept(local_.number);
        interface_.count_gates(-1);
    }
    interface_.remove(*this, local_.number);
    OperationList rest = queue_->take_all();
    queue_.reset();  // the adapter touches no buffer after this
    finish_all(rest, UCS_ERR_CANCELED);
}

ucs_status_t RcEndpoint::get_address(std::span<std::byte> address) const {
    if (address.size() < QpAddress::kLength) return UCS_ERR_BUFFER_TOO_SMALL;
    local_.write(address);
    return UCS_OK;
}

ucs_status_t RcEndpoint::connect(const RemoteAddress& remote) {
    const auto port = PortAddress::read(remote.device);
    const auto peer = QpAddress::read(remote.endpoint);
    if (!port || !peer) return UCS_ERR_INVALID_ADDR;
    if (!port->reachable_from(interface_.path().address)) return UCS_ERR_UNREACHABLE;
    if (status_ != UCS_ERR_NOT_CONNECTED) return UCS_ERR_ALREADY_EXISTS;
    const RcConnection connection{
        interface_.device(), interface_.path(), interface_.config(), *port, *peer, local_};
    if (!connect_rc(queue_->qp(), connection)) {
        ucs::log_error("{}: queue pair {:#x} cannot be connected to {:#x} at lid {}: {}",
                       interface_.device().name(), local_.number, peer->number, port->lid,
                       std::strerror(errno));
        return UCS_ERR_IO_ERROR;
    }
    remote_ = *peer;
    remote_port_ = *port;
    status_ = UCS_OK;
    return UCS_OK;
}

bool RcEndpoint::is_connected(const RemoteAddress& remote) const {
    if (status_ != UCS_OK) return false;
    const auto port = PortAddress::read(remote.device);
    const auto peer = QpAddress::read(remote.endpoint);
    return port && peer && *port == remote_port_ && peer->number == remote_.number &&
           peer->packet_number == remote_.packet_number;
}

void RcEndpoint::set_receive_gate(ReceiveGate* gate) {
    interface_.count_gates((gate != nullptr) - (gate_ != nullptr));
    gate_ = gate;
}

ucs_status_t RcEndpoint::fence() {
    if (status_ != UCS_OK) return status_;
    fence_next_ = true;
    return UCS_OK;
}

ucs_status_t RcEndpoint::flush(Completion* completion) {
    if (queue_->is_idle()) return status_ == UCS_ERR_NOT_CONNECTED ? UCS_OK : status_;
    return flush_queue(*queue_, {}, this, completion);
}

ucs_status_t RcEndpoint::pending_add(Pending* pending) {
    if (status_ != UCS_OK) return status_;
    const bool has_room = queue_->has_room() && !interface_.waits_for_objects();
    if (has_room && !waits_for_grant_ && empty()) return UCS_ERR_BUSY;
    push_back(*pending);
    interface_.pending().schedule(*this);
    return UCS_OK;
}

void RcEndpoint::pending_remove(Pending* pending) {
    interface_.pending().remove(*this, *pending);
}

ucs_status_t RcEndpoint::no_room() {
    interface_.reclaim_credits();
    return UCS_ERR_NO_RESOURCE;
}

void RcEndpoint::on_completed(SendQueue& queue) {
    if (!empty()) interface_.pending().schedule(*this);
}

void RcEndpoint::on_failed(SendQueue& queue, uint32_t index, ucs_status_t status) {
    // A queue that says nothing before it is flushed was put into the error state by somebody else,
    // as an adapter does with the target of an access that is not allowed. We cancelled nothing.
    if (status == UCS_ERR_CANCELED) status = UCS_ERR_CONNECTION_RESET;
    interface_.remove_queue(queue.token());
    interface_.keep_receives();
    OperationList done, rest;
    queue.reset(index, &done, &rest);
    status_ = status_of_others(status);
    stop_waiting();
    interface_.pending().drop_all(*this);
    // The endpoint may be gone after the handler; the operations are ours.
    interface_.report_failure(this, status_of_others(status));
    finish_all(done, UCS_OK);
    finish_failed(rest, status);
}

// --- flow control ---

// An immediate uses up a credit, but has no first byte that could ask for more.
ssize_t RcEndpoint::put_chain_immediate(std::span<const ChainPiece> pieces, uint32_t value,
                                        Completion* completion) {
    constexpr uint8_t kRequests = am_header::kSoftRequest | am_header::kHardRequest;
    if (status_ == UCS_OK && (credits_ <= 0 || (message_flags() & kRequests) != 0)) return 0;
    const ssize_t taken = chain(Opcode::kWrite, pieces, completion, &value);
    if (taken == static_cast<ssize_t>(pieces.size())) credits_ -= used_per_message_;
    return taken;
}

uint8_t RcEndpoint::flags_slow() const {
    uint8_t flags = 0;
    if (soft_ >= 0 && credits_ == hard_) return am_header::kHardRequest;
    if (soft_ >= 0 && credits_ == soft_) flags |= am_header::kSoftRequest;
    if (owes_grant_) flags |= am_header::kGrant;
    return flags;
}

ucs_status_t RcEndpoint::wait_for_grant() {
    if (!waits_for_grant_) {
        waits_for_grant_ = true;
        interface_.count_waiting(1);
    }
    return UCS_ERR_NO_RESOURCE;
}

void RcEndpoint::stop_waiting() {
    if (!waits_for_grant_) return;
    waits_for_grant_ = false;
    interface_.count_waiting(-1);
}

void RcEndpoint::granted() {
    credits_ = interface_.credit_window();
    stop_waiting();
    if (!empty()) interface_.pending().schedule(*this);
}

bool RcEndpoint::send_control(uint8_t header) {
    if (status_ != UCS_OK) return true;
    if (!queue_->has_room()) return false;
    WorkRequest request(Opcode::kSend);
    request.inlined = true;
    request.add(&header, sizeof(header));
    return queue_->post(request);
}

void RcEndpoint::grant_now() {
    owes_grant_ = false;
    if (!send_control(am_header::kPureGrant)) interface_.owe_grant(*this);
}

void RcEndpoint::ask_again() {
    if (waits_for_grant_) send_control(am_header::kPureRequest);
}

}  // namespace uct::ib
