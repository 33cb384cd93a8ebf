// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/endpoint/flush.h"

#include "ucp/endpoint/endpoint.h"

namespace ucp {
namespace {

struct FlushPart : uct::Completion {
    enum class Stage : uint8_t { kScalable, kDedicated, kAnswers };
    Stage stage = Stage::kScalable;
    uint32_t target = 0;  //!< remote operations with lower numbers must be finished
    Request* request = nullptr;
};

// A dedicated lane goes only when all on it is done: a flush that goes with it is done as well.
void dedicated_flushed(uct::Completion* self) {
    auto& part = *static_cast<FlushPart*>(self);
    Request& request = *part.request;
    const bool is_done = part.status == UCS_ERR_CANCELED && !request.endpoint->is_failed();
    request.complete(is_done ? UCS_OK : part.status);
}

ucs_status_t flush_dedicated(Request& request, const Lane& lane) {
    auto& part = request.part<FlushPart>();
    part.callback = dedicated_flushed;
    part.count = 1;
    part.request = &request;
    ++request.count;
    const ucs_status_t status = lane.endpoint.flush(&part);
    if (status != UCS_INPROGRESS) --request.count;
    return status;
}

void wait_for_answers(Request& request) {
    Endpoint& endpoint = *request.endpoint;
    if (!endpoint.has_remote_operations()) return;
    ++request.count;
    request.part<FlushPart>().target = endpoint.remote_started();
    // The request leaves the send queue only after this call: it waits by a pointer of its own.
    endpoint.host().flushes.push_back(&request);
}

ucs_status_t post_flush(Request& request, const Lane& lane) {
    auto& part = request.part<FlushPart>();
    const bool on_scalable = &lane.endpoint == request.endpoint->scalable();
    ucs_status_t status = UCS_OK;
    if (part.stage == FlushPart::Stage::kScalable) {
        // Answers to the peer are messages as well.
        if (!request.endpoint->post_waiting_controls()) return UCS_ERR_NO_RESOURCE;
        status = request.call([&](uct::Completion* done) { return lane.endpoint.flush(done); });
    } else if (!on_scalable) {
        status = flush_dedicated(request, lane);
    }
    if (status != UCS_OK && status != UCS_INPROGRESS) return status;
    if (part.stage == FlushPart::Stage::kScalable) {
        part.stage = FlushPart::Stage::kDedicated;
        return UCS_INPROGRESS;
    }
    part.stage = FlushPart::Stage::kAnswers;
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

bool flush_wants_dedicated(Request& request) {
    return request.part<FlushPart>().stage != FlushPart::Stage::kScalable;
}

void flush_remote_finished(Endpoint& endpoint) {
    auto& waiters = endpoint.host().flushes;
    for (size_t index = 0; index < waiters.size();) {
        Request& request = *waiters[index];
        const auto ahead =
            static_cast<int32_t>(endpoint.remote_finished() - request.part<FlushPart>().target);
        if (request.endpoint != &endpoint || ahead < 0) {
            ++index;
            continue;
        }
        waiters.erase(waiters.begin() + static_cast<ptrdiff_t>(index));
        request.complete(UCS_OK);
        index = 0;
    }
}

void flush_endpoint_failed(Endpoint& endpoint, ucs_status_t status) {
    auto& waiters = endpoint.host().flushes;
    for (size_t index = 0; index < waiters.size();) {
        Request& request = *waiters[index];
        if (request.endpoint != &endpoint) {
            ++index;
            continue;
        }
        waiters.erase(waiters.begin() + static_cast<ptrdiff_t>(index));
        request.complete(status);
        index = 0;
    }
}

}  // namespace ucp
