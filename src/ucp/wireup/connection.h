// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

#include "ucp/endpoint/extras.h"
#include "ucp/wireup/connection_manager.h"
#include "ucp/wireup/handshake.h"
#include "ucs/net/socket.h"

namespace ucp {
class Endpoint;
struct WorkerAddress;
}  // namespace ucp

namespace ucp::wireup {

struct ConnectionRequest;

// The socket of an endpoint that was connected by socket address.
//
// A client's endpoint exists before its peer is known: what is sent on it waits (WaitingLane) until
// the server's answer brings the worker address. From then on the socket stays open and idle; its
// end tells that the peer is gone, and fails the endpoint once the messages that came before are
// taken. Owned by its endpoint.
class Connection final : public WatchedSocket, public SocketConnection {
  public:
    Connection(ConnectionManager& manager, Endpoint& endpoint);
    // Says goodbye unless the endpoint has failed.
    ~Connection() override;

    // Client: call the server.
    ucs_status_t call(const ucs::net::SocketAddress& server, const ucs::net::SocketAddress* local,
                      bool send_client_id);
    // Server: take a client's socket over, and accept him. @param own_address  for him
    ucs_status_t accept(ConnectionRequest& request, std::vector<std::byte> own_address);

    const ucs::net::SocketAddress& local() const { return local_; }
    const ucs::net::SocketAddress& peer() const { return peer_; }
    // The peer's name for the stream that goes to him; 0 as long as it is not known.
    uint64_t stream() const override { return stream_; }

    void ready() override;
    void out_of_memory() override { over(UCS_ERR_NO_MEMORY); }
    // The peer is gone, and so is all that he had sent.
    void end();

  private:
    enum class State : uint8_t { kCalling, kAsking, kGreeting, kConnected, kOver };

    ucs_status_t progress();
    ucs_status_t answered();
    ucs_status_t take(const Frame& frame);
    ucs_status_t accepted(const Frame& frame);
    Frame introduction(FrameKind kind, std::vector<std::byte> own_address) const;
    void over(ucs_status_t status);

    Endpoint& endpoint_;
    State state_ = State::kCalling;
    bool peer_said_bye_ = false;
    bool send_client_id_ = false;
    ucs_status_t status_ = UCS_OK;  // what the endpoint will fail with
    uint64_t own_stream_;
    uint64_t stream_ = 0;
    ucs::net::SocketAddress local_;
    ucs::net::SocketAddress peer_;
    Call call_{};
    MessageReader<CallAnswer> answer_;
    FrameSeal seal_;
    FrameReader reader_;
    FrameWriter writer_;
};

}  // namespace ucp::wireup
