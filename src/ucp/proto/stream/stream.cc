// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/proto/stream/stream.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "ucp/base/handles.h"
#include "ucp/endpoint/extras.h"
#include "ucs/log/log.h"

namespace ucp {
namespace {

constexpr size_t kChunkBytes = 4096;  // small messages share chunks of this size

void close_receive(Request& request) {
    const ucs_status_t status = request.part<StreamReceive>().buffer.close();
    if (request.status == UCS_OK) request.status = status;
}

}  // namespace

Stream::Chunk* Stream::Chunk::make(size_t capacity) {
    void* memory = std::malloc(sizeof(Chunk) + kOwner + capacity);
    if (memory == nullptr) return nullptr;
    auto* chunk = new (memory) Chunk();
    chunk->capacity = capacity;
    return chunk;
}

void Stream::Chunk::free(Chunk* chunk) {
    chunk->~Chunk();
    std::free(chunk);
}

Stream::~Stream() {
    chunks_.clear_and_dispose(Chunk::free);
    lent_.clear_and_dispose(Chunk::free);
}

// --- bytes that come ---

void Stream::arrived(const std::byte* data, size_t length) {
    if (closed_) return;
    // A callback may ask for more, or close the endpoint: all is looked at anew each time.
    while (length != 0 && chunks_.empty() && !receives_.empty()) {
        Request& receive = receives_.front();
        const size_t taken = appetite(receive, length);
        if (taken == 0) break;
        store(receive, data, taken);
        data += taken;
        length -= taken;
        if (!is_full(receive)) continue;
        receives_.pop_front();
        receive.complete(UCS_OK);
    }
    if (length == 0 || closed_) return;
    const size_t limit = endpoint_.host().interfaces.peer_memory().limit();
    if (length > limit || available_ > limit - length) {
        ucs::log_error(
            "worker {:016x} has sent {} bytes of a stream that nobody has read: its endpoint "
            "fails; read earlier, or raise UCX_PEER_MEMORY",
            endpoint_.remote_uuid(), available_);
        endpoint_.reset(UCS_ERR_EXCEEDS_LIMIT);
        close();
        return;
    }
    keep(data, length);
    serve();
    if (has_bytes() && receives_.empty()) announce();
}

void Stream::keep(const std::byte* data, size_t length) {
    while (length != 0) {
        if (chunks_.empty() || chunks_.back().end == chunks_.back().capacity) {
            Chunk* made = Chunk::make(std::max(length, kChunkBytes));
            if (made == nullptr) {
                // Later bytes must not take the place of these.
                ucs::log_error("no memory for {} bytes of a stream: its endpoint fails", length);
                endpoint_.reset(UCS_ERR_NO_MEMORY);
                close();
                return;
            }
            chunks_.push_back(*made);
        }
        Chunk& last = chunks_.back();
        const size_t part = std::min(length, last.capacity - last.end);
        std::memcpy(last.bytes() + last.end, data, part);
        last.end += part;
        available_ += part;
        data += part;
        length -= part;
    }
}

void Stream::serve() {
    while (!receives_.empty() && has_bytes()) {
        Request& receive = receives_.front();
        if (!fill(receive)) return;
        if (!is_full(receive)) continue;
        receives_.pop_front();
        receive.complete(UCS_OK);
    }
}

// --- receives ---

size_t Stream::appetite(Request& receive, size_t available) {
    const auto& part = receive.part<StreamReceive>();
    const size_t most = std::min(available, part.buffer.length() - part.filled);
    return part.wait_all ? most : most - most % part.element;
}

bool Stream::is_full(Request& receive) {
    const auto& part = receive.part<StreamReceive>();
    return part.filled == part.buffer.length() || (!part.wait_all && part.filled != 0);
}

void Stream::store(Request& receive, const std::byte* data, size_t length) {
    auto& part = receive.part<StreamReceive>();
    const ucs_status_t status = part.buffer.unpack(part.filled, data, length);
    if (status != UCS_OK && receive.status == UCS_OK) receive.status = status;
    part.filled += length;
    receive.received = part.filled;
}

bool Stream::fill(Request& receive) {
    size_t wanted = appetite(receive, available_);
    if (wanted == 0) return false;
    while (wanted != 0) {
        Chunk& first = chunks_.front();
        const size_t part = std::min(wanted, first.end - first.begin);
        store(receive, first.bytes() + first.begin, part);
        consume(part);
        wanted -= part;
    }
    return true;
}

void Stream::consume(size_t length) {
    Chunk& first = chunks_.front();
    first.begin += length;
    available_ -= length;
    if (first.begin == first.end) chunks_.pop_front_and_dispose(Chunk::free);
    if (!has_bytes()) unlink();
}

ucs_status_ptr_t Stream::receive(void* buffer, size_t count, size_t* length,
                                 const OpParams& params) {
    RequestPool& requests = endpoint_.requests();
    Request* request = requests.begin(params, Request::CallbackKind::kStreamReceive);
    if (request == nullptr) return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
    auto& part = request->emplace<StreamReceive>();
    const ucp_datatype_t type = params.datatype();
    const ucs_status_t opened = part.buffer.open(buffer, count, type, params.memory_type());
    if (opened != UCS_OK) {
        requests.recycle(*request);
        return UCS_STATUS_PTR(opened);
    }
    request->length = part.buffer.length();
    if (part.buffer.type_class() == DatatypeClass::kDevice)
        request->memory_type = part.buffer.memory_type();
    const bool is_contiguous = datatype_class(type) == DatatypeClass::kContig;
    part.element = is_contiguous ? std::max<size_t>(contig_element_size(type), 1) : 1;
    part.wait_all = (params.flags() & UCP_STREAM_RECV_FLAG_WAITALL) != 0;
    part.filled = 0;
    request->cleanup = close_receive;
    request->endpoint = &endpoint_;

    const size_t now = receives_.empty() ? appetite(*request, available_) : 0;
    const bool ends =
        part.buffer.length() == 0 || (part.wait_all ? now == part.buffer.length() : now != 0);
    if (!ends && params.has(UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL)) {
        request->complete(UCS_ERR_NO_RESOURCE);
        return requests.end_call(*request, params);
    }
    if (now != 0) fill(*request);
    if (ends) {
        if (length != nullptr) *length = request->received;
        request->complete(UCS_OK);
    } else if (endpoint_.is_failed()) {
        request->complete(endpoint_.status());
    } else {
        receives_.push_back(*request);
    }
    return requests.end_call(*request, params);
}

ucs_status_ptr_t Stream::borrow(size_t* length) {
    if (!has_bytes() || !receives_.empty()) return UCS_STATUS_PTR(endpoint_.status());
    Chunk& first = chunks_.front();
    chunks_.pop_front();
    lent_.push_back(first);
    std::byte* data = first.bytes() + first.begin;
    Chunk* owner = &first;
    std::memcpy(data - Chunk::kOwner, &owner, sizeof(owner));
    *length = first.end - first.begin;
    available_ -= *length;
    if (!has_bytes()) unlink();
    return data;
}

void Stream::give_back(void* data) {
    Chunk* chunk = nullptr;
    std::memcpy(&chunk, static_cast<std::byte*>(data) - Chunk::kOwner, sizeof(chunk));
    lent_.erase_and_dispose(lent_.iterator_to(*chunk), Chunk::free);
}

bool Stream::cancel(Request& receive) {
    for (Request& waiting : receives_) {
        if (&waiting != &receive) continue;
        receives_.erase(receives_.iterator_to(receive));
        endpoint_.requests().finish_later(receive, UCS_ERR_CANCELED);
        return true;
    }
    return false;
}

void Stream::cancel_receives(ucs_status_t status) {
    while (!receives_.empty()) {
        Request& receive = receives_.front();
        receives_.pop_front();
        endpoint_.requests().finish_later(receive, status);
    }
}

void Stream::open() {
    closed_ = false;
    if (has_bytes()) announce();
}

void Stream::close() {
    closed_ = true;
    unlink();
    chunks_.clear_and_dispose(Chunk::free);
    available_ = 0;
    cancel_receives(UCS_ERR_CANCELED);
}

Stream& Streams::of(Endpoint& endpoint) {
    std::unique_ptr<StreamReceiver>& stream = endpoint.make_extras().stream;
    if (stream == nullptr) stream = std::make_unique<Stream>(ready_, endpoint);
    return static_cast<Stream&>(*stream);
}

void Streams::take_early(Endpoint& endpoint) {
    const std::vector<std::byte> early =
        endpoints_.loopbacks().take_early(endpoint.extras()->partner);
    if (!early.empty()) of(endpoint).arrived(early.data(), early.size());
}

// Whose messages name their stream like that; null: nobody's.
Endpoint* Streams::find(uint64_t name) {
    if (Loopbacks::is_number(name)) return endpoints_.loopbacks().find(name);
    const auto named = named_.find(name);
    return named != named_.end() ? named->second : endpoints_.find(name);
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
    std::span<const std::byte> bytes;
    if (!read_header(data, length, &header, &bytes) || bytes.empty()) {
        ucs::log_warn("a stream message of {} bytes is too short: dropped", length);
        return UCS_OK;
    }
    Endpoint* const endpoint = self.find(header.stream);
    const Endpoint* const waiting = self.endpoints_.loopbacks().find_waiting(header.stream);
    if (waiting != nullptr && waiting->admits(AmId::kStream)) {
        self.endpoints_.loopbacks().hold(bytes);
        return UCS_OK;
    }
    if (endpoint == nullptr) {
        ucs::log_debug("{} bytes of a stream that nobody has were dropped", bytes.size());
        return UCS_OK;
    }
    if (!endpoint->admits(AmId::kStream)) return UCS_OK;
    self.of(*endpoint).arrived(bytes.data(), bytes.size());
    return UCS_OK;
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
    if (extras != nullptr && extras->partner != 0) return extras->partner;
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
