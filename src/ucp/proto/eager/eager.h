// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ucp/base/request.h"
#include "ucp/base/wire.h"
#include "ucp/dt/buffer.h"
#include "ucp/endpoint/endpoint.h"
#include "ucp/mem/memory.h"

// Eager messages: the data travels with, or right behind, the envelope.
//
// A message goes in one piece if the lane takes it, else as a first fragment, which says how long
// it is, and later ones, which say where they belong. Each piece is written into the work request
// (short), copied to a bounce buffer (bcopy) or sent from registered memory (zcopy), as the lane of
// that moment allows. Receivers: Reassembly puts later fragments where the first one's handler
// said.
namespace ucp {

// What protocols can do with a buffer. @param memory  the handle that came with it, or null
inline select::BufferClass buffer_class(const Buffer& buffer, const Memory* memory) {
    if (!buffer.is_contiguous()) {
        return buffer.device_bytes().empty() ? select::BufferClass::kPacked
                                             : select::BufferClass::kDevice;
    }
    return memory != nullptr ? select::BufferClass::kRegistered : select::BufferClass::kContiguous;
}

// What every eager send has in its request's part, as a base.
struct EagerSend {
    DomainSet* domains = nullptr;
    Packer buffer;
    size_t offset = 0;              // bytes posted
    uint64_t number = 0;            // of the message, if it has fragments
    Memory* user_memory = nullptr;  // handle that came with the buffer
    Registration registration;      // of our own
    bool no_registration = false;   // the device refused: copy
    bool is_stuck = false;          // a generic datatype gave fewer bytes than it had announced
};

// The envelope of a piece, its header and what of the data goes with it.
struct EagerPiece {
    AmId id;
    std::span<const std::byte> header;
    std::span<const std::byte> trailer;  // the user's header of an active message, behind the data
    size_t length;                       // bytes of data from EagerSend::offset on
};

// The most data that fits into one piece beside a header and a trailer.
size_t eager_room(EagerSend& send, const Lane& lane, size_t header, size_t trailer);
// Post one piece and advance the offset. @return as Request::Post
ucs_status_t post_eager_piece(Request& request, EagerSend& send, const Lane& lane,
                              const EagerPiece& piece);
// Post the next later fragment.
ucs_status_t post_eager_fragment(Request& request, EagerSend& send, const Lane& lane);
// Release what the part holds: for Request::cleanup.
void close_eager_send(EagerSend& send);

// What sends of all kinds begin with: the buffer opened, and a request for the program's call, of
// that endpoint. @return UCS_ERR_NO_MEMORY; UCS_ERR_INVALID_PARAM as Packer::open()
ucs_status_t begin_send(Endpoint& endpoint, const void* buffer, size_t count,
                        const OpParams& params, Packer* packer, Request** request);
// The same of a buffer that is open. @return null: there is no memory, and it is closed
Request* begin_send(Endpoint& endpoint, Packer& packer, const OpParams& params);
// Make such a request an eager send whose part is a Send; Endpoint::submit() follows.
template <typename Send>
Send& make_eager(Request& request, const Packer& packer, const OpParams& params) {
    Send& send = request.emplace<Send>();
    request.protocol = "eager";
    send.domains = &request.endpoint->host().domains;
    send.buffer = packer;
    send.user_memory = reinterpret_cast<Memory*>(params.memory());
    request.cleanup = [](Request& self) { close_eager_send(self.part<Send>()); };
    return send;
}
// The way of a message without a header, if the lane takes it whole in its work request.
// @return UCS_ERR_UNSUPPORTED: it does not; else as uct::Endpoint::am_short()
ucs_status_t post_eager_short(Request& request, const EagerSend& send, const Lane& lane, AmId id,
                              uint64_t word);

}  // namespace ucp
