// SPDX-License-Identifier: BSD-3-Clause

// Tagged messages that go eagerly: sending, arriving, and the acknowledgement of synchronous ones.

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "ucp/proto/tag/engine.h"
#include "ucs/log/log.h"

namespace ucp {
namespace {

// --- sending ---

struct TagSend : TimedSend {
    uint64_t tag = 0;
    bool is_sync = false;
    uint64_t peer = 0;  // worker that acknowledges it
};

ucs_status_t post_tag(Request& request, const Lane& lane) {
    auto& send = request.part<TagSend>();
    if (send.offset != 0) {
        return send.work([&] { return post_eager_fragment(request, send, lane); });
    }
    const size_t total = send.buffer.length();
    if (!send.is_sync) {
        const ucs_status_t status =
            post_eager_short(request, send, lane, AmId::kTagShort, send.tag);
        if (status != UCS_ERR_UNSUPPORTED) return status;
        const auto header = std::as_bytes(std::span(&send.tag, 1));
        if (total <= eager_room(send, lane, header.size(), 0)) {
            return post_eager_piece(request, send, lane, {AmId::kTagShort, header, {}, total});
        }
    } else {
        send.peer = request.endpoint->remote_uuid();
        const TagSyncHeader header{send.tag, request.endpoint->local_uuid(), request.wire_id};
        const auto bytes = std::as_bytes(std::span(&header, 1));
        if (total <= eager_room(send, lane, bytes.size(), 0)) {
            return post_eager_piece(request, send, lane, {AmId::kTagSync, bytes, {}, total});
        }
    }
    if (send.number == 0) send.number = request.endpoint->next_message();
    const TagFirstHeader header{send.tag,
                                {request.endpoint->local_uuid(), send.number},
                                total,
                                request.wire_id,
                                send.stamp};
    const size_t room = eager_room(send, lane, sizeof(header), 0);
    const EagerPiece piece{AmId::kTagFirst,
                           std::as_bytes(std::span(&header, 1)),
                           {},
                           piece_length(std::min(room, total - 1), total)};
    return send.work([&] { return post_eager_piece(request, send, lane, piece); });
}

}  // namespace

ucs_status_t TagEngine::on_sync_ack(void* arg, void* data, size_t length, uct::ReceiveDescriptor*) {
    auto& self = *static_cast<TagEngine*>(arg);
    SyncAckHeader header{};
    (void)read_whole(data, length, &header);
    Request* request = self.requests_.find(header.request);
    if (request == nullptr || request->post != post_tag) {
        ucs::log_debug("an acknowledgement of nothing was dropped");
        return UCS_OK;
    }
    // The endpoint that it was sent on may be gone.
    const uint64_t peer = request->part<TagSend>().peer;
    const Endpoint* endpoint = self.endpoints_.find(peer);
    if (endpoint != nullptr && !endpoint->admits(AmId::kTagSyncAck)) return UCS_OK;
    self.requests_.answered(*request, UCS_OK);
    return UCS_OK;
}

// --- arriving ---

void TagEngine::acknowledge(uint64_t sender, uint64_t sync_request) {
    if (sync_request == 0) return;
    const SyncAckHeader header{sync_request};
    endpoints_.answer(sender, AmId::kTagSyncAck, std::as_bytes(std::span(&header, 1)));
}

namespace {

[[gnu::noinline]] ucs_status_t drop_short(size_t length) {
    ucs::log_warn("a tagged message of {} bytes is too short: dropped", length);
    return UCS_OK;
}

}  // namespace

// @param receive  what it goes to; null: no receive was posted
[[gnu::noinline]] void TagEngine::arrived(Request* receive, Tag tag, const std::byte* payload,
                                          size_t length, uint64_t sync_sender,
                                          uint64_t sync_request) {
    if (receive != nullptr) {
        acknowledge(sync_sender, sync_request);
        matched(*receive, tag, length);
        store(*receive, 0, payload, length);
        receive->complete(UCS_OK);
        return;
    }
    TagMessage* message = allocate(tag, TagMessageKind::kEager, length);
    if (message == nullptr) return keep_lost(tag, length, sync_sender, sync_request);
    if (!charge(*message, sync_sender, length))
        return keep_lost(tag, length, sync_sender, sync_request, UCS_ERR_EXCEEDS_LIMIT);
    message->length = length;
    message->arrived = length;
    message->sync_sender = sync_sender;
    message->sync_request = sync_request;
    if (length != 0) std::memcpy(message->data, payload, length);
    keep(*message);
}

// Does nothing but tell the two ways apart, each of which needs its own registers.
ucs_status_t TagEngine::on_message(void* arg, void* data, size_t length, uct::ReceiveDescriptor*) {
    uint64_t tag;
    if (length < sizeof(tag)) [[unlikely]]
        return drop_short(length);
    std::memcpy(&tag, data, sizeof(tag));
    const std::byte* payload = static_cast<const std::byte*>(data) + sizeof(tag);
    length -= sizeof(tag);
    auto& self = *static_cast<TagEngine*>(arg);
    return self.matcher_.has_expected() ? self.arrived_late(tag, payload, length)
                                        : self.arrived_early(tag, payload, length);
}

ucs_status_t TagEngine::arrived_late(Tag tag, const std::byte* payload, size_t length) {
    ExpectedReceive* const expected = matcher_.take_expected(tag);
    if (expected == nullptr) [[unlikely]]
        return arrived_early(tag, payload, length);
    if (!receive_at_once(*expected, tag, payload, length)) [[unlikely]]
        arrived(&whole(*expected), tag, payload, length, 0, 0);
    // No posted receive is left. The next message mostly belongs to a receive that the program
    // posts next: taken now it would be copied twice, while its sender waits for this side's
    // answer.
    if (matcher_.awaited() == 0) *is_enough_ = true;
    return UCS_OK;
}

ucs_status_t TagEngine::on_sync_message(void* arg, void* data, size_t length,
                                        uct::ReceiveDescriptor*) {
    TagSyncHeader header;
    std::span<const std::byte> payload;
    if (!read_header(data, length, &header, &payload)) {
        ucs::log_warn("a synchronous message of {} bytes is too short: dropped", length);
        return UCS_OK;
    }
    auto& self = *static_cast<TagEngine*>(arg);
    self.arrived(self.take_expected(header.tag), header.tag, payload.data(), payload.size(),
                 header.sender, header.sync_request);
    return UCS_OK;
}

namespace {

// Where later fragments go of a message that has its receive.
const Reassembly::Sink kReceiveSink{
    [](void* target, size_t offset, const void* data, size_t length) {
        store(*static_cast<Request*>(target), offset, data, length);
        return UCS_OK;
    },
    [](void* target, ucs_status_t status) { static_cast<Request*>(target)->complete(status); }};

// Makes room for the first `bytes` of a message that is kept; so far it has had room for the
// fragments that had come.
ucs_status_t make_room(TagMessage& message, size_t bytes) {
    if (bytes <= message.room) return UCS_OK;
    const size_t room = Reassembly::room_for(bytes, message.length);
    const bool is_inline = message.data == message.inline_data;
    const size_t more = room - (is_inline ? 0 : message.room);
    if (!message.reassembly->charge_more(message.held, message.id.sender, more))
        return UCS_ERR_EXCEEDS_LIMIT;
    void* const larger = std::realloc(is_inline ? nullptr : message.data, room);
    if (larger == nullptr) {
        ucs::log_error("no memory for an unexpected message of {} bytes: its receive fails",
                       message.length);
        return UCS_ERR_NO_MEMORY;
    }
    if (is_inline) std::memcpy(larger, message.data, message.arrived);
    message.data = static_cast<std::byte*>(larger);
    message.room = room;
    return UCS_OK;
}

// Where later fragments go of a message that still waits for its receive.
const Reassembly::Sink kKeptSink{[](void* target, size_t offset, const void* data, size_t length) {
                                     auto& message = *static_cast<TagMessage*>(target);
                                     const ReceiverWork work(message.timing);
                                     const ucs_status_t status =
                                         make_room(message, offset + length);
                                     if (status != UCS_OK) return status;
                                     std::memcpy(message.data + offset, data, length);
                                     message.arrived += length;
                                     return UCS_OK;
                                 },
                                 // One that will never be whole keeps its place: the receive that
                                 // finds it gets an error, not a later message.
                                 [](void* target, ucs_status_t status) {
                                     auto& message = *static_cast<TagMessage*>(target);
                                     message.kind = TagMessageKind::kEager;
                                     message.status = status;
                                     if (message.timing.times != nullptr)
                                         message.timing.times->arrived(message.timing);
                                 }};

Reassembly::Sink sink_to(const Reassembly::Sink& kind, void* target) {
    return {kind.store, kind.finish, target};
}

}  // namespace

ucs_status_t TagEngine::on_first_fragment(void* arg, void* data, size_t length,
                                          uct::ReceiveDescriptor*) {
    auto& self = *static_cast<TagEngine*>(arg);
    TagFirstHeader header;
    std::span<const std::byte> rest;
    if (!read_header(data, length, &header, &rest) || header.total <= rest.size()) {
        ucs::log_warn("a malformed first fragment of {} bytes was dropped", length);
        return UCS_OK;
    }
    const std::byte* const payload = rest.data();
    const size_t bytes = rest.size();
    if (Request* receive = self.take_expected(header.tag)) {
        if (header.stamp != 0) [[unlikely]] {
            self.times_.begin(receive->part<TagReceive>().timing, header.id.sender, header.stamp,
                              header.total, bytes);
        }
        matched(*receive, header.tag, header.total);
        store(*receive, 0, payload, bytes);
        self.acknowledge(header.id.sender, header.sync_request);
        self.reassembly_.begin(header.id, header.total, bytes, sink_to(kReceiveSink, receive));
        return UCS_OK;
    }
    if (header.total > PTRDIFF_MAX) {
        ucs::log_warn("a tagged message of a size that no memory has was dropped");
        return UCS_OK;
    }
    TagMessage* message = self.allocate(header.tag, TagMessageKind::kFragmented,
                                        Reassembly::room_for(bytes, header.total));
    if (message == nullptr) {
        self.keep_lost(header.tag, header.total, header.id.sender, header.sync_request);
        return UCS_OK;
    }
    if (!self.charge(*message, header.id.sender, message->room)) {
        self.keep_lost(header.tag, header.total, header.id.sender, header.sync_request,
                       UCS_ERR_EXCEEDS_LIMIT);
        return UCS_OK;
    }
    message->length = header.total;
    message->arrived = bytes;
    message->sync_sender = header.id.sender;
    message->sync_request = header.sync_request;
    message->id = header.id;
    message->reassembly = &self.reassembly_;
    if (header.stamp != 0) [[unlikely]]
        self.times_.begin(message->timing, header.id.sender, header.stamp, header.total, bytes);
    if (bytes != 0) {
        const ReceiverWork work(message->timing);
        std::memcpy(message->data, payload, bytes);
    }
    self.keep(*message);
    self.reassembly_.begin(header.id, header.total, bytes, sink_to(kKeptSink, message));
    return UCS_OK;
}

ucs_status_t TagEngine::on_announcement(void* arg, void* data, size_t length,
                                        uct::ReceiveDescriptor*) {
    auto& self = *static_cast<TagEngine*>(arg);
    const std::span<const std::byte> bytes(static_cast<std::byte*>(data), length);
    Announcement announcement;
    if (!parse_announcement(bytes, &announcement)) {
        ucs::log_warn("malformed rendezvous announcement of {} bytes dropped", length);
        return UCS_OK;
    }
    const Tag tag = announcement.rts.envelope;
    if (Request* request = self.take_expected(tag)) {
        self.times_.begin_announced(*request, announcement.rts.sender, announcement.rts.stamp,
                                    announcement.rts.length);
        matched(*request, tag, announcement.rts.length);
        self.rndv_.receive(*request, announcement);
        return UCS_OK;
    }
    TagMessage* message = self.allocate(tag, TagMessageKind::kRendezvous, length);
    if (message == nullptr) {
        ucs::log_error("no memory for a message of {} bytes: it fails", announcement.rts.length);
        self.rndv_.refuse(announcement.rts, UCS_ERR_NO_MEMORY);
        return UCS_OK;
    }
    if (!self.charge(*message, announcement.rts.sender, message->room)) {
        self.rndv_.refuse(announcement.rts, UCS_ERR_EXCEEDS_LIMIT);
        return UCS_OK;
    }
    std::memcpy(message->data, data, length);
    message->length = announcement.rts.length;
    self.keep(*message);
    return UCS_OK;
}

// --- sending ---

// Where the next long message stands in the order of the program's calls. Messages that are still
// to be fetched are under way.
Turns::Place TagEngine::place_of_next(const Endpoint& endpoint) {
    const bool is_busy = endpoint.has_backlog() || requests_.has_named() || !announced_.empty();
    return turns_.next(
        endpoint, {matcher_.receives(), matcher_.awaited(), last_found_ == matcher_.receives()},
        is_busy);
}

MessageTimes::Route TagEngine::route(Endpoint& endpoint, const Packer& buffer,
                                     const Memory* memory) {
    using select::Load;
    using select::Situation;
    constexpr auto kTag = select::Operation::kTag;
    const select::BufferClass kind = rndv_.buffer_class(endpoint, kTag, buffer, memory);
    const bool is_of_device =
        kind == select::BufferClass::kDevice || kind == select::BufferClass::kMapped;
    if (is_of_device && endpoint.protocols().is_announced_anyway(kTag, kind, buffer.length()))
        return {endpoint.protocols().find(kTag, kind, Situation::kAlone, buffer.length())};
    const bool has_choice = MessageTimes::has_choice(endpoint, kTag, kind, buffer.length());
    if (!has_choice && buffer.length() >= kCounted &&
        endpoint.protocols().is_announced_anyway(kTag, kind, buffer.length())) {
        (void)place_of_next(endpoint);
        return {endpoint.protocols().find(kTag, kind, Situation::kAlone, buffer.length())};
    }
    std::array<select::Protocol, select::kSituations> choices;
    for (size_t which = 0; which < select::kSituations; ++which) {
        choices[which] =
            endpoint.protocols().find(kTag, kind, static_cast<Situation>(which), buffer.length());
    }
    if (has_choice) {
        const auto [situation, is_exchange] = place_of_next(endpoint);
        const select::Protocol usual = choices[static_cast<size_t>(situation)];
        // Exchanges within a host go as the table says. What a message leaves in the caches of both
        // ends counts for more than its own time, which is all that can be learned; and in
        // collective operations all ranks wait for one that tries another way.
        if (is_exchange && endpoint.learned(kTag)->is_within_host) return {usual};
        const Load load = situation == Situation::kAlone ? Load::kAlone
                          : matcher_.awaited() != 0      ? Load::kBothWays
                                                         : Load::kOneWay;
        return times_.route(endpoint, kTag, load, buffer.length(), usual);
    }
    const bool is_first_announced = is_announced(choices.front());
    if (std::ranges::all_of(choices, [&](select::Protocol each) {
            return is_announced(each) == is_first_announced;
        })) {
        // All situations go one way, but the message counts as a step of an exchange: the next one
        // may be longer, as in recursive doubling.
        if (buffer.length() >= kCounted) (void)place_of_next(endpoint);
        return {choices.front()};
    }
    return {choices[static_cast<size_t>(place_of_next(endpoint).situation)]};
}

namespace {

constexpr size_t kMostPacked = 256;

// A short message that must be packed: that is done here, so that it goes as others do and needs no
// request.
// @return UCS_ERR_NO_RESOURCE: nothing is sent; else as Endpoint::post_short(), and it is closed
ucs_status_t send_packed(Endpoint& endpoint, Packer& packer, Tag tag) {
    std::array<std::byte, kMostPacked> packed;
    const size_t length = packer.length();
    if (length > packed.size() || !endpoint.fits_short_locked(length)) return UCS_ERR_NO_RESOURCE;
    ucs_status_t status = UCS_ERR_NO_RESOURCE;
    try {
        // Checked again: packing is the program's code, which may have sent something.
        if (packer.pack(0, packed.data(), length) == length && endpoint.fits_short_locked(length))
            status = endpoint.post_short(AmId::kTagShort, tag, packed.data(), length);
    } catch (...) {
        packer.close();
        throw;
    }
    if (status != UCS_ERR_NO_RESOURCE) packer.close();
    return status;
}

}  // namespace

ucs_status_ptr_t TagEngine::send(Endpoint& endpoint, const void* buffer, size_t count, Tag tag,
                                 TagMode mode, const OpParams& params) {
    Packer packer;
    ucs_status_t status = packer.open(buffer, count, params.datatype(), params.memory_type());
    if (status != UCS_OK) return UCS_STATUS_PTR(status);
    if (packer.is_packed() && mode == TagMode::kNormal &&
        !params.has(UCP_OP_ATTR_FLAG_NO_IMM_CMPL)) {
        status = send_packed(endpoint, packer, tag);
        if (status != UCS_ERR_NO_RESOURCE) return UCS_STATUS_PTR(status);
    }
    Request* const request = begin_send(endpoint, packer, params);
    if (request == nullptr) return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
    auto* const memory = reinterpret_cast<Memory*>(params.memory());
    try {
        DescribedBefore where;
        if (rndv_.is_read_by_peer(endpoint, select::Operation::kTag, packer, &where)) {
            rndv_.begin_send(*request, select::Protocol::kDirect, packer, tag, nullptr, memory);
            return rndv_.announce_at_once(*request, where) ? requests_.end_call(*request, params)
                                                           : endpoint.submit(*request, params);
        }
        const MessageTimes::Route way = route(endpoint, packer, memory);
        if (is_announced(way.protocol)) {
            rndv_.begin_send(*request, way.protocol, packer, tag, nullptr, memory, way.stamp);
        } else {
            begin_eager(*request, packer, tag, mode, way.stamp, params);
        }
    } catch (const std::bad_alloc&) {
        requests_.undo(*request);
        throw;
    }
    return endpoint.submit(*request, params);
}

void TagEngine::begin_eager(Request& request, const Packer& packer, Tag tag, TagMode mode,
                            uint64_t stamp, const OpParams& params) {
    auto& send = make_eager<TagSend>(request, packer, params);
    send.tag = tag;
    send.is_sync = mode == TagMode::kSync;
    send.stamp = stamp;
    send.times = &times_;
    request.post = post_tag;
    if (!send.is_sync) return;
    request.flags |= Request::kNeedsGreeting;
    requests_.await_answer(request);
}

void TagEngine::add_handlers(InterfaceSet& interfaces) {
    is_enough_ = &interfaces.is_enough();
    interfaces.set_handler(AmId::kTagShort, on_message, this);
    interfaces.set_handler(AmId::kTagFirst, on_first_fragment, this);
    interfaces.set_handler(AmId::kTagSync, on_sync_message, this);
    interfaces.set_handler(AmId::kTagSyncAck, on_sync_ack, this);
    interfaces.set_handler(AmId::kRndvRts, on_announcement, this);
}

// --- messages that were kept ---

// Give a receive the data of an eager message that was kept, acknowledge it if its sender asked,
// and free the message. Completes the receive, or leaves it waiting for the later fragments.
// @param at_once  however long it is; else a long one goes in pieces, one in each progress
void TagEngine::receive_kept(Request& receive, TagMessage& message, bool at_once) {
    matched(receive, message.tag, message.length);
    if (message.kind == TagMessageKind::kWhole) message.fill_whole();
    if (message.timing.times != nullptr) [[unlikely]]
        receive.part<TagReceive>().timing = message.timing;
    acknowledge(message.sync_sender, message.sync_request);
    if (message.arrived > kPiece && !at_once) {
        try {
            copies_.push_back({&receive, &message, 0});
            requests_.run_soon();
            return;
        } catch (const std::bad_alloc&) {
            ucs::log_debug("no memory to put a copy off: it is made at once");
        }
    }
    store(receive, 0, message.data, message.arrived);
    end_kept(receive, message);
}

// Who exchanges messages receives first and sends then: were the data copied in the call that
// receives, the peer would hear of the other message only when that is done, and the two would copy
// one after the other.
// @return false: fetch it now, since it is no work of this processor
bool TagEngine::fetch_later(Request& receive, TagMessage& message) {
    if (!rndv_.is_copied_here({message.data, message.room})) return false;
    try {
        announced_.push_back({&receive, &message});
    } catch (const std::bad_alloc&) {
        return false;
    }
    requests_.run_behind_call();
    return true;
}

unsigned TagEngine::fetch_announced() {
    // Only those that are there now: a callback may receive what comes next, and so on.
    const size_t count = announced_.size();
    for (size_t i = 0; i < count; ++i) {
        const auto [receive, message] = announced_.front();
        announced_.pop_front();
        // In case a callback throws: the rest is fetched in the next progress.
        if (!announced_.empty()) requests_.run_soon();
        const std::unique_ptr<TagMessage, Free> owner(message, Free{*this});
        rndv_.receive(*receive, {message->data, message->room});
    }
    return static_cast<unsigned>(count);
}

unsigned TagEngine::run_deferred() {
    if (copies_are_stopped_) return 0;
    const unsigned fetched = fetch_announced();
    if (copies_.empty()) return fetched;
    auto& [receive, message, done] = copies_.front();
    // Fragments may go on coming meanwhile; they are stored behind those that are here.
    const size_t piece = std::min(kPiece, message->arrived - done);
    store(*receive, done, message->data + done, piece);
    done += piece;
    const bool is_done = done == message->arrived;
    const KeptCopy copy = copies_.front();
    if (is_done) copies_.pop_front();
    if (!copies_.empty()) requests_.run_soon();
    if (is_done) end_kept(*copy.receive, *copy.message);
    return fetched + 1;
}

// What has come of the message is in the receive's buffer.
void TagEngine::end_kept(Request& receive, TagMessage& message) {
    if (message.kind == TagMessageKind::kFragmented) {
        reassembly_.redirect(message.id, sink_to(kReceiveSink, &receive));
    } else {
        const bool is_whole = message.arrived == message.length;
        receive.complete(is_whole || message.status != UCS_OK ? message.status
                                                              : UCS_ERR_CONNECTION_RESET);
    }
    free(message);
}

}  // namespace ucp
