// SPDX-License-Identifier: BSD-3-Clause

// A worker's requests: their memory, their names, their end.

#include <cstdlib>

#include "ucp/endpoint/endpoint.h"
#include "ucp/worker/worker.h"

namespace ucp {

using Table = ucs::SlotTable<Request>;

namespace {

Request* make_request(ucs::MemoryPool& pool, Worker& worker, uint32_t flags) {
    void* memory = pool.allocate();
    if (memory == nullptr) return nullptr;
    auto* request = new (memory) Request();
    request->worker = &worker;
    request->flags = flags;
    return request;
}

}  // namespace

// --- memory
// ----------------------------------------------------------------------------------------

ucs::ChunkSource::Chunk Worker::RequestChunks::allocate(size_t bytes) {
    return {std::aligned_alloc(64, (bytes + 63) / 64 * 64), nullptr};
}

void Worker::RequestChunks::prepare(void* object, const Chunk&) {
    void* handle = static_cast<Request*>(object) + 1;
    if (context_.request_init() != nullptr) context_.request_init()(handle);
    if (context_.request_cleanup() != nullptr) prepared_.push_back(handle);
}

void Worker::RequestChunks::release(const Chunk& chunk, size_t) {
    for (void* handle : prepared_) context_.request_cleanup()(handle);
    prepared_.clear();
    std::free(chunk.memory);
}

Request* Worker::allocate_request(uint32_t flags) {
    return make_request(requests_, *this, flags);
}

Request* Worker::begin_request(const OpParams& params, Request::CallbackKind kind) {
    Request* request;
    if (params.has(UCP_OP_ATTR_FIELD_REQUEST)) {
        request = new (&Request::from_handle(params.raw().request)) Request();
        request->worker = this;
        request->flags = Request::kUserMemory;
    } else {
        request = make_request(requests_, *this, 0);
        if (request == nullptr) return nullptr;
    }
    request->flags |= Request::kInCall;
    request->callback_kind = kind;
    if (params.has_callback()) {
        switch (kind) {
            case Request::CallbackKind::kTagReceive:
                request->on_finish.tag_receive = params.raw().cb.recv;
                break;
            case Request::CallbackKind::kAmReceive:
                request->on_finish.am_receive = params.raw().cb.recv_am;
                break;
            case Request::CallbackKind::kStreamReceive:
                request->on_finish.stream_receive = params.raw().cb.recv_stream;
                break;
            default:
                request->on_finish.send = params.raw().cb.send;
        }
    }
    request->user_data = params.user_data();
    return request;
}

// --- the end
// ---------------------------------------------------------------------------------------

void Request::references_gone(uct::Completion* self) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"  // one base with members, which is no trouble
    static_assert(offsetof(Request, part_) == kPartOffset);
#pragma GCC diagnostic pop
    auto& request = *static_cast<Request*>(self);
    request.worker->finish(request);
}

void Worker::finish(Request& request) {
    if ((request.flags & Request::kNamed) != 0) unname_request(request);
    if (request.cleanup != nullptr) {
        const Request::Cleanup cleanup = request.cleanup;
        request.cleanup = nullptr;
        cleanup(request);
    }
    if ((request.flags & Request::kInCall) != 0) {
        request.flags |= Request::kDoneInCall;
        return;
    }
    deliver(request);
}

