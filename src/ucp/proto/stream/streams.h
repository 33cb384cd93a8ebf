// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include <boost/intrusive/list.hpp>

#include "ucp/base/request.h"
#include "ucp/proto/stream/stream.h"

// Byte streams. A message carries the name of the stream that its bytes belong to: the sending
// worker's uuid, for the receiver's primary endpoint to that worker, or the name that the receiver
// gave when the two endpoints were connected through a socket. Messages of an endpoint arrive in
// order, whatever lanes they take, so that bytes do.
namespace ucp {

class Endpoint;
class Worker;

/** The streams of a worker: which message belongs to which, and which have something to read. */
class Streams {
  public:
    /** The stream of an endpoint, made at first use. */
    static Stream& of(Endpoint& endpoint);

    void add_ready(Stream& stream) { ready_.push_back(stream); }
    /** As ucp_stream_worker_poll: each endpoint is told once for what has come until then. */
    size_t poll(ucp_stream_poll_ep_t* endpoints, size_t room);

    /** Messages with this name belong to the endpoint. */
    void name(uint64_t name, Endpoint& endpoint) { named_[name] = &endpoint; }
    void forget(uint64_t name) { named_.erase(name); }

    static ucs_status_t on_stream(void* worker, void* data, size_t length,
                                  uct::ReceiveDescriptor* descriptor);

  private:
    using Ready = boost::intrusive::list<Stream, boost::intrusive::constant_time_size<false>>;

    std::unordered_map<uint64_t, Endpoint*> named_;
    Ready ready_;
};

/** What the peer calls the stream that this endpoint sends. */
uint64_t stream_name(const Endpoint& endpoint);

/** ucp_stream_send_nbx() beyond the short path. */
ucs_status_ptr_t stream_send(Endpoint& endpoint, const void* buffer, size_t count,
                             const OpParams& params);

void add_stream_handler(Worker& worker);

}  // namespace ucp
