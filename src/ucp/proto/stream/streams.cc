// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/proto/stream/streams.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>

#include "ucp/endpoint/endpoint.h"
#include "ucp/endpoint/endpoint_extras.h"
#include "ucp/base/handles.h"
#include "ucp/worker/worker.h"
#include "ucp/proto/eager/eager.h"
#include "ucs/log.h"

namespace ucp {

Stream& Streams::of(Endpoint& endpoint) {
    std::unique_ptr<Stream>& stream = endpoint.make_extras().stream;
    if (stream == nullptr) {
        stream = std::make_unique<Stream>(endpoint.worker().streams(), endpoint);
    }
    return *stream;
}

size_t Streams::poll(ucp_stream_poll_ep_t* endpoints, size_t room) {
    size_t filled = 0;
    for (; filled < room && !ready_.empty(); ++filled) {
        Endpoint& endpoint = ready_.front().endpoint();
        ready_.pop_front();
        endpoints[filled] = {wrap(&endpoint), endpoint.user_argument(), 0, {}};
    }
    return filled;
}

ucs_status_t Streams::on_stream(void* arg, void* data, size_t length, uct::ReceiveDescriptor*) {
    auto& worker = *static_cast<Worker*>(arg);
    StreamHeader header;
    if (length <= sizeof(header)) {
        ucs::log_warn("a stream message of {} bytes is too short: dropped", length);
        return UCS_OK;
    }
    std::memcpy(&header, data, sizeof(header));
    Streams& self = worker.streams();
    const auto named = self.named_.find(header.stream);
    Endpoint* endpoint =
        named != self.named_.end() ? named->second : worker.find_endpoint(header.stream);
    if (endpoint == nullptr) {
        ucs::log_debug("worker {}: {} bytes of a stream that nobody has were dropped",
                       worker.name(), length - sizeof(header));
        return UCS_OK;
    }
    of(*endpoint).arrived(static_cast<const std::byte*>(data) + sizeof(header),
                          length - sizeof(header));
    return UCS_OK;
}

void add_stream_handler(Worker& worker) {
    worker.set_handler(AmId::kStream, Streams::on_stream);
}

// --- sending
// ---------------------------------------------------------------------------------------

namespace {

void close_stream_send(Request& request) {
    close_eager_send(request, request.part<EagerSend>());
}

// Each piece is so many more bytes of the stream: there is no message to be put together.
ucs_status_t post_stream(Request& request, const Lane& lane) {
    auto& send = request.part<EagerSend>();
    const StreamHeader header{stream_name(*request.endpoint)};
    const size_t total = send.buffer.length();
    if (total == 0) return UCS_OK;
    const auto& am = lane.attributes.am;
    if (send.buffer.is_contiguous() && total <= am.max_short &&
        total <= request.worker->short_limit() &&
        (lane.attributes.capabilities & uct::kAmShort) != 0) {
        return lane.endpoint.am_short(static_cast<uint8_t>(AmId::kStream), header.stream,
                                      send.buffer.data(), static_cast<uint32_t>(total));
    }
    const size_t room = eager_room(request, send, lane, sizeof(header), 0);
    return post_eager_piece(request, send, lane,
                            {AmId::kStream,
                             std::as_bytes(std::span(&header, 1)),
                             {},
                             std::min(room, total - send.offset)});
}

}  // namespace

uint64_t stream_name(const Endpoint& endpoint) {
    const EndpointExtras* extras = endpoint.extras();
    if (extras != nullptr && extras->connection != nullptr) return extras->connection->stream();
    return endpoint.worker().uuid();
}

ucs_status_ptr_t stream_send(Endpoint& endpoint, const void* buffer, size_t count,
                             const OpParams& params) {
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
    request->flags |= Request::kNeedsGreeting;
    auto& send = request->emplace<EagerSend>();
    send.buffer = packer;
    send.user_memory = reinterpret_cast<Memory*>(params.memory());
    request->post = post_stream;
    request->cleanup = close_stream_send;
    return endpoint.submit(*request, params);
}

}  // namespace ucp
