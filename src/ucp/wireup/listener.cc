// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/wireup/listener.h"

#include <fcntl.h>

#include <cerrno>

#include "ucp/base/handles.h"
#include "ucp/wireup/connection.h"
#include "ucs/log/log.h"

namespace ucp::wireup {

namespace {

// What a client of version 1 begins with.
constexpr uint32_t kFirstMagic = 0x4d434c53;  // "SLCM"

}  // namespace

void reject(std::unique_ptr<ConnectionRequest> request) {
    Frame refusal;
    refusal.kind = FrameKind::kReject;
    FrameWriter writer;
    writer.add(refusal, request->seal);
    // Nothing was written to this socket before: it takes so few bytes at once.
    writer.write(request->socket);
    request->socket.finish();
}

ucs_status_t Listener::create(ConnectionManager& manager, const ucp_listener_params_t& params,
                              Listener** listener) {
    const auto has = [&](uint64_t field) { return (params.field_mask & field) != 0; };
    const bool accepts = has(UCP_LISTENER_PARAM_FIELD_ACCEPT_HANDLER);
    const bool asks = has(UCP_LISTENER_PARAM_FIELD_CONN_HANDLER);
    if (!has(UCP_LISTENER_PARAM_FIELD_SOCK_ADDR) || accepts == asks) return UCS_ERR_INVALID_PARAM;
    const auto address = ucs::net::SocketAddress::from(params.sockaddr);
    if (!address) return UCS_ERR_INVALID_PARAM;
    std::unique_ptr<Listener> made(new Listener(manager));
    if (accepts) made->accept_handler_ = params.accept_handler;
    if (asks) made->connection_handler_ = params.conn_handler;
    if (made->accept_handler_.cb == nullptr && made->connection_handler_.cb == nullptr) {
        return UCS_ERR_INVALID_PARAM;
    }
    ucs_status_t status = ucs::net::Socket::open(address->family(), &made->socket_);
    if (status == UCS_OK) status = made->socket_.bind(*address);
    if (status == UCS_OK) status = made->socket_.listen();
    made->spare_.reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (status == UCS_OK) status = made->watch(false);
    if (status != UCS_OK) {
        ucs::log_error("cannot listen on {}: {}", address->text(), ucs_status_string(status));
        return status;
    }
    manager.add(*made);
    *listener = made.release();
    return UCS_OK;
}

Listener::~Listener() {
    manager_.drop_callers_of(*this);
    manager_.remove(*this);
    ignore();
}

void Listener::ready() {
    constexpr int kMostAtOnce = 16;
    for (int count = 0; count < kMostAtOnce; ++count) {
        if (accept_one() != UCS_OK) return;
    }
}

ucs_status_t Listener::accept_one() {
    ucs::net::Socket caller;
    if (socket_.accept(&caller) == UCS_OK) {
        manager_.add_caller(*this, std::move(caller));
        return UCS_OK;
    }
    if (errno == ECONNABORTED || errno == EINTR) return UCS_OK;
    if (errno == EMFILE || errno == ENFILE) shed();
    return UCS_ERR_NO_RESOURCE;
}

// Who calls is hung up on: left to wait he would make this socket readable for ever.
void Listener::shed() {
    manager_.complain("clients are refused: no descriptor is left; raise the limit of open files");
    spare_.reset();
    ucs::net::Socket caller;
    if (socket_.accept(&caller) == UCS_OK) caller.reset_on_close();
    caller.close();
    spare_.reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
}

void Listener::introduce(std::unique_ptr<ConnectionRequest> request) {
    if (accept_handler_.cb != nullptr) {
        accept_at_once(std::move(request));
    } else {
        connection_handler_.cb(wrap(request.release()), connection_handler_.arg);
    }
}

void Listener::accept_at_once(std::unique_ptr<ConnectionRequest> request) {
    const ucs::net::SocketAddress client = request->client;
    Endpoint* endpoint = nullptr;
    const ucs_status_t status = manager_.accept(std::move(request), &endpoint);
    if (status == UCS_OK) manager_.services().connector.give_to_user(*endpoint, {});
    if (status == UCS_OK) {
        accept_handler_.cb(wrap(endpoint), accept_handler_.arg);
    } else {
        ucs::log_warn("client {} cannot be accepted: {}", client.text(), ucs_status_string(status));
    }
}

// The call: read it and answer. @return UCS_OK: what follows are frames
ucs_status_t Caller::hear() {
    const ucs_status_t status = call_.read(socket_);
    const Call& call = call_.message();
    if (call_.have() >= sizeof(call.magic) && call.magic != kHandshakeMagic) {
        manager_.refuse(socket_, call.magic == kFirstMagic
                                     ? "it speaks version 1 of the protocol"
                                     : "it does not speak this library's protocol (UCX's own "
                                       "clients do not)");
        return UCS_ERR_REJECTED;
    }
    if (status != UCS_OK) return status;
    const std::string& key = manager_.services().job_key;
    const CallAnswer answer = answer_to(call, key);
    // Nothing was written to this socket before: it takes so few bytes at once.
    if (socket_.write(&answer, sizeof(answer)) != sizeof(answer)) return UCS_ERR_CONNECTION_RESET;
    const std::string reason = refusal(answer);
    if (!reason.empty()) {
        manager_.refuse(socket_, reason);
        return UCS_ERR_REJECTED;
    }
    seal_ = FrameSeal(FrameSeal::End::kServer, key, call, answer);
    was_answered_ = true;
    return UCS_OK;
}

ucs_status_t Caller::progress(ConnectionRequest& request) {
    if (!was_answered_) {
        const ucs_status_t status = hear();
        if (status != UCS_OK) return status;
    }
    const ucs_status_t status = reader_.read(socket_, seal_, &request.introduction);
    if (status == UCS_ERR_REJECTED) manager_.refuse(socket_, "it has another UCX_TCP_JOB_KEY");
    if (status != UCS_OK) return status;
    return request.introduction.kind == FrameKind::kConnect ? UCS_OK : UCS_ERR_INVALID_PARAM;
}

void Caller::ready() {
    auto request = std::make_unique<ConnectionRequest>();
    const ucs_status_t status = progress(*request);
    if (status == UCS_INPROGRESS) return;
    request->client = socket_.peer();
    Listener& listener = listener_;
    ConnectionManager& manager = manager_;
    if (status == UCS_OK) {
        ignore();
        request->socket = std::move(socket_);
        request->seal = seal_;
    } else {
        ucs::log_debug("{} called and said nothing sensible: refused", request->client.text());
    }
    manager.drop_caller(*this);
    // The program may destroy the listener in its handler.
    if (status == UCS_OK) listener.introduce(std::move(request));
}

}  // namespace ucp::wireup
