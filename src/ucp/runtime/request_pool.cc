// SPDX-License-Identifier: BSD-3-Clause

#include "ucp/runtime/request_pool.h"

#include <cstdlib>
#include <new>
#include <utility>

namespace ucp {

using Table = ucs::SlotTable<Request>;

// --- memory ---

ucs::ChunkSource::Chunk RequestPool::Chunks::allocate(size_t bytes) {
    if (area_.cleanup != nullptr) {
        const size_t most = bytes / sizeof(Request);  // of objects, as none is smaller
        try {
            prepared_.reserve(prepared_.size() + most);
        } catch (const std::bad_alloc&) {
            return {};
        }
    }
    return {std::aligned_alloc(64, (bytes + 63) / 64 * 64), nullptr};
}

void RequestPool::Chunks::prepare(void* object, const Chunk&) {
    void* handle = static_cast<Request*>(object) + 1;
    if (area_.init != nullptr) area_.init(handle);
    if (area_.cleanup != nullptr) prepared_.push_back(handle);
}

void RequestPool::Chunks::release(const Chunk& chunk, size_t) {
    for (void* handle : prepared_) area_.cleanup(handle);
    prepared_.clear();
    std::free(chunk.memory);
}

RequestPool::RequestPool(const UserArea& area, Gate& gate, DeferredWork& work, Worker* owner)
    : gate_(gate),
      work_(work),
      owner_(owner),
      chunks_(area),
      memory_({.name = "requests",
               .object_size = sizeof(Request) + area.size,
               .alignment = 64,
               // The first message of a program waits for what is made here, and for its pages.
               .objects_at_first = 8,
               .source = &chunks_}) {}

RequestPool::~RequestPool() = default;

Request* RequestPool::allocate() {
    void* memory = memory_.allocate();
    if (memory == nullptr) return nullptr;
    auto* request = new (memory) Request();
    request->pool = this;
    request->holder = Request::Holder::kNobody;
    return request;
}

Request* RequestPool::begin(const OpParams& params, Request::CallbackKind kind) {
    Request* request;
    if (params.has(UCP_OP_ATTR_FIELD_REQUEST)) {
        request = new (&Request::from_handle(params.raw().request)) Request();
        request->pool = this;
        request->flags = Request::kUserMemory;
    } else {
        request = allocate();
        if (request == nullptr) return nullptr;
    }
    request->holder = Request::Holder::kCall;
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

// --- the end ---

void Request::references_gone(uct::Completion* self) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"  // one base with members, which is no trouble
    static_assert(offsetof(Request, part_) == kPartOffset);
#pragma GCC diagnostic pop
    auto& request = *static_cast<Request*>(self);
    request.pool->finish(request);
}

void RequestPool::finish(Request& request) {
    if (request.wire_id != 0) unname(request);
    if (request.cleanup != nullptr) {
        const Request::Cleanup cleanup = request.cleanup;
        request.cleanup = nullptr;
        cleanup(request);
    }
    if (request.holder == Request::Holder::kCall) {
        request.holder = Request::Holder::kEndedCall;
        return;
    }
    deliver(request);
}

// The callback may free the request, and may start it anew where its memory is the user's: nothing
// of it is read afterwards unless the user had given it up before. Without a callback, that holds
// from set_finished() on: another thread may see it and take the memory back.
void RequestPool::deliver(Request& request) {
    const bool is_given_up = request.holder == Request::Holder::kNobody;
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

// Of a receive it is within the call: who exchanges messages often finds the one that came before
// its receive, and need not make progress to learn of it.
ucs_status_ptr_t RequestPool::deliver_within_call(Request& request) {
    const EndingCall ending(is_ending_call_);
    void* const handle = request.handle();
    deliver(request);
    return handle;
}

ucs_status_ptr_t RequestPool::give_found_back(Request& request, const OpParams& params) {
    if (params.has(UCP_OP_ATTR_FIELD_RECV_INFO))
        *params.raw().recv_info.tag_info = request.tag_info;
    return give_back(request, UCS_OK);
}

ucs_status_ptr_t RequestPool::end_call(Request& request, const OpParams& params) {
    const bool has_ended = request.holder == Request::Holder::kEndedCall;
    request.holder = Request::Holder::kProgram;
    if (!has_ended) return request.handle();
    if (params.has(UCP_OP_ATTR_FLAG_NO_IMM_CMPL)) {
        if (is_ending_call_ || request.callback_kind != Request::CallbackKind::kTagReceive) {
            // Also what such a callback receives in turn: the stack has its bounds.
            request.count = 1;
            defer(request);
            return request.handle();
        }
        return deliver_within_call(request);
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
ucs_status_ptr_t RequestPool::give_back(Request& request, ucs_status_t status) {
    if ((request.flags & Request::kUserMemory) != 0) {
        request.status = status;
        request.set_finished();
    } else {
        recycle(request);
    }
    return UCS_STATUS_PTR(status);
}

void RequestPool::finish_later(Request& request, ucs_status_t status) {
    if (request.status == UCS_OK) request.status = status;
    defer(request);
}

unsigned RequestPool::run_deferred() {
    unsigned ended = 0;
    RequestQueue finished;
    finished.swap(deferred_);
    while (!finished.empty()) {
        Request& request = finished.front();
        finished.pop_front();
        request.complete(UCS_OK);
        ++ended;
    }
    return ended;
}

void RequestPool::defer(Request& request) {
    deferred_.push_back(request);
    work_.notify();
}

Request* RequestPool::lend() {
    Request* request = allocate();
    if (request == nullptr) return nullptr;
    try {
        lent_.insert(request);
    } catch (const std::bad_alloc&) {
        recycle(*request);
        return nullptr;
    }
    request->flags = Request::kUserMemory;
    request->holder = Request::Holder::kProgram;
    request->set_finished();
    return request;
}

void RequestPool::undo(Request& request) {
    if (request.wire_id != 0) unname(request);
    if (request.cleanup != nullptr) std::exchange(request.cleanup, nullptr)(request);
    recycle(request);
}

void RequestPool::release(Request& request) {
    if (!request.is_finished()) {
        request.holder = Request::Holder::kNobody;
        return;
    }
    if (!lent_.empty() && lent_.erase(&request) != 0)
        request.flags &= ~uint32_t{Request::kUserMemory};
    recycle(request);
}

// --- names on the wire ---

uint64_t RequestPool::name(Request& request) {
    request.wire_id = named_.insert(request).packed() + 1;
    return request.wire_id;
}
void RequestPool::unname(Request& request) {
    named_.erase(Table::Handle::unpack(request.wire_id - 1));
    request.wire_id = 0;
}

void RequestPool::abort_named(const Endpoint& endpoint, ucs_status_t status) {
    named_.for_each([&](Table::Handle, Request& request) {
        if (request.endpoint != &endpoint) return;
        unname(request);
        abort(request, status);
    });
}

void RequestPool::abort(Request& request, ucs_status_t status) {
    if (request.abort != nullptr) {
        request.abort(request, status);
    } else {
        request.complete(status);
    }
}

Request* RequestPool::find(uint64_t wire_id) {
    return wire_id == 0 ? nullptr : named_.find(Table::Handle::unpack(wire_id - 1));
}

}  // namespace ucp
