// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include "ucp/wireup/connection_manager.h"
#include "ucp/wireup/handshake.h"
#include "ucs/net/socket.h"
#include "ucs/sys/descriptor.h"
#include "ucs/sys/host.h"
#include "ucs/sys/time.h"

namespace ucp::wireup {

// A client that waits for the program's decision: what ucp_conn_request_h points to. It belongs to
// the program and to no worker, so that any worker, on any thread, may accept it.
struct ConnectionRequest {
    ucs::net::Socket socket;
    ucs::net::SocketAddress client;
    FrameSeal seal;
    Frame introduction;
};

// Tell the client that he is not wanted.
void reject(std::unique_ptr<ConnectionRequest> request);

// A socket that clients call: what ucp_listener_h points to.
class Listener final : public WatchedSocket {
  public:
    // As ucp_listener_create.
    static ucs_status_t create(ConnectionManager& manager, const ucp_listener_params_t& params,
                               Listener** listener);
    ~Listener() override;

    Gate& gate() const { return manager_.gate(); }
    // Is this a child of the process that made it?
    bool is_inherited() const { return ucs::process_id() != process_; }
    ucs::net::SocketAddress address() const { return socket_.local(); }

    void ready() override;
    // Who called is hung up on.
    void out_of_memory() override {}
    // A caller has said who he is.
    void introduce(std::unique_ptr<ConnectionRequest> request);

  private:
    explicit Listener(ConnectionManager& manager) : WatchedSocket(manager) {}
    void accept_at_once(std::unique_ptr<ConnectionRequest> request);

    const uint32_t process_ = ucs::process_id();
    ucs_status_t accept_one();
    void shed();

    // Given up for a moment to refuse those who call when no descriptor is left.
    ucs::Descriptor spare_;
    ucp_listener_accept_handler_t accept_handler_{};
    ucp_listener_conn_handler_t connection_handler_{};
};

// Somebody who called a listener and has not said who he is.
class Caller final : public WatchedSocket {
  public:
    Caller(ConnectionManager& manager, Listener& listener, ucs::net::Socket socket,
           ucs::Time deadline)
        : WatchedSocket(manager),
          listener_(listener),
          source_(socket.peer().ip()),
          deadline_(deadline) {
        socket_ = std::move(socket);
    }
    ~Caller() override { ignore(); }

    ucs_status_t start() { return watch(false); }
    Listener& listener() const { return listener_; }
    const ucs::net::IpAddress& source() const { return source_; }
    bool has_expired(ucs::Time now) const { return now >= deadline_; }

    void ready() override;
    void out_of_memory() override { manager_.drop_caller(*this); }

  private:
    ucs_status_t progress(ConnectionRequest& request);
    ucs_status_t hear();

    Listener& listener_;
    const ucs::net::IpAddress source_;
    ucs::Time deadline_;
    bool was_answered_ = false;
    MessageReader<Call> call_;
    FrameSeal seal_;
    FrameReader reader_;
};

}  // namespace ucp::wireup
