// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ucp/base/request.h"
#include "ucp/base/wire.h"
#include "ucp/dt/buffer.h"
#include "ucp/mem/memory.h"

// Eager messages: the data travels with, or right behind, the envelope.
//
// A message goes in one piece if the lane takes it, else as a first fragment, which says how long
// it is, and later ones, which say where they belong. Each piece is written into the work request
// (short), copied to a bounce buffer (bcopy) or sent from registered memory (zcopy), as the lane of
// that moment allows. Receivers: Reassembly puts later fragments where the first one's handler
// said.
namespace ucp {

class Endpoint;
class Worker;
struct TagMessage;

/** What every eager send has in its request's part, as a base. */
struct EagerSend {
    Packer buffer;
    size_t offset = 0;              //!< bytes posted
    uint64_t number = 0;            //!< of the message, if it has fragments
    Memory* user_memory = nullptr;  //!< handle that came with the buffer
    Registration registration;      //!< of our own
    bool no_registration = false;   //!< the device refused: copy
    bool is_stuck = false;          //!< a generic datatype gave fewer bytes than it had announced
};

/** The envelope of a piece, its header and what of the data goes with it. */
struct EagerPiece {
    AmId id;
    std::span<const std::byte> header;
    std::span<const std::byte>
        trailer;    //!< the user's header of an active message, behind the data
    size_t length;  //!< bytes of data from EagerSend::offset on
};

/** The most data that fits into one piece beside a header and a trailer. */
size_t eager_room(Request& request, EagerSend& send, const Lane& lane, size_t header,
                  size_t trailer);
/** Post one piece and advance the offset. @return as Request::Post */
ucs_status_t post_eager_piece(Request& request, EagerSend& send, const Lane& lane,
                              const EagerPiece& piece);
/** Post the next later fragment. */
ucs_status_t post_eager_fragment(Request& request, EagerSend& send, const Lane& lane);
/** Release what the part holds: for Request::cleanup. */
void close_eager_send(Request& request, EagerSend& send);

/**
 * From which length on a message goes by rendezvous: UCX_RNDV_THRESH, or by cost if it is alone
 * (bulk/thresholds.h).
 */
size_t rndv_threshold(Endpoint& endpoint);
/**
 * Does a tagged message go by rendezvous? Beside its length it depends on whether the program is
 * likely to wait for it: asked once for each message.
 */
bool is_announced(Endpoint& endpoint, size_t length);

// --- tag matching ---

enum class TagMode : uint8_t { kNormal, kSync };

/** Send by whatever protocol suits; the result of the user's call. */
ucs_status_ptr_t tag_send(Endpoint& endpoint, const void* buffer, size_t count, uint64_t tag,
                          TagMode mode, const OpParams& params);

void add_eager_tag_handlers(Worker& worker);

/**
 * Give a receive (a request with its TagReceive part opened) the data of an eager message that was
 * kept, acknowledge it if its sender asked, and free the message. Completes the receive, or leaves
 * it waiting for the later fragments.
 */
void eager_receive_kept(Worker& worker, Request& receive, TagMessage& message);

}  // namespace ucp
