// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <boost/intrusive/list.hpp>

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "ucp/base/request.h"
#include "ucp/dt/buffer.h"
#include "ucp/endpoint/endpoint.h"
#include "ucp/endpoint/endpoint_table.h"
#include "ucp/endpoint/extras.h"
#include "ucp/proto/eager/eager.h"

namespace ucp {

class Stream;

// Streams with bytes that nobody has asked for, which the user has not been told of yet.
using ReadyHook =
    boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;
using ReadyStreams = boost::intrusive::list<Stream, boost::intrusive::constant_time_size<false>>;

// The part of a stream receive's request.
struct StreamReceive {
    Unpacker buffer;
    size_t filled;   // bytes in the buffer
    size_t element;  // ends only at multiples of so many bytes
    bool wait_all;   // ends only when the buffer is full
};

// The receiving half of an endpoint's byte stream: bytes that nobody has asked for yet, or receives
// that wait for bytes.
//
// Bytes come in order, as messages do. They go into the first waiting receive at once; without one
// they are copied into chunks, so that no buffer of a transport is held for a program that does
// not read. A program may borrow a chunk instead of copying it out.
class Stream final : public StreamReceiver, public ReadyHook {
  public:
    Stream(ReadyStreams& ready, Endpoint& endpoint) : ready_(ready), endpoint_(endpoint) {}
    // Receives are over by then: cancel_receives().
    ~Stream() override;
    Stream(const Stream&) = delete;

    Endpoint& endpoint() const { return endpoint_; }
    bool has_bytes() const { return available_ != 0; }

    // Bytes of the peer.
    void arrived(const std::byte* data, size_t length);

    // As ucp_stream_recv_nbx.
    ucs_status_ptr_t receive(void* buffer, size_t count, size_t* length, const OpParams& params);
    // As ucp_stream_recv_data_nb.
    ucs_status_ptr_t borrow(size_t* length);
    // Give borrowed bytes back.
    void give_back(void* data);
    // @return false if the receive does not wait here
    bool cancel(Request& receive);
    // All receives end with the status.
    void cancel_receives(ucs_status_t status) override;

    // The user has the endpoint, and may read.
    void open() override;
    // Nobody will read any more: bytes are dropped, receives cancelled.
    void close() override;

  private:
    // Bytes [begin, end) behind the object; the 8 bytes before them name a chunk that is lent.
    struct Chunk : boost::intrusive::list_base_hook<> {
        size_t begin = 0, end = 0, capacity = 0;

        static constexpr size_t kOwner = sizeof(uint64_t);
        std::byte* bytes() { return reinterpret_cast<std::byte*>(this + 1) + kOwner; }
        static Chunk* make(size_t capacity);
        static void free(Chunk* chunk);
    };
    using Chunks = boost::intrusive::list<Chunk, boost::intrusive::constant_time_size<false>>;

    void keep(const std::byte* data, size_t length);
    // Give waiting receives what has been kept.
    void serve();
    // How much of `available` bytes the receive takes now.
    static size_t appetite(Request& receive, size_t available);
    static void store(Request& receive, const std::byte* data, size_t length);
    bool fill(Request& receive);
    void consume(size_t length);
    static bool is_full(Request& receive);
    void announce() {
        if (!is_linked() && endpoint_.is_users()) ready_.push_back(*this);
    }

    ReadyStreams& ready_;
    Endpoint& endpoint_;
    Chunks chunks_;
    Chunks lent_;
    RequestQueue receives_;
    size_t available_ = 0;  // bytes in chunks_
    bool closed_ = false;
};

// Byte streams. A message carries the name of the stream that its bytes belong to: the sending
// worker's uuid, for the receiver's primary endpoint to that worker, or the name that the receiver
// gave when the two endpoints were connected through a socket. Messages of an endpoint arrive in
// order, whatever lanes they take, so that bytes do.

// The streams of a worker: sending, which message belongs to which, and which can be read.
class Streams {
  public:
    explicit Streams(EndpointTable& endpoints) : endpoints_(endpoints) {}

    void add_handlers(InterfaceSet& interfaces) {
        interfaces.set_handler(AmId::kStream, on_stream, this);
    }

    // ucp_stream_send_nbx() beyond the short path.
    ucs_status_ptr_t send(Endpoint& endpoint, const void* buffer, size_t count,
                          const OpParams& params);
    // The stream of an endpoint, made at first use.
    Stream& of(Endpoint& endpoint);
    // The endpoint has got its partner's bytes that came before it.
    void take_early(Endpoint& endpoint);
    // As ucp_stream_worker_poll: each endpoint is told once for what has come until then.
    size_t poll(ucp_stream_poll_ep_t* endpoints, size_t room);

    // Messages with this name belong to the endpoint.
    void name(uint64_t name, Endpoint& endpoint) { named_[name] = &endpoint; }
    void forget(uint64_t name) { named_.erase(name); }

  private:
    static ucs_status_t on_stream(void* self, void* data, size_t length,
                                  uct::ReceiveDescriptor* descriptor);

    Endpoint* find(uint64_t name);

    EndpointTable& endpoints_;
    std::unordered_map<uint64_t, Endpoint*> named_;
    ReadyStreams ready_;
};

// What the peer calls the stream that this endpoint sends.
uint64_t stream_name(const Endpoint& endpoint);

}  // namespace ucp
