// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ucp/wireup/handshake.h"

// What goes through the socket between a client and a server. All integers are little-endian.
//
//   client                          server
//   Call                      --->  (handshake.h)
//                             <---  CallAnswer: from here on each frame is proved, if there is a
//                             key
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
     *         UCS_ERR_REJECTED: its seal is not the peer's; or the socket's error
     */
    ucs_status_t read(ucs::net::Socket& socket, FrameSeal& seal, Frame* frame);

  private:
    size_t wanted(size_t seal) const;

    std::vector<std::byte> bytes_;
};

/** Writes as much as the socket takes, the rest later. */
class FrameWriter {
  public:
    void add(const Frame& frame, FrameSeal& seal);
    /** Words of the handshake, which are not sealed. */
    void add_bytes(std::span<const std::byte> bytes) {
        bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    }
    bool is_done() const { return offset_ == bytes_.size(); }
    /** @return UCS_OK: all is written; UCS_INPROGRESS; or the socket's error */
    ucs_status_t write(ucs::net::Socket& socket);

  private:
    std::vector<std::byte> bytes_;
    size_t offset_ = 0;
};

}  // namespace ucp::wireup
