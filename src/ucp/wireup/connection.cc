// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/wireup/connection.h"

#include <new>
#include <utility>

#include "ucp/select/worker_address.h"
#include "ucp/wireup/listener.h"
#include "ucs/log/log.h"

namespace ucp::wireup {

Connection::Connection(ConnectionManager& manager, Endpoint& endpoint)
    : WatchedSocket(manager), endpoint_(endpoint) {
    do {
        own_stream_ = manager.services().random();
    } while (own_stream_ == 0);
    manager.services().streams.name(own_stream_, endpoint);
}

Connection::~Connection() {
    manager_.forget(*this);
    manager_.services().streams.forget(own_stream_);
    if (state_ == State::kConnected && !endpoint_.is_failed()) {
        Frame bye;
        bye.kind = FrameKind::kBye;
        try {
            writer_.add(bye, seal_);
            writer_.write(socket_);
        } catch (const std::bad_alloc&) {
            ucs::log_debug("no memory for a farewell: the socket closes without");
        }
    }
    ignore();
    socket_.finish();
}

Frame Connection::introduction(FrameKind kind, std::vector<std::byte> own_address) const {
    Frame frame;
    frame.kind = kind;
    frame.stream = own_stream_;
    frame.address = std::move(own_address);
    if (send_client_id_) {
        frame.has_client_id = true;
        frame.client_id = manager_.services().client_id;
    }
    return frame;
}

ucs_status_t Connection::call(const ucs::net::SocketAddress& server,
                              const ucs::net::SocketAddress* local, bool send_client_id) {
    send_client_id_ = send_client_id;
    ucs_status_t status = ucs::net::Socket::open(server.family(), &socket_);
    if (status == UCS_OK && local != nullptr) status = socket_.bind(*local);
    if (status == UCS_OK) status = socket_.connect(server);
    if (status != UCS_INPROGRESS) {
        // What becomes of a call is told in one way: by the error callback.
        over(status);
        return UCS_OK;
    }
    peer_ = server;
    local_ = socket_.local();
    call_ = new_call(manager_.services().job_key);
    writer_.add_bytes(std::as_bytes(std::span(&call_, 1)));
    return watch(true);
}

ucs_status_t Connection::accept(ConnectionRequest& request, std::vector<std::byte> own_address) {
    socket_ = std::move(request.socket);
    seal_ = request.seal;
    stream_ = request.introduction.stream;
    local_ = socket_.local();
    peer_ = socket_.peer();
    state_ = State::kConnected;
    writer_.add(introduction(FrameKind::kAccept, std::move(own_address)), seal_);
    const ucs_status_t status = writer_.write(socket_);
    if (status != UCS_OK && status != UCS_INPROGRESS) return status;
    return watch(status == UCS_INPROGRESS);
}

void Connection::ready() {
    const ucs_status_t status = progress();
    if (status != UCS_OK) over(status);
}

ucs_status_t Connection::progress() {
    if (state_ == State::kCalling) {
        const ucs_status_t status = socket_.error();
        if (status != UCS_OK) return status;
        local_ = socket_.local();
        state_ = State::kAsking;
    }
    if (!writer_.is_done()) {
        const ucs_status_t status = writer_.write(socket_);
        if (status == UCS_OK) watch(false);
        if (status != UCS_OK && status != UCS_INPROGRESS) return status;
    }
    if (state_ == State::kAsking) {
        const ucs_status_t status = answered();
        if (status != UCS_OK) return status == UCS_INPROGRESS ? UCS_OK : status;
    }
    for (;;) {
        Frame frame;
        ucs_status_t status = reader_.read(socket_, seal_, &frame);
        if (status == UCS_INPROGRESS) return UCS_OK;
        if (status == UCS_ERR_REJECTED) {
            ucs::log_error("{} cannot prove to know UCX_TCP_JOB_KEY", peer_.text());
        }
        if (status == UCS_OK) status = take(frame);
        if (status != UCS_OK) return status;
    }
}

// The listener's answer to the call: if the two belong together, introduce this end.
ucs_status_t Connection::answered() {
    ucs_status_t status = answer_.read(socket_);
    const CallAnswer& answer = answer_.message();
    if (answer_.have() >= sizeof(answer.magic) && answer.magic != kHandshakeMagic) {
        return UCS_ERR_INVALID_PARAM;
    }
    if (status != UCS_OK) return status;
    if (!is_sound(answer)) return UCS_ERR_INVALID_PARAM;
    const std::string& key = manager_.services().job_key;
    std::string reason = refusal(answer);
    // A listener is not believed that there is no key where there is one.
    if (reason.empty() && (answer.verdict == Verdict::kProve) == key.empty()) {
        reason = "the listener does not ask for the UCX_TCP_JOB_KEY that the client has";
    }
    if (!reason.empty()) {
        ucs::log_error("no connection to {}: {}", peer_.text(), reason);
        return UCS_ERR_REJECTED;
    }
    seal_ = FrameSeal(FrameSeal::End::kClient, key, call_, answer);
    state_ = State::kGreeting;
    const Connector& connector = manager_.services().connector;
    writer_.add(
        introduction(FrameKind::kConnect,
                     seal_.length() != 0 ? connector.address() : connector.address_for_host()),
        seal_);
    status = writer_.write(socket_);
    if (status == UCS_INPROGRESS) status = watch(true);
    return status;
}

ucs_status_t Connection::take(const Frame& frame) {
    if (state_ == State::kConnected && frame.kind == FrameKind::kBye) {
        peer_said_bye_ = true;
        return UCS_ERR_CONNECTION_RESET;
    }
    if (state_ == State::kGreeting && frame.kind == FrameKind::kReject) return UCS_ERR_REJECTED;
    if (state_ == State::kGreeting && frame.kind == FrameKind::kAccept) return accepted(frame);
    return UCS_ERR_INVALID_PARAM;
}

ucs_status_t Connection::accepted(const Frame& frame) {
    WorkerAddress remote;
    if (unpack_address(frame.address, &remote) != UCS_OK) return UCS_ERR_INVALID_PARAM;
    stream_ = frame.stream;
    state_ = State::kConnected;
    Connector& connector = manager_.services().connector;
    const ucs_status_t status = connector.connect_waiting(endpoint_, remote);
    if (status != UCS_OK || seal_.length() != 0 || !connector.knows_guests()) return status;
    // A server that knows guests never calls them: this end connects, although it may have nothing
    // to send.
    const ucs_status_t called = endpoint_.scalable()->check(nullptr);
    const bool is_well =
        called == UCS_OK || called == UCS_INPROGRESS || called == UCS_ERR_NO_RESOURCE;
    return is_well ? UCS_OK : called;
}

void Connection::over(ucs_status_t status) {
    if (state_ == State::kOver) return;
    if (status == UCS_ERR_INVALID_PARAM) {
        ucs::log_error("{} is no listener of this library's", peer_.text());
        status = UCS_ERR_NOT_CONNECTED;
    }
    if (status == UCS_ERR_CONNECTION_RESET && state_ == State::kGreeting && seal_.length() != 0) {
        ucs::log_error("{} hung up: UCX_TCP_JOB_KEY must be the same at both ends", peer_.text());
        status = UCS_ERR_REJECTED;
    }
    ignore();
    socket_.close();
    state_ = State::kOver;
    status_ = status;
    manager_.end_later(*this);
}

void Connection::end() {
    // Of two that close at once, either still has the other's worker to flush to.
    if (peer_said_bye_ && endpoint_.is_closing()) return;
    endpoint_.fail(status_);
}

}  // namespace ucp::wireup