// The callback may free the request, and may start it anew where its memory is the user's: nothing
// of it is read afterwards unless the user had given it up before. Without a callback, that holds
// from set_finished() on: another thread may see it and take the memory back.
void Worker::deliver(Request& request) {
    const bool is_given_up = (request.flags & (Request::kFreed | Request::kInternal)) != 0;
    const Request::Callback callback = request.on_finish;
    const Request::CallbackKind kind = request.callback_kind;
    request.set_finished();
    if (callback.send != nullptr) {
        switch (kind) {
            case Request::CallbackKind::kSend:
                callback.send(request.handle(), request.status, request.user_data);
                break;
            case Request::CallbackKind::kTagReceive:
                callback.tag_receive(request.handle(), request.status, &request.tag_info,
                                     request.user_data);
                break;
            case Request::CallbackKind::kAmReceive:
                callback.am_receive(request.handle(), request.status, request.received,
                                    request.user_data);
                break;
            case Request::CallbackKind::kStreamReceive:
                callback.stream_receive(request.handle(), request.status, request.received,
                                        request.user_data);
                break;
            case Request::CallbackKind::kInternal:
                callback.internal(request);
                break;
        }
    }
    if (is_given_up) recycle(request);
}

ucs_status_ptr_t Worker::end_call(Request& request, const OpParams& params) {
    request.flags &= ~uint32_t{Request::kInCall};
    if ((request.flags & Request::kDoneInCall) == 0) return request.handle();
    request.flags &= ~uint32_t{Request::kDoneInCall};
    if (params.has(UCP_OP_ATTR_FLAG_NO_IMM_CMPL)) {
        request.count = 1;
        defer(request);
        return request.handle();
    }
    if (params.has(UCP_OP_ATTR_FIELD_RECV_INFO)) {
        if (request.callback_kind == Request::CallbackKind::kTagReceive) {
            *params.raw().recv_info.tag_info = request.tag_info;
        } else if (request.callback_kind == Request::CallbackKind::kAmReceive ||
                   request.callback_kind == Request::CallbackKind::kStreamReceive) {
            *params.raw().recv_info.length = request.received;
        }
    }
    return give_back(request, request.status);
}

// Runtimes ask a request in their own memory for its end whatever the call has returned.
ucs_status_ptr_t Worker::give_back(Request& request, ucs_status_t status) {
    if ((request.flags & Request::kUserMemory) != 0) {
        request.status = status;
        request.set_finished();
    } else {
        recycle(request);
    }
    return UCS_STATUS_PTR(status);
}

void Worker::finish_later(Request& request, ucs_status_t status) {
    if (request.status == UCS_OK) request.status = status;
    defer(request);
}

void Worker::defer(Request& request) {
    deferred_.push_back(request);
    work_later();
}

Request* Worker::lend_request() {
    Request* request = allocate_request(Request::kUserMemory);
    if (request == nullptr) return nullptr;
    request->set_finished();
    lent_.insert(request);
    return request;
}

void Worker::release_request(Request& request) {
    if (!request.is_finished()) {
        request.flags |= Request::kFreed;
        return;
    }
    if (!lent_.empty() && lent_.erase(&request) != 0)
        request.flags &= ~uint32_t{Request::kUserMemory};
    recycle(request);
}

// --- names on the wire
// -----------------------------------------------------------------------------

uint64_t Worker::name_request(Request& request) {
    request.wire_id = named_.insert(request).packed() + 1;
    request.flags |= Request::kNamed;
    return request.wire_id;
}

Request* Worker::find_request(uint64_t wire_id) {
    return wire_id == 0 ? nullptr : named_.find(Table::Handle::unpack(wire_id - 1));
}

void Worker::unname_request(Request& request) {
    named_.erase(Table::Handle::unpack(request.wire_id - 1));
    request.wire_id = 0;
    request.flags &= ~uint32_t{Request::kNamed};
}

void Worker::abort_named(Endpoint& endpoint, ucs_status_t status) {
    std::vector<Request*> waiting;
    named_.for_each([&](Table::Handle, Request& request) {
        if (request.endpoint == &endpoint) waiting.push_back(&request);
    });
    for (Request* request : waiting) {
        unname_request(*request);
        abort(*request, status);
    }
}

void Worker::abort(Request& request, ucs_status_t status) {
    if (request.abort != nullptr) {
        request.abort(request, status);
    } else {
        request.complete(status);
    }
}

}  // namespace ucp
