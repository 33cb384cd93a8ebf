// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstring>

#include "ucp/proto/rma/emulation.h"
#include "ucp/proto/rma/rma.h"
#include "ucs/log/log.h"

namespace ucp {

namespace {

RemoteAccess access_to(const RemoteMemory& remote, uint64_t address) {
    return {remote.header().identity, remote.header().region, address};
}

// From its first message on the operation is one that a flush or fence waits for: not before, since
// what waits in the queue before it may wait for a fence.
void count_remote(Request& request, std::optional<uint32_t>& number) {
    if (!number) number = request.endpoint->remote_operation_started();
}

struct PackContext {
    Request& request;
    size_t length;
    ucs_status_t status = UCS_OK;
};

size_t pack_put(void* destination, void* arg) {
    auto& [request, length, status] = *static_cast<PackContext*>(arg);
    const RmaOperation& rma = request.part<RmaOperation>();
    const EmulatedPut header{request.endpoint->local_uuid(), request.wire_id,
                             access_to(*rma.remote, rma.address + rma.offset),
                             rma.offset + length == rma.length};
    std::memcpy(destination, &header, sizeof(header));
    auto* const to = static_cast<std::byte*>(destination) + sizeof(header);
    if (rma.device_copy != nullptr) {
        status = rma.device_copy->read(rma.offset, to, length);
    } else if (length > 0) {
        std::memcpy(to, rma.buffer + rma.offset, length);
    }
    return sizeof(header) + length;
}

ucs_status_t post_emulated_put(Request& request, const Lane& lane) {
    RmaOperation& rma = request.part<RmaOperation>();
    PackContext pack{request, std::min(lane.attributes.am.longest_bcopy() - sizeof(EmulatedPut),
                                       rma.length - rma.offset)};
    count_remote(request, rma.number);
    const ssize_t sent = lane.endpoint.am_bcopy(static_cast<uint8_t>(AmId::kPut), pack_put, &pack);
    if (sent < 0) return static_cast<ucs_status_t>(sent);
    if (pack.status != UCS_OK) return pack.status;
    rma.offset += pack.length;
    return rma.offset == rma.length ? UCS_OK : UCS_INPROGRESS;
}

template <typename Message>
ucs_status_t post_message(const Lane& lane, AmId id, const Message& message) {
    return post_bytes(lane.endpoint, id, std::as_bytes(std::span(&message, 1)));
}

ucs_status_t post_emulated_get(Request& request, const Lane& lane) {
    RmaOperation& rma = request.part<RmaOperation>();
    EmulatedGet message{request.endpoint->local_uuid(), request.wire_id,
                        access_to(*rma.remote, rma.address + rma.offset), rma.length - rma.offset};
    rma.arrived = rma.offset;
    count_remote(request, rma.number);
    return post_message(lane, AmId::kGetRequest, message);
}

ucs_status_t post_copy_request(Request& request, const Lane& lane) {
    RmaOperation& rma = request.part<RmaOperation>();
    const bool is_put = rma.direction == bulk::Direction::kPut;
    CopyMessage message{.get = {request.endpoint->local_uuid(), request.wire_id,
                                access_to(*rma.remote, rma.address), rma.length},
                        .copy = {is_put ? CopyRequest::kPut : CopyRequest::kGet, {}}};
    ucs::MemoryExport described;
    if (lane.attributes.am.max_bcopy < sizeof(message) ||
        !rma.owner->direct.describe_in_request(*request.endpoint, {rma.buffer, rma.length},
                                               rma.found(), &described)) {
        request.post = is_put ? post_emulated_put : post_emulated_get;
        return request.post(request, lane);
    }
    message.copy.there = described;
    rma.described = described.buffer;
    count_remote(request, rma.number);
    return post_message(lane, AmId::kGetRequest, message);
}

ucs_status_t post_emulated_atomic(Request& request, const Lane& lane) {
    AtomicRequest& atomic = request.part<AtomicRequest>();
    EmulatedAtomic message{request.endpoint->local_uuid(),
                           request.wire_id,
                           access_to(*atomic.remote, atomic.address),
                           static_cast<uint8_t>(atomic.arguments.op),
                           static_cast<uint8_t>(atomic.arguments.size),
                           atomic.arguments.operand,
                           atomic.arguments.compare};
    count_remote(request, atomic.number);
    return post_message(lane, AmId::kAtomicRequest, message);
}

void emulate(Request& request, Request::Post post) {
    request.post = post;
    request.order = Request::Order::kMessage;
    request.flags |= Request::kNeedsGreeting | Request::kEmulated;
    request.pool->await_answer(request);
}

// The operation that an answer names, if it went to the peer that the answer is from.
Request* find_operation(OneSided& owner, uint64_t id, uint64_t from) {
    Request* request = owner.requests.find(id);
    if (request == nullptr || request->endpoint == nullptr ||
        request->endpoint->remote_uuid() != from)
        return nullptr;
    const Request::Post post = request->post;
    return post == post_emulated_put || post == post_emulated_get || post == post_copy_request ||
                   post == post_emulated_atomic
               ? request
               : nullptr;
}

using Payload = std::span<const std::byte>;

// A handler of answers: `kHandle` gets those to operations that are under way.
template <typename Message, void (*kHandle)(OneSided&, Request&, const Message&, Payload)>
ucs_status_t on_answer(void* arg, void* data, size_t length, uct::ReceiveDescriptor*) {
    OneSided& owner = *static_cast<OneSided*>(arg);
    Message message;
    Payload payload;
    Request* request = nullptr;
    if (read_header(data, length, &message, &payload))
        request = find_operation(owner, message.request, message.from);
    if (request != nullptr) {
        kHandle(owner, *request, message, payload);
    } else {
        ucs::log_warn("answer of {} bytes to an unknown one-sided operation dropped", length);
    }
    return UCS_OK;
}

// The target's devices do not copy: the operation goes by messages, in the place that it has among
// those that fences wait for.
void go_on_by_messages(Request& request) {
    const bool is_put = request.part<RmaOperation>().direction == bulk::Direction::kPut;
    request.post = is_put ? post_emulated_put : post_emulated_get;
    request.flags |= Request::kAwaited;
    ++request.count;  // for posting; the answer's reference is for the next answer
    request.endpoint->start(request);
}

void take_done(OneSided& owner, Request& request, const EmulatedDone& done, Payload rest) {
    if (!rest.empty() || done.status > 0 || done.status <= UCS_ERR_LAST ||
        (done.status == UCS_OK && request.post != post_emulated_put &&
         request.post != post_copy_request)) {
        ucs::log_warn("malformed answer to a one-sided operation dropped");
        return;
    }
    const auto status = static_cast<ucs_status_t>(done.status);
    if (request.post == post_copy_request) {
        owner.direct.request_answered(request.part<RmaOperation>().described, done.from,
                                      status == UCS_ERR_UNSUPPORTED);
        if (status == UCS_ERR_UNSUPPORTED || status == UCS_ERR_NO_RESOURCE)
            return go_on_by_messages(request);
    }
    Endpoint& endpoint = *request.endpoint;
    owner.requests.answered(request, status);
    // As a device would: a wrong key or range ends the endpoint.
    if (status != UCS_OK) endpoint.fail(status);
}

void take_data(OneSided& owner, Request& request, const EmulatedGetReply& reply, Payload payload) {
    RmaOperation& rma = request.part<RmaOperation>();
    if (request.post != post_emulated_get || reply.offset != rma.arrived - rma.offset ||
        payload.size() > rma.length - rma.arrived) {
        ucs::log_warn("data of a get out of place dropped");
        return;
    }
    if (rma.device_copy != nullptr) {
        const ucs_status_t status =
            rma.device_copy->write(rma.arrived, payload.data(), payload.size());
        if (request.status == UCS_OK) request.status = status;
    } else if (!payload.empty()) {
        std::memcpy(rma.buffer + rma.arrived, payload.data(), payload.size());
    }
    rma.arrived += payload.size();
    if (rma.arrived == rma.length) owner.requests.answered(request, UCS_OK);
}

void end_behind_fence(Request& request);

void fenced_flushed(uct::Completion* self) {
    const auto& step = *static_cast<AtomicRequest::Step*>(self);
    Request& request = *step.request;
    // A lane that has gone meanwhile had done all that was posted on it.
    const bool is_done = step.status == UCS_OK || step.status == UCS_ERR_CANCELED;
    if (step.status == UCS_OK) request.endpoint->fence().flushed(step.fence);
    request.complete(is_done ? request.endpoint->status() : step.status);
}

ucs_status_t flush_fenced(Endpoint& endpoint, uct::Completion& completion) {
    try {
        return endpoint.flush_fenced(completion);
    } catch (const std::bad_alloc&) {
        return UCS_ERR_NO_MEMORY;
    }
}

// Ends an operation, of which this is the last reference, when what was posted before its fence has
// ended here too: who learns of this operation's end takes the gets before the fence to be over
// (Open MPI does, of an MPI_Rget), and while their bytes are in a bounce buffer they are not.
void end_behind_fence(Request& request) {
    Endpoint& endpoint = *request.endpoint;
    AtomicRequest::Step& step = request.part<AtomicRequest>().step;
    step.callback = fenced_flushed;
    step.count = 1;
    step.status = UCS_OK;
    step.request = &request;
    step.fence = endpoint.fence().seen();
    const ucs_status_t status =
        endpoint.is_failed() ? endpoint.status() : flush_fenced(endpoint, step);
    if (status != UCS_ERR_NO_RESOURCE)
        return step.complete(status == UCS_INPROGRESS ? UCS_OK : status);
    // What one lane had no room for is tried again, behind the other's flush if there is one.
    if (step.count > 1) {
        step.callback = [](uct::Completion* self) {
            end_behind_fence(*static_cast<AtomicRequest::Step*>(self)->request);
        };
        return step.complete(UCS_OK);
    }
    try_in_progress<end_behind_fence>(request);
}

void take_value(OneSided& owner, Request& request, const EmulatedAtomicReply& reply, Payload rest) {
    if (!rest.empty() || request.post != post_emulated_atomic) {
        ucs::log_warn("malformed answer to an atomic operation dropped");
        return;
    }
    set_atomic_result(request.part<AtomicRequest>(), reply.value);
    if (request.endpoint->fence().before() == 0) return owner.requests.answered(request, UCS_OK);
    ++request.count;  // the flush's
    owner.requests.answered(request, UCS_OK);
    end_behind_fence(request);
}

}  // namespace

void request_copy(Request& request) {
    emulate(request, post_copy_request);
}

void emulate_rma(Request& request) {
    const bool is_put = request.part<RmaOperation>().direction == bulk::Direction::kPut;
    emulate(request, is_put ? post_emulated_put : post_emulated_get);
}

void emulate_atomic(Request& request) {
    emulate(request, post_emulated_atomic);
}

void add_emulation_origin_handlers(OneSided& owner, InterfaceSet& interfaces) {
    interfaces.set_handler(AmId::kRmaAck, on_answer<EmulatedDone, take_done>, &owner);
    interfaces.set_handler(AmId::kGetReply, on_answer<EmulatedGetReply, take_data>, &owner);
    interfaces.set_handler(AmId::kAtomicReply, on_answer<EmulatedAtomicReply, take_value>, &owner);
}

}  // namespace ucp
