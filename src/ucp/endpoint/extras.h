// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <boost/intrusive/slist.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ucp/api/ucp.h"
#include "ucs/type/status.h"

namespace ucp {

class Request;

// A flush that waits until operations of its endpoint have ended at the peer: in its part.
struct FlushWait : boost::intrusive::slist_base_hook<
                       boost::intrusive::link_mode<boost::intrusive::normal_link>> {
    uint32_t target = 0;  // operations with lower numbers must be finished
    Request* request = nullptr;
};

// The flushes of an endpoint that wait. Their targets never fall, as operations are counted up, so
// the first one is done before all others: an operation that ends looks at what it ends, and at one
// more.
class FlushQueue {
  public:
    void add(FlushWait& flush) { waiting_.push_back(flush); }
    // So many operations have finished: takes out what waits for no more and hands each to `take`,
    // which may add others or finish more itself.
    // @return how many were looked at
    template <typename Taker>
    size_t finish(uint32_t finished, Taker take) {
        size_t looks = 0;
        while (!waiting_.empty()) {
            ++looks;
            FlushWait& first = waiting_.front();
            if (static_cast<int32_t>(finished - first.target) < 0) break;
            waiting_.pop_front();
            take(first);
        }
        return looks;
    }
    // Hands all to `take`.
    template <typename Taker>
    void drain(Taker take) {
        while (!waiting_.empty()) {
            FlushWait& first = waiting_.front();
            waiting_.pop_front();
            take(first);
        }
    }

  private:
    boost::intrusive::slist<FlushWait, boost::intrusive::constant_time_size<false>,
                            boost::intrusive::cache_last<true>>
        waiting_;
};

// The receiving half of an endpoint's byte stream, as the endpoint knows it (proto/stream).
class StreamReceiver {
  public:
    virtual ~StreamReceiver() = default;
    // The user has the endpoint, and may read.
    virtual void open() = 0;
    // Nobody will read any more: bytes are dropped, receives cancelled.
    virtual void close() = 0;
    // All receives end with the status.
    virtual void cancel_receives(ucs_status_t status) = 0;
};

// The socket of an endpoint that was connected by socket address (wireup).
class SocketConnection {
  public:
    // Says goodbye unless the endpoint has failed.
    virtual ~SocketConnection() = default;
    // The peer's name for the stream that goes to it; 0 as long as it is not known.
    virtual uint64_t stream() const = 0;
};

// What only some endpoints have: apart, so that the others stay small.
struct EndpointExtras {
    ucp_err_handler_cb_t error_callback = nullptr;
    void* user_argument = nullptr;                 // of the callback, and what stream polls report
    std::string name;                              // from ucp_ep_params_t
    std::unique_ptr<StreamReceiver> stream;        // null: nothing was received or read yet
    std::unique_ptr<SocketConnection> connection;  // null: the peer is known by its address
    std::vector<uint32_t> finished_early;          // remote operations that earlier ones outlast
    uint16_t partner = 0;                          // Loopbacks::add(); 0: none
    FlushQueue flushes;                            // that wait for answers of the peer
};

}  // namespace ucp
