// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ucp/endpoint/flush_queue.h"
#include "ucs/type/status.h"

namespace ucp {

/** The receiving half of an endpoint's byte stream, as the endpoint knows it (proto/stream). */
class StreamReceiver {
  public:
    virtual ~StreamReceiver() = default;
    /** The user has the endpoint, and may read. */
    virtual void open() = 0;
    /** Nobody will read any more: bytes are dropped, receives cancelled. */
    virtual void close() = 0;
    /** All receives end with the status. */
    virtual void cancel_receives(ucs_status_t status) = 0;
};

/** The socket of an endpoint that was connected by socket address (wireup). */
class SocketConnection {
  public:
    /** Says goodbye unless the endpoint has failed. */
    virtual ~SocketConnection() = default;
    /** The peer's name for the stream that goes to it; 0 as long as it is not known. */
    virtual uint64_t stream() const = 0;
};

/** What only some endpoints have: apart, so that the others stay small. */
struct EndpointExtras {
    std::string name;                              //!< from ucp_ep_params_t
    std::unique_ptr<StreamReceiver> stream;        //!< null: nothing was received or read yet
    std::unique_ptr<SocketConnection> connection;  //!< null: the peer is known by its address
    std::vector<uint32_t> finished_early;          //!< remote operations that earlier ones outlast
    FlushQueue flushes;                            //!< that wait for answers of the peer
};

}  // namespace ucp
