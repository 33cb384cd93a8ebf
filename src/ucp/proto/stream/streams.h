// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "ucp/endpoint/endpoint_table.h"
#include "ucp/proto/eager/eager.h"
#include "ucp/proto/stream/stream.h"

// Byte streams. A message carries the name of the stream that its bytes belong to: the sending
// worker's uuid, for the receiver's primary endpoint to that worker, or the name that the receiver
// gave when the two endpoints were connected through a socket. Messages of an endpoint arrive in
// order, whatever lanes they take, so that bytes do.
namespace ucp {

/** The streams of a worker: sending, which message belongs to which, and which can be read. */
class Streams {
  public:
    explicit Streams(EndpointTable& endpoints) : endpoints_(endpoints) {}

    void add_handlers(InterfaceSet& interfaces);

    /** ucp_stream_send_nbx() beyond the short path. */
    ucs_status_ptr_t send(Endpoint& endpoint, const void* buffer, size_t count,
                          const OpParams& params);
    /** The stream of an endpoint, made at first use. */
    Stream& of(Endpoint& endpoint);
    /** As ucp_stream_worker_poll: each endpoint is told once for what has come until then. */
    size_t poll(ucp_stream_poll_ep_t* endpoints, size_t room);

    /** Messages with this name belong to the endpoint. */
    void name(uint64_t name, Endpoint& endpoint) { named_[name] = &endpoint; }
    void forget(uint64_t name) { named_.erase(name); }

  private:
    static ucs_status_t on_stream(void* self, void* data, size_t length,
                                  uct::ReceiveDescriptor* descriptor);

    EndpointTable& endpoints_;
    std::unordered_map<uint64_t, Endpoint*> named_;
    ReadyStreams ready_;
};

/** What the peer calls the stream that this endpoint sends. */
uint64_t stream_name(const Endpoint& endpoint);

}  // namespace ucp
