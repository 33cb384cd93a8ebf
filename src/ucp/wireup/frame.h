// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ucp/wireup/socket.h"

// What goes through the socket between a client and a server. All integers are little-endian.
//
//   client                          server
//   CONNECT (worker address)  --->  the program accepts or rejects
//   the endpoint is connected <---  ACCEPT (worker address), or REJECT
//   ...                             both keep the socket: its end is the peer's
//   BYE                       --->  either way: the endpoint was closed after a flush
namespace ucp::wireup {

enum class FrameKind : uint8_t { kConnect = 1, kAccept = 2, kReject = 3, kBye = 4 };

struct Frame {
    FrameKind kind{};
    bool has_client_id = false;
    uint64_t client_id = 0;
    uint64_t stream = 0;             //!< the sender's name for the byte stream that it receives
    std::vector<std::byte> address;  //!< the sender's worker address, packed
};

std::vector<std::byte> pack_frame(const Frame& frame);

/** Puts frames together from what a socket gives. Nothing is stored before it was checked. */
class FrameReader {
  public:
    /**
     * Read what is there, at most to the end of one frame.
     * @return UCS_OK: `frame` is filled; UCS_INPROGRESS; UCS_ERR_INVALID_PARAM: this is no frame;
     *         or the socket's error
     */
    ucs_status_t read(Socket& socket, Frame* frame);

  private:
    size_t wanted() const;

    std::vector<std::byte> bytes_;
};

/** Writes as much as the socket takes, the rest later. */
class FrameWriter {
  public:
    void add(const Frame& frame);
    bool is_done() const { return offset_ == bytes_.size(); }
    /** @return UCS_OK: all is written; UCS_INPROGRESS; or the socket's error */
    ucs_status_t write(Socket& socket);

  private:
    std::vector<std::byte> bytes_;
    size_t offset_ = 0;
};

}  // namespace ucp::wireup
