// SPDX-License-Identifier: BSD-3-Clause

// Active messages of the user: sending, and what arrives before a handler sees it.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "ucp/endpoint/extras.h"
#include "ucp/proto/am/am_handlers.h"
#include "ucs/log/log.h"

namespace ucp {
namespace {

// --- sending ---

struct AmSend : TimedSend {
    AmHeader am{};
    const void* header = nullptr;  // the user's
    void* header_copy = nullptr;   // malloc'd, or null
};

void close_am_send(Request& request) {
    auto& send = request.part<AmSend>();
    close_eager_send(send);
    std::free(send.header_copy);
}

ucs_status_t post_am(Request& request, const Lane& lane) {
    auto& send = request.part<AmSend>();
    if (send.offset != 0)
        return send.work([&] { return post_eager_fragment(request, send, lane); });
    const size_t total = send.buffer.length();
    const std::span user_header(static_cast<const std::byte*>(send.header), send.am.header_length);
    if (send.am.flags == 0 && user_header.empty()) {
        uint64_t word;
        std::memcpy(&word, &send.am, sizeof(word));
        const ucs_status_t status = post_eager_short(request, send, lane, AmId::kAmShort, word);
        if (status != UCS_ERR_UNSUPPORTED) return status;
    }
    const uint64_t uuid = request.endpoint->local_uuid();
    const AmSingleHeader single{send.am, uuid};
    if (total <= eager_room(send, lane, sizeof(single), user_header.size())) {
        return post_eager_piece(
            request, send, lane,
            {AmId::kAmSingle, std::as_bytes(std::span(&single, 1)), user_header, total});
    }
    if (send.number == 0)
        send.number = send.stamp != 0 ? kStamped | send.stamp : request.endpoint->next_message();
    const AmFirstHeader first{send.am, {uuid, send.number}, total};
    const size_t room = eager_room(send, lane, sizeof(first), user_header.size());
    const EagerPiece piece{AmId::kAmFirst, std::as_bytes(std::span(&first, 1)), user_header,
                           piece_length(std::min(room, total - 1), total)};
    return send.work([&] { return post_eager_piece(request, send, lane, piece); });
}

// --- arriving ---

// On whose endpoint the sender is answered, if it wants to be.
uint64_t to_answer(const AmHeader& am, uint64_t sender) {
    const unsigned partner = am.flags >> kAmPartnerShift;
    return partner != 0 ? partner : sender;
}

}  // namespace

ucs_status_t AmHandlers::on_short(void* arg, void* data, size_t length,
                                  uct::ReceiveDescriptor* descriptor) {
    AmHeader header;
    if (length < sizeof(header)) {
        ucs::log_warn("an active message of {} bytes is too short: dropped", length);
        return UCS_OK;
    }
    std::memcpy(&header, data, sizeof(header));
    auto* bytes = static_cast<std::byte*>(data) + sizeof(header);
    return static_cast<AmHandlers*>(arg)->deliver(
        {header.id, false, 0, nullptr, 0, bytes, length - sizeof(header)}, descriptor);
}

ucs_status_t AmHandlers::on_single(void* arg, void* data, size_t length,
                                   uct::ReceiveDescriptor* descriptor) {
    AmSingleHeader header;
    std::span<const std::byte> rest;
    if (!read_header(data, length, &header, &rest) || header.am.header_length > rest.size()) {
        ucs::log_warn("a malformed active message of {} bytes was dropped", length);
        return UCS_OK;
    }
    auto* bytes = static_cast<std::byte*>(data) + sizeof(header);
    const size_t payload = rest.size() - header.am.header_length;
    return static_cast<AmHandlers*>(arg)->deliver(
        {header.am.id, (header.am.flags & kAmReply) != 0, to_answer(header.am, header.sender),
         bytes + payload, header.am.header_length, bytes, payload},
        descriptor);
}

namespace {

// A message on its way: data in a block that the handler may keep.
struct Arriving {
    AmHandlers* handlers;
    AmHeader am;
    uint64_t sender;
    size_t total;
    std::byte* data;
    size_t room;  // bytes of `data`
    std::unique_ptr<std::byte[]> header;
    HeldBytes held;  // of the sender's memory here
    Timing timing;
};

ucs_status_t store_in_block(void* target, size_t offset, const void* data, size_t length) {
    auto& message = *static_cast<Arriving*>(target);
    const ReceiverWork work(message.timing);
    if (offset + length > message.room) {
        const size_t room = Reassembly::room_for(offset + length, message.total);
        Reassembly& reassembly = message.handlers->reassembly();
        if (!reassembly.charge_more(message.held, message.sender, room - message.room))
            return UCS_ERR_EXCEEDS_LIMIT;
        std::byte* const larger = message.handlers->allocate(room);
        if (larger == nullptr) {
            ucs::log_error("no memory for an active message of {} bytes: it is lost",
                           message.total);
            return UCS_ERR_NO_MEMORY;
        }
        std::memcpy(larger, message.data, offset);
        AmHandlers::free_block(std::exchange(message.data, larger));
        message.room = room;
    }
    std::memcpy(message.data + offset, data, length);
    return UCS_OK;
}

const Reassembly::Sink kBlockSink{
    store_in_block, [](void* target, ucs_status_t status) {
        const std::unique_ptr<Arriving> message(static_cast<Arriving*>(target));
        if (message->timing.times != nullptr) [[unlikely]]
            message->timing.times->end(status, message->timing);
        if (status != UCS_OK) {
            AmHandlers::free_block(message->data);
            if (status == UCS_ERR_NO_MEMORY) message->handlers->lost(message->sender);
            return;
        }
        message->held.release();
        message->handlers->deliver_block({message->am.id, (message->am.flags & kAmReply) != 0,
                                          to_answer(message->am, message->sender),
                                          message->header.get(), message->am.header_length,
                                          message->data, message->total});
    }};

}  // namespace

ucs_status_t AmHandlers::on_first(void* arg, void* data, size_t length, uct::ReceiveDescriptor*) {
    auto& self = *static_cast<AmHandlers*>(arg);
    AmFirstHeader header;
    std::span<const std::byte> rest;
    if (!read_header(data, length, &header, &rest) || header.am.header_length > rest.size() ||
        header.total <= rest.size() - header.am.header_length) {
        ucs::log_warn("a malformed first fragment of {} bytes was dropped", length);
        return UCS_OK;
    }
    const size_t payload = rest.size() - header.am.header_length;
    if (header.total > PTRDIFF_MAX) {
        ucs::log_warn("an active message of a size that no memory has was dropped");
        return UCS_OK;
    }
    const size_t room = Reassembly::room_for(payload, header.total);
    std::unique_ptr<Arriving> message(new (std::nothrow) Arriving{});
    if (message != nullptr &&
        !self.reassembly_.charge(message->held, header.id.sender,
                                 sizeof(Arriving) + header.am.header_length + room)) {
        return UCS_OK;
    }
    if (message != nullptr)
        message->header.reset(new (std::nothrow) std::byte[header.am.header_length]);
    const auto* bytes = static_cast<const std::byte*>(data) + sizeof(header);
    std::byte* block = nullptr;
    if (message != nullptr && message->header != nullptr) {
        if ((header.id.number & kStamped) != 0) [[unlikely]] {
            self.times_.begin(message->timing, header.id.sender, header.id.number & ~kStamped,
                              header.total, payload);
        }
        const ReceiverWork work(message->timing);
        block = self.allocate(room);
        if (block != nullptr) std::memcpy(block, bytes, payload);
    }
    if (block == nullptr) {
        ucs::log_error("no memory for an active message of {} bytes: it is lost",
                       uint64_t{header.total});
        self.lost(header.id.sender);
        return UCS_OK;
    }
    message->handlers = &self;
    message->am = header.am;
    message->sender = header.id.sender;
    message->total = header.total;
    message->data = block;
    message->room = room;
    std::memcpy(message->header.get(), bytes + payload, header.am.header_length);
    Reassembly::Sink sink = kBlockSink;
    sink.target = message.release();
    self.reassembly_.begin(header.id, header.total, payload, sink);
    return UCS_OK;
}

ucs_status_t AmHandlers::on_announcement(void* arg, void* data, size_t length,
                                         uct::ReceiveDescriptor*) {
    auto& self = *static_cast<AmHandlers*>(arg);
    Announcement announcement;
    if (!parse_announcement({static_cast<const std::byte*>(data), length}, &announcement)) {
        ucs::log_warn("a malformed announcement of {} bytes was dropped", length);
        return UCS_OK;
    }
    AmHeader am;
    std::memcpy(&am, &announcement.rts.envelope, sizeof(am));
    self.deliver_announcement(
        {am.id, (am.flags & kAmReply) != 0, to_answer(am, announcement.rts.sender),
         announcement.header.data(), announcement.header.size(), nullptr, announcement.rts.length},
        data, length);
    return UCS_OK;
}

MessageTimes::Route AmHandlers::route(Endpoint& endpoint, const Packer& buffer,
                                      const Memory* memory, uint32_t flags) {
    using select::Load;
    using select::Situation;
    constexpr auto kOperation = select::Operation::kActiveMessage;
    const bool is_eager = (flags & UCP_AM_SEND_FLAG_EAGER) != 0 || buffer.length() == 0;
    const bool is_forced = (flags & UCP_AM_SEND_FLAG_RNDV) != 0 && buffer.length() != 0;
    if (is_eager && !is_forced) return {select::Protocol::kCopy};
    const select::BufferClass kind = rndv_.buffer_class(endpoint, kOperation, buffer, memory);
    // The longest message of all is announced.
    const select::Protocol usual = endpoint.protocols().find(
        kOperation, kind, Situation::kAlone, is_forced ? SIZE_MAX : buffer.length());
    if (is_forced || !MessageTimes::has_choice(endpoint, kOperation, kind, buffer.length()))
        return {usual};
    // Nobody says for which messages he waits: among others, all are taken to go one way.
    const bool is_busy = endpoint.has_backlog() || requests_.has_named();
    const Situation situation = turns_.next(endpoint, {received_}, is_busy).situation;
    return times_.route(endpoint, kOperation,
                        situation == Situation::kAlone ? Load::kAlone : Load::kOneWay,
                        buffer.length(), usual);
}

ucs_status_ptr_t AmHandlers::send(Endpoint& endpoint, uint16_t id, const void* header,
                                  size_t header_length, const void* buffer, size_t count,
                                  const OpParams& params) {
    Packer packer;
    Request* request = nullptr;
    const ucs_status_t status = begin_send(endpoint, buffer, count, params, &packer, &request);
    if (status != UCS_OK) return UCS_STATUS_PTR(status);
    const uint32_t flags = params.flags();
    AmHeader am{id, 0, static_cast<uint32_t>(header_length)};
    if ((flags & UCP_AM_SEND_FLAG_REPLY) != 0) {
        const EndpointExtras* const extras = endpoint.extras();
        const unsigned partner = extras == nullptr ? 0 : extras->partner;
        am.flags = static_cast<uint16_t>(kAmReply | partner << kAmPartnerShift);
        request->flags |= Request::kNeedsGreeting;
    }
    auto* const memory = reinterpret_cast<Memory*>(params.memory());
    const MessageTimes::Route way = route(endpoint, packer, memory, flags);
    void* header_copy = nullptr;
    if ((flags & UCP_AM_SEND_FLAG_COPY_HEADER) != 0 && header_length != 0) {
        header_copy = std::malloc(header_length);
        if (header_copy == nullptr) {
            packer.close();
            requests_.recycle(*request);
            return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
        }
        header = std::memcpy(header_copy, header, header_length);
    }
    if (is_announced(way.protocol)) {
        uint64_t envelope;
        std::memcpy(&envelope, &am, sizeof(envelope));
        const RndvHeader user_header{header, static_cast<uint32_t>(header_length), header_copy};
        try {
            rndv_.begin_send(*request, way.protocol, packer, envelope, &user_header, memory,
                             way.stamp);
        } catch (const std::bad_alloc&) {
            requests_.undo(*request);
            throw;
        }
        return endpoint.submit(*request, params);
    }
    auto& send = make_eager<AmSend>(*request, packer, params);
    send.am = am;
    send.header = header;
    send.header_copy = header_copy;
    send.stamp = way.stamp;
    send.times = &times_;
    request->post = post_am;
    request->cleanup = close_am_send;
    return endpoint.submit(*request, params);
}

void AmHandlers::add_handlers(InterfaceSet& interfaces) {
    interfaces.set_handler(AmId::kAmShort, on_short, this);
    interfaces.set_handler(AmId::kAmSingle, on_single, this);
    interfaces.set_handler(AmId::kAmFirst, on_first, this);
    interfaces.set_handler(AmId::kRndvAmRts, on_announcement, this);
}

}  // namespace ucp
