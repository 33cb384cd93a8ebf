// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/proto/stream/streams.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>

#include "ucp/base/handles.h"
#include "ucp/endpoint/extras.h"
#include "ucs/log/log.h"

namespace ucp {

Stream& Streams::of(Endpoint& endpoint) {
    std::unique_ptr<StreamReceiver>& stream = endpoint.make_extras().stream;
    if (stream == nullptr) stream = std::make_unique<Stream>(ready_, endpoint);
    return static_cast<Stream&>(*stream);
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
    auto& self = *static_cast<Streams*>(arg);
    StreamHeader header;
    if (length <= sizeof(header)) {
        ucs::log_warn("a stream message of {} bytes is too short: dropped", length);
        return UCS_OK;
    }
    std::memcpy(&header, data, sizeof(header));
    const auto named = self.named_.find(header.stream);
    Endpoint* endpoint =
        named != self.named_.end() ? named->second : self.endpoints_.find(header.stream);
    if (endpoint == nullptr) {
        ucs::log_debug("{} bytes of a stream that nobody has were dropped",
                       length - sizeof(header));
        return UCS_OK;
    }
    if (!endpoint->admits(AmId::kStream)) return UCS_OK;
    self.of(*endpoint).arrived(static_cast<const std::byte*>(data) + sizeof(header),
                               length - sizeof(header));
    return UCS_OK;
}

void Streams::add_handlers(InterfaceSet& interfaces) {
    interfaces.set_handler(AmId::kStream, on_stream, this);
}

// --- sending ---

namespace {

// Each piece is so many more bytes of the stream: there is no message to be put together.
ucs_status_t post_stream(Request& request, const Lane& lane) {
    auto& send = request.part<EagerSend>();
    const StreamHeader header{stream_name(*request.endpoint)};
    const size_t total = send.buffer.length();
    if (total == 0) return UCS_OK;
    const ucs_status_t status = post_eager_short(request, send, lane, AmId::kStream, header.stream);
    if (status != UCS_ERR_UNSUPPORTED) return status;
    const size_t room = eager_room(send, lane, sizeof(header), 0);
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
    return endpoint.local_uuid();
}

ucs_status_ptr_t Streams::send(Endpoint& endpoint, const void* buffer, size_t count,
                               const OpParams& params) {
    Packer packer;
    Request* request = nullptr;
    const ucs_status_t status = begin_send(endpoint, buffer, count, params, &packer, &request);
    if (status != UCS_OK) return UCS_STATUS_PTR(status);
    request->flags |= Request::kNeedsGreeting;
    make_eager<EagerSend>(*request, packer, params);
    request->post = post_stream;
    return endpoint.submit(*request, params);
}

}  // namespace ucp
