// SPDX-License-Identifier: BSD-3-Clause

// Tagged messages that go eagerly: sending, arriving, and the acknowledgement of synchronous ones.

#include <algorithm>
#include <cstring>

#include "ucp/endpoint/endpoint.h"
#include "ucp/proto/eager/reassembly.h"
#include "ucp/worker/worker.h"
#include "ucp/proto/eager/eager.h"
#include "ucp/proto/rndv/rndv.h"
#include "ucp/proto/tag/engine.h"
#include "ucs/log.h"

namespace ucp {
namespace {

// --- sending
// ---------------------------------------------------------------------------------------

struct TagSend : EagerSend {
    uint64_t tag = 0;
    bool is_sync = false;
};

void close_tag_send(Request& request) {
    close_eager_send(request, request.part<TagSend>());
}

ucs_status_t post_tag(Request& request, const Lane& lane) {
    auto& send = request.part<TagSend>();
    if (send.offset != 0) return post_eager_fragment(request, send, lane);
    const size_t total = send.buffer.length();
    const auto& am = lane.attributes.am;
    if (!send.is_sync && send.buffer.is_contiguous() && total <= am.max_short &&
        total <= request.worker->short_limit() &&
        (lane.attributes.capabilities & uct::kAmShort) != 0) {
        return lane.endpoint.am_short(static_cast<uint8_t>(AmId::kTagShort), send.tag,
                                      send.buffer.data(), static_cast<uint32_t>(total));
    }
    if (!send.is_sync) {
        const auto header = std::as_bytes(std::span(&send.tag, 1));
        if (total <= eager_room(request, send, lane, header.size(), 0)) {
            return post_eager_piece(request, send, lane, {AmId::kTagShort, header, {}, total});
        }
    } else {
        const TagSyncHeader header{send.tag, request.worker->uuid(), request.wire_id};
        const auto bytes = std::as_bytes(std::span(&header, 1));
        if (total <= eager_room(request, send, lane, bytes.size(), 0)) {
            return post_eager_piece(request, send, lane, {AmId::kTagSync, bytes, {}, total});
        }
    }
    if (send.number == 0) send.number = request.worker->next_message_number();
    const TagFirstHeader header{
        send.tag, {request.worker->uuid(), send.number}, total, request.wire_id};
    const size_t room = eager_room(request, send, lane, sizeof(header), 0);
    return post_eager_piece(request, send, lane,
                            {AmId::kTagFirst,
                             std::as_bytes(std::span(&header, 1)),
                             {},
                             piece_length(std::min(room, total - 1), total)});
}

ucs_status_t on_sync_ack(void* arg, void* data, size_t length, uct::ReceiveDescriptor*) {
    auto& worker = *static_cast<Worker*>(arg);
    SyncAckHeader header{};
    if (length == sizeof(header)) std::memcpy(&header, data, sizeof(header));
    Request* request = worker.find_request(header.request);
    if (request == nullptr || request->post != post_tag) {
        ucs::log_debug("worker {}: an acknowledgement of nothing was dropped", worker.name());
        return UCS_OK;
    }
    worker.unname_request(*request);
    request->complete(UCS_OK);
    return UCS_OK;
}

// --- arriving
// --------------------------------------------------------------------------------------

void acknowledge(Worker& worker, uint64_t sender, uint64_t sync_request) {
    if (sync_request == 0) return;
    Endpoint* endpoint = worker.find_endpoint(sender);
    if (endpoint == nullptr) {
        ucs::log_debug("worker {:016x} is unknown: its synchronous send is not acknowledged",
                       sender);
        return;
    }
    const SyncAckHeader header{sync_request};
    endpoint->send_control(AmId::kTagSyncAck, std::as_bytes(std::span(&header, 1)));
}

/** @param receive  what it goes to; null: no receive was posted */
[[gnu::noinline]] void arrived_whole(Worker& worker, Request* receive, uint64_t tag,
                                     const std::byte* payload, size_t length, uint64_t sync_sender,
                                     uint64_t sync_request) {
    TagEngine& tags = worker.tags();
    if (receive != nullptr) {
        acknowledge(worker, sync_sender, sync_request);
        tags.matched(*receive, tag, length);
        tags.store(*receive, 0, payload, length);
        receive->complete(UCS_OK);
        return;
    }
    TagMessage* message = tags.allocate(tag, TagMessageKind::kEager, length);
    if (message == nullptr) {
        ucs::log_error("no memory for an unexpected message of {} bytes: it is lost", length);
        return;
    }
    message->length = length;
    message->arrived = length;
    message->sync_sender = sync_sender;
    message->sync_request = sync_request;
    if (length != 0) std::memcpy(message->data, payload, length);
    tags.keep(*message);
}

ucs_status_t on_tag(void* arg, void* data, size_t length, uct::ReceiveDescriptor*) {
    uint64_t tag;
    if (length < sizeof(tag)) {
        ucs::log_warn("a tagged message of {} bytes is too short: dropped", length);
        return UCS_OK;
    }
    std::memcpy(&tag, data, sizeof(tag));
    const std::byte* payload = static_cast<const std::byte*>(data) + sizeof(tag);
    length -= sizeof(tag);
    auto& worker = *static_cast<Worker*>(arg);
    Request* receive;
    if (worker.tags().receive_at_once(tag, payload, length, &receive)) [[likely]]
        return UCS_OK;
    arrived_whole(worker, receive, tag, payload, length, 0, 0);
    return UCS_OK;
}

ucs_status_t on_tag_sync(void* arg, void* data, size_t length, uct::ReceiveDescriptor*) {
    TagSyncHeader header;
    if (length < sizeof(header)) {
        ucs::log_warn("a synchronous message of {} bytes is too short: dropped", length);
        return UCS_OK;
    }
    std::memcpy(&header, data, sizeof(header));
    auto& worker = *static_cast<Worker*>(arg);
    arrived_whole(worker, worker.tags().take_expected(header.tag), header.tag,
                  static_cast<const std::byte*>(data) + sizeof(header), length - sizeof(header),
                  header.sender, header.sync_request);
    return UCS_OK;
}

// Later fragments of a message that has its receive.
const Reassembly::Sink kReceiveSink{
    [](Worker& worker, void* target, size_t offset, const void* data, size_t length) {
        worker.tags().store(*static_cast<Request*>(target), offset, data, length);
    },
    [](Worker&, void* target, ucs_status_t status) {
        static_cast<Request*>(target)->complete(status);
    }};

// Later fragments of a message that still waits for one.
const Reassembly::Sink kKeptSink{
    [](Worker&, void* target, size_t offset, const void* data, size_t length) {
        auto& message = *static_cast<TagMessage*>(target);
        std::memcpy(message.data + offset, data, length);
        message.arrived += length;
    },
    // One that will never be whole keeps its place: the receive that finds it gets an error, not a
    // later message.
    [](Worker&, void* target, ucs_status_t) {
        static_cast<TagMessage*>(target)->kind = TagMessageKind::kEager;
    }};

Reassembly::Sink sink_to(const Reassembly::Sink& kind, void* target) {
    return {kind.store, kind.finish, target};
}

ucs_status_t on_tag_first(void* arg, void* data, size_t length, uct::ReceiveDescriptor*) {
    auto& worker = *static_cast<Worker*>(arg);
    TagFirstHeader header;
    bool is_sound = length >= sizeof(header);
    if (is_sound) std::memcpy(&header, data, sizeof(header));
    const size_t bytes = length - sizeof(header);
    if (!is_sound || header.total <= bytes) {
        ucs::log_warn("a malformed first fragment of {} bytes was dropped", length);
        return UCS_OK;
    }
    const std::byte* payload = static_cast<const std::byte*>(data) + sizeof(header);
    TagEngine& tags = worker.tags();
    if (Request* receive = tags.take_expected(header.tag)) {
        tags.matched(*receive, header.tag, header.total);
        tags.store(*receive, 0, payload, bytes);
        acknowledge(worker, header.id.sender, header.sync_request);
        worker.reassembly().begin(header.id, header.total, bytes, sink_to(kReceiveSink, receive));
        return UCS_OK;
    }
    TagMessage* message = tags.allocate(header.tag, TagMessageKind::kFragmented, header.total);
    if (message == nullptr) {
        ucs::log_error("no memory for an unexpected message of {} bytes: it is lost",
                       uint64_t{header.total});
        return UCS_OK;
    }
    message->length = header.total;
    message->arrived = bytes;
    message->sync_sender = header.id.sender;
    message->sync_request = header.sync_request;
    message->id = header.id;
    if (bytes != 0) std::memcpy(message->data, payload, bytes);
    tags.keep(*message);
    worker.reassembly().begin(header.id, header.total, bytes, sink_to(kKeptSink, message));
    return UCS_OK;
}

}  // namespace

ucs_status_ptr_t tag_send(Endpoint& endpoint, const void* buffer, size_t count, uint64_t tag,
                          TagMode mode, const OpParams& params) {
    Worker& worker = endpoint.worker();
    Packer packer;
    const ucs_status_t status = packer.open(buffer, count, params.datatype());
    if (status != UCS_OK) return UCS_STATUS_PTR(status);
    Request* request = worker.begin_request(params, Request::CallbackKind::kSend);
    if (request == nullptr) {
        packer.close();
        return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
    }
    request->endpoint = &endpoint;
    auto* memory = reinterpret_cast<Memory*>(params.memory());
    if (is_announced(endpoint, packer.length())) {
        const ucs_status_t begun = begin_rndv_send(*request, packer, tag, nullptr, memory);
        if (begun != UCS_OK) {
            worker.recycle(*request);
            return UCS_STATUS_PTR(begun);
        }
        return endpoint.submit(*request, params);
    }
    auto& send = request->emplace<TagSend>();
    send.buffer = packer;
    send.tag = tag;
    send.user_memory = memory;
    send.is_sync = mode == TagMode::kSync;
    request->post = post_tag;
    request->cleanup = close_tag_send;
    if (send.is_sync) {
        request->flags |= Request::kNeedsGreeting;
        worker.name_request(*request);
        ++request->count;
    }
    return endpoint.submit(*request, params);
}

void add_eager_tag_handlers(Worker& worker) {
    worker.set_handler(AmId::kTagShort, on_tag);
    worker.set_handler(AmId::kTagFirst, on_tag_first);
    worker.set_handler(AmId::kTagSync, on_tag_sync);
    worker.set_handler(AmId::kTagSyncAck, on_sync_ack);
}

void eager_receive_kept(Worker& worker, Request& receive, TagMessage& message) {
    TagEngine& tags = worker.tags();
    tags.matched(receive, message.tag, message.length);
    tags.store(receive, 0, message.data, message.arrived);
    acknowledge(worker, message.sync_sender, message.sync_request);
    if (message.kind == TagMessageKind::kFragmented) {
        worker.reassembly().redirect(message.id, sink_to(kReceiveSink, &receive));
    } else {
        receive.complete(message.arrived == message.length ? UCS_OK : UCS_ERR_CONNECTION_RESET);
    }
    tags.free(message);
}

}  // namespace ucp
