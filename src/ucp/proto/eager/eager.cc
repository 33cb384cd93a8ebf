// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/proto/eager/eager.h"

#include <algorithm>
#include <cstring>

namespace ucp {
namespace {

// The registration that covers the buffer on the lane's device, made at need; null: copy.
const uct::MemoryHandle* registration(EagerSend& send, const Lane& lane) {
    const auto address = reinterpret_cast<uintptr_t>(send.buffer.data());
    if (send.user_memory != nullptr && send.user_memory->covers(address, send.buffer.length())) {
        return send.user_memory->handle(lane.domains.local);
    }
    if (send.no_registration) return nullptr;
    if (!send.registration.is_open() &&
        send.registration.open(*send.domains, lane.domains.local, send.buffer.data(),
                               send.buffer.length()) != UCS_OK) {
        send.no_registration = true;
        return nullptr;
    }
    return send.registration.handle;
}

// What the pieces of any message go by is what those of a stream go by.
bool wants_zcopy(EagerSend& send, const Lane& lane) {
    if (!send.buffer.is_contiguous() || send.no_registration) return false;
    const select::ProtocolTable& protocols = Request::of(send).endpoint->protocols(lane);
    return protocols.find(select::Operation::kStream, buffer_class(send.buffer, send.user_memory),
                          select::Situation::kAlone,
                          send.buffer.length()) == select::Protocol::kZeroCopy;
}

struct Pack {
    EagerSend& send;
    const EagerPiece& piece;
    size_t done = 0;

    static size_t pack(void* destination, void* arg) {
        auto& self = *static_cast<Pack*>(arg);
        EagerSend& send = self.send;
        const EagerPiece& piece = self.piece;
        auto* out = static_cast<std::byte*>(destination);
        std::memcpy(out, piece.header.data(), piece.header.size());
        out += piece.header.size();
        while (self.done < piece.length) {
            const size_t packed = send.buffer.pack(send.offset + self.done, out + self.done,
                                                   piece.length - self.done);
            if (packed == 0) break;
            self.done += packed;
        }
        // A piece may be shorter than it could be, as types pack whole elements; the last may not.
        if (self.done < piece.length &&
            (self.done == 0 || send.offset + piece.length == send.buffer.length())) {
            send.is_stuck = true;
            std::memset(out + self.done, 0, piece.length - self.done);
            self.done = piece.length;
        }
        if (!piece.trailer.empty()) {
            std::memcpy(out + self.done, piece.trailer.data(), piece.trailer.size());
        }
        return piece.header.size() + self.done + piece.trailer.size();
    }
};

}  // namespace

size_t eager_room(EagerSend& send, const Lane& lane, size_t header, size_t trailer) {
    const auto& am = lane.attributes.am;
    const size_t copied = am.max_bcopy > header + trailer ? am.max_bcopy - header - trailer : 0;
    if (trailer != 0 || header > am.max_header || !wants_zcopy(send, lane)) return copied;
    if (registration(send, lane) == nullptr) return copied;
    return std::max(copied, am.max_zcopy);
}

ucs_status_t post_eager_piece(Request& request, EagerSend& send, const Lane& lane,
                              const EagerPiece& piece) {
    const auto& am = lane.attributes.am;
    const auto id = static_cast<uint8_t>(piece.id);
    ucs_status_t status = UCS_OK;
    if (piece.trailer.empty() && piece.header.size() <= am.max_header &&
        piece.length <= am.max_zcopy && piece.length != 0 && wants_zcopy(send, lane) &&
        registration(send, lane) != nullptr) {
        const uct::Iov iov{static_cast<std::byte*>(send.buffer.data()) + send.offset, piece.length,
                           registration(send, lane)};
        status = request.call([&](uct::Completion* done) {
            return lane.endpoint.am_zcopy(id, piece.header, {&iov, 1}, done);
        });
        if (status != UCS_OK && status != UCS_INPROGRESS) return status;
    } else {
        Pack pack{send, piece};
        const ssize_t sent = lane.endpoint.am_bcopy(id, Pack::pack, &pack);
        if (sent < 0) return static_cast<ucs_status_t>(sent);
        if (send.is_stuck) return UCS_ERR_INVALID_PARAM;
        send.offset += pack.done;
        return send.offset == send.buffer.length() ? UCS_OK : UCS_INPROGRESS;
    }
    send.offset += piece.length;
    return send.offset == send.buffer.length() ? UCS_OK : UCS_INPROGRESS;
}

ucs_status_t post_eager_fragment(Request& request, EagerSend& send, const Lane& lane) {
    const FragmentHeader header{{request.endpoint->local_uuid(), send.number}, send.offset};
    const size_t room = eager_room(send, lane, sizeof(header), 0);
    const EagerPiece piece{AmId::kFragment,
                           std::as_bytes(std::span(&header, 1)),
                           {},
                           piece_length(room, send.buffer.length() - send.offset)};
    return post_eager_piece(request, send, lane, piece);
}

void close_eager_send(EagerSend& send) {
    send.buffer.close();
    if (send.registration.is_open()) send.registration.close(*send.domains);
}

ucs_status_t begin_send(Endpoint& endpoint, const void* buffer, size_t count,
                        const OpParams& params, Packer* packer, Request** request) {
    const ucs_status_t status =
        packer->open(buffer, count, params.datatype(), params.memory_type());
    if (status != UCS_OK) return status;
    *request = begin_send(endpoint, *packer, params);
    return *request == nullptr ? UCS_ERR_NO_MEMORY : UCS_OK;
}

Request* begin_send(Endpoint& endpoint, Packer& packer, const OpParams& params) {
    Request* const request = endpoint.requests().begin(params, Request::CallbackKind::kSend);
    if (request == nullptr) {
        packer.close();
        return nullptr;
    }
    request->endpoint = &endpoint;
    request->length = packer.length();
    if (packer.type_class() == DatatypeClass::kDevice) request->memory_type = packer.memory_type();
    return request;
}

ucs_status_t post_eager_short(Request& request, const EagerSend& send, const Lane& lane, AmId id,
                              uint64_t word) {
    const size_t total = send.buffer.length();
    if (!send.buffer.is_contiguous() || total > lane.attributes.am.max_short ||
        total > request.endpoint->host().short_limit ||
        (lane.attributes.capabilities & uct::kAmShort) == 0) {
        return UCS_ERR_UNSUPPORTED;
    }
    return lane.endpoint.am_short(static_cast<uint8_t>(id), word, send.buffer.data(),
                                  static_cast<uint32_t>(total));
}

}  // namespace ucp
