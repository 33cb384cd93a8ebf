// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/wireup/listener.h"

#include "ucp/base/handles.h"
#include "ucp/wireup/connection.h"
#include "ucs/log/log.h"

namespace ucp::wireup {

void reject(std::unique_ptr<ConnectionRequest> request) {
    Frame refusal;
    refusal.kind = FrameKind::kReject;
    FrameWriter writer;
    writer.add(refusal);
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
    const auto address = SocketAddress::from(params.sockaddr);
    if (!address) return UCS_ERR_INVALID_PARAM;
    std::unique_ptr<Listener> made(new Listener(manager));
    if (accepts) made->accept_handler_ = params.accept_handler;
    if (asks) made->connection_handler_ = params.conn_handler;
    if (made->accept_handler_.cb == nullptr && made->connection_handler_.cb == nullptr) {
        return UCS_ERR_INVALID_PARAM;
    }
    ucs_status_t status = Socket::open(address->family(), &made->socket_);
    if (status == UCS_OK) status = made->socket_.bind(*address);
    if (status == UCS_OK) status = made->socket_.listen();
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
        Socket caller;
        if (socket_.accept(&caller) != UCS_OK) return;
        manager_.add_caller(*this, std::move(caller));
    }
}

void Listener::introduce(std::unique_ptr<ConnectionRequest> request) {
    if (accept_handler_.cb != nullptr) {
        accept_at_once(std::move(request));
    } else {
        connection_handler_.cb(wrap(request.release()), connection_handler_.arg);
    }
}

void Listener::accept_at_once(std::unique_ptr<ConnectionRequest> request) {
    const SocketAddress client = request->client;
    Endpoint* endpoint = nullptr;
    const ucs_status_t status = manager_.accept(std::move(request), &endpoint);
    if (status == UCS_OK) manager_.services().connector.give_to_user(*endpoint, {});
    if (status == UCS_OK) {
        accept_handler_.cb(wrap(endpoint), accept_handler_.arg);
    } else {
        ucs::log_warn("client {} cannot be accepted: {}", client.text(), ucs_status_string(status));
    }
}

void Caller::ready() {
    auto request = std::make_unique<ConnectionRequest>();
    ucs_status_t status = reader_.read(socket_, &request->introduction);
    if (status == UCS_INPROGRESS) return;
    if (status == UCS_OK && request->introduction.kind != FrameKind::kConnect) {
        status = UCS_ERR_INVALID_PARAM;
    }
    request->client = socket_.peer();
    Listener& listener = listener_;
    ConnectionManager& manager = manager_;
    if (status == UCS_OK) {
        ignore();
        request->socket = std::move(socket_);
    } else {
        ucs::log_debug("{} called and said nothing sensible: refused", request->client.text());
    }
    manager.drop_caller(*this);
    // The program may destroy the listener in its handler.
    if (status == UCS_OK) listener.introduce(std::move(request));
}

}  // namespace ucp::wireup
