// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/endpoint/flush.h"

#include "ucp/endpoint/endpoint.h"

namespace ucp {
namespace {

struct FlushPart : uct::Completion {
    // The hook is in no list when the request ends.
    static constexpr bool kNeedsNoDestructor = true;

    FlushWait answers;  // also names the request
};

// A dedicated lane goes only when all on it is done: a flush that goes with it is done as well.
void dedicated_flushed(uct::Completion* self) {
    auto& part = *static_cast<FlushPart*>(self);
    Request& request = *part.answers.request;
    const bool is_done = part.status == UCS_ERR_CANCELED && !request.endpoint->is_failed();
    request.complete(is_done ? UCS_OK : part.status);
}

ucs_status_t flush_dedicated(Request& request, const Lane& lane) {
    auto& part = request.part<FlushPart>();
    part.callback = dedicated_flushed;
    part.count = 1;
    part.answers.request = &request;
    ++request.count;
    const ucs_status_t status = lane.endpoint.flush(&part);
    if (status != UCS_INPROGRESS) --request.count;
    return status;
}

void wait_for_answers(Request& request) {
    Endpoint& endpoint = *request.endpoint;
    if (!endpoint.has_remote_operations()) return;
    FlushQueue& waiting = endpoint.make_extras().flushes;
    ++request.count;
    // The request leaves the send queue only after this call: it waits by a hook of its own.
    FlushWait& answers = request.part<FlushPart>().answers;
    answers.target = endpoint.remote_started();
    answers.request = &request;
    waiting.add(answers);
}

ucs_status_t post_flush(Request& request, const Lane& lane) {
    if (request.order == Request::Order::kFlush) {
        // Answers to the peer are messages as well.
        if (!request.endpoint->post_waiting_controls()) return UCS_ERR_NO_RESOURCE;
        const ucs_status_t status =
            request.call([&](uct::Completion* done) { return lane.endpoint.flush(done); });
        if (status != UCS_OK && status != UCS_INPROGRESS) return status;
        request.order = Request::Order::kFlushDedicated;
        return UCS_INPROGRESS;
    }
    if (&lane.endpoint != request.endpoint->scalable()) {
        const ucs_status_t status = flush_dedicated(request, lane);
        if (status != UCS_OK && status != UCS_INPROGRESS) return status;
    }
    wait_for_answers(request);
    return UCS_OK;
}

}  // namespace

void make_flush(Request& request, Endpoint& endpoint) {
    request.endpoint = &endpoint;
    request.order = Request::Order::kFlush;
    request.post = post_flush;
    request.protocol = "flush";
    request.emplace<FlushPart>();
}

Request* make_internal_flush(Endpoint& endpoint, void* user_data, void (*done)(Request& flush)) {
    Request* flush = endpoint.requests().allocate();
    if (flush == nullptr) return nullptr;
    make_flush(*flush, endpoint);
    flush->callback_kind = Request::CallbackKind::kInternal;
    flush->user_data = user_data;
    flush->on_finish.internal = done;
    return flush;
}

}  // namespace ucp
