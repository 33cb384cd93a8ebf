// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/wireup/connection.h"

#include "ucp/select/worker_address.h"
#include "ucp/endpoint/endpoint.h"
#include "ucp/endpoint/endpoint_extras.h"
#include "ucp/base/handles.h"
#include "ucp/worker/worker.h"
#include "ucp/proto/stream/streams.h"
#include "ucp/wireup/listener.h"
#include "ucs/log.h"

namespace ucp::wireup {

Connection::Connection(ConnectionManager& manager, Endpoint& endpoint)
    : Watched(manager), endpoint_(endpoint) {
    do {
        own_stream_ = manager.worker().random()();
    } while (own_stream_ == 0);
    manager.worker().streams().name(own_stream_, endpoint);
}

Connection::~Connection() {
    manager_.forget(*this);
    manager_.worker().streams().forget(own_stream_);
    if (state_ == State::kConnected && !endpoint_.is_failed()) {
        Frame bye;
        bye.kind = FrameKind::kBye;
        writer_.add(bye);
        writer_.write(socket_);
    }
    ignore();
    socket_.finish();
}

Frame Connection::introduction(FrameKind kind) const {
    Worker& worker = manager_.worker();
    Frame frame;
    frame.kind = kind;
    frame.stream = own_stream_;
    frame.address = worker.address();
    if (send_client_id_) {
        frame.has_client_id = true;
        frame.client_id = worker.client_id();
    }
    return frame;
}

ucs_status_t Connection::call(const SocketAddress& server, const SocketAddress* local,
                              bool send_client_id) {
    send_client_id_ = send_client_id;
    ucs_status_t status = Socket::open(server.family(), &socket_);
    if (status == UCS_OK && local != nullptr) status = socket_.bind(*local);
    if (status == UCS_OK) status = socket_.connect(server);
    if (status != UCS_INPROGRESS) {
        // What becomes of a call is told in one way: by the error callback.
        over(status);
        return UCS_OK;
    }
    peer_ = server;
    local_ = socket_.local();
    writer_.add(introduction(FrameKind::kConnect));
    return watch(true);
}

ucs_status_t Connection::accept(Socket socket, uint64_t his_stream) {
    socket_ = std::move(socket);
    stream_ = his_stream;
    local_ = socket_.local();
    peer_ = socket_.peer();
    state_ = State::kConnected;
    writer_.add(introduction(FrameKind::kAccept));
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
        state_ = State::kGreeting;
    }
    if (!writer_.is_done()) {
        const ucs_status_t status = writer_.write(socket_);
        if (status == UCS_OK) watch(false);
        if (status != UCS_OK && status != UCS_INPROGRESS) return status;
    }
    for (;;) {
        Frame frame;
        ucs_status_t status = reader_.read(socket_, &frame);
        if (status == UCS_INPROGRESS) return UCS_OK;
        if (status == UCS_OK) status = take(frame);
        if (status != UCS_OK) return status;
    }
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
    return manager_.worker().connect_waiting(endpoint_, remote);
}

void Connection::over(ucs_status_t status) {
    if (state_ == State::kOver) return;
    if (status == UCS_ERR_INVALID_PARAM) {
        ucs::log_error("{} is no listener of this library's", peer_.text());
        status = UCS_ERR_NOT_CONNECTED;
    }
    ignore();
    socket_.close();
    state_ = State::kOver;
    status_ = status;
    manager_.end_later(*this);
}

void Connection::end() {
    // Of two that close at once, either still has the other's worker to flush to.
    if (peer_said_bye_ && endpoint_.has_flag(Endpoint::kClosing)) return;
    endpoint_.fail(status_);
}

// --- endpoints
// -------------------------------------------------------------------------------------

ucs_status_t create_client_endpoint(Worker& worker, const ucp_ep_params_t& params,
                                    Endpoint** endpoint) {
    const auto has = [&](uint64_t field) { return (params.field_mask & field) != 0; };
    const unsigned flags = has(UCP_EP_PARAM_FIELD_FLAGS) ? params.flags : 0;
    const auto server = SocketAddress::from(params.sockaddr);
    if (!server || (flags & UCP_EP_PARAMS_FLAGS_CLIENT_SERVER) == 0) return UCS_ERR_INVALID_PARAM;
    std::optional<SocketAddress> local;
    if (has(UCP_EP_PARAM_FIELD_LOCAL_SOCK_ADDR)) {
        local = SocketAddress::from(params.local_sockaddr);
        if (!local || local->family() != server->family()) return UCS_ERR_INVALID_PARAM;
    }
    ConnectionManager* manager = nullptr;
    ucs_status_t status = worker.connections(&manager);
    if (status != UCS_OK) return status;
    Endpoint& made = worker.create_waiting();
    auto& connection = made.make_extras().connection;
    connection = std::make_unique<Connection>(*manager, made);
    status = connection->call(*server, local ? &*local : nullptr,
                              (flags & UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID) != 0);
    if (status != UCS_OK) {
        worker.doom(made);
        return status;
    }
    *endpoint = &made;
    return UCS_OK;
}

ucs_status_t create_server_endpoint(Worker& worker, const ucp_ep_params_t& params,
                                    Endpoint** endpoint) {
    if (params.conn_request == nullptr) return UCS_ERR_INVALID_PARAM;
    std::unique_ptr<ConnectionRequest> request(&unwrap(params.conn_request));
    ConnectionManager* manager = nullptr;
    ucs_status_t status = worker.connections(&manager);
    if (status != UCS_OK) return status;
    WorkerAddress remote;
    status = unpack_address(request->introduction.address, &remote);
    Endpoint* made = nullptr;
    if (status == UCS_OK) status = worker.create_to(remote, &made);
    if (status != UCS_OK) {
        reject(std::move(request));
        return status;
    }
    auto& connection = made->make_extras().connection;
    connection = std::make_unique<Connection>(*manager, *made);
    status = connection->accept(std::move(request->socket), request->introduction.stream);
    if (status != UCS_OK) {
        worker.doom(*made);
        return status;
    }
    *endpoint = made;
    return UCS_OK;
}

}  // namespace ucp::wireup
