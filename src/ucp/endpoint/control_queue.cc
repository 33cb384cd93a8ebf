// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/endpoint/control_queue.h"

#include <cassert>
#include <cstring>
#include <new>

#include "ucp/endpoint/endpoint.h"
#include "ucs/log/log.h"

namespace ucp {

ControlMessage* ControlMessage::make(AmId id, std::span<const std::byte> message, Then then) {
    void* memory = ::operator new(sizeof(ControlMessage) + message.size());
    auto* made = new (memory) ControlMessage();
    made->id = id;
    made->then = then;
    made->length = static_cast<uint32_t>(message.size());
    if (!message.empty()) std::memcpy(made->bytes(), message.data(), message.size());
    return made;
}

void ControlMessage::free(ControlMessage* message) {
    message->~ControlMessage();
    ::operator delete(message);
}

ucs_status_t ControlMessage::post(const Lane& lane, AmId id, std::span<const std::byte> message) {
    const uct::InterfaceAttributes& attributes = lane.attributes;
    uint64_t header;
    const bool is_short = (attributes.capabilities & uct::kAmShort) != 0 &&
                          message.size() >= sizeof(header) &&
                          message.size() - sizeof(header) <= attributes.am.max_short;
    // Over a network every message takes a buffer of its receiver.
    if (!is_short || attributes.device_type != uct::DeviceType::kSharedMemory) {
        const ucs_status_t status = post_bytes(lane.endpoint, id, message);
        // A short one needs none here: a peer is to hear of a failure though none can be
        // registered.
        if (!is_short || status != UCS_ERR_NO_MEMORY) return status;
    }
    std::memcpy(&header, message.data(), sizeof(header));
    const auto rest = message.subspan(sizeof(header));
    return lane.endpoint.am_short(static_cast<uint8_t>(id), header, rest.data(),
                                  static_cast<uint32_t>(rest.size()));
}

ControlQueue::~ControlQueue() {
    assert(messages_.empty());
    wait_.end();
}

void ControlQueue::add(AmId id, std::span<const std::byte> message, ControlMessage::Then then) {
    messages_.push_back(*ControlMessage::make(id, message, then));
}

ucs_status_t ControlQueue::post_first() {
    Endpoint& endpoint = wait_.endpoint;
    if (endpoint.is_failed()) return UCS_ERR_CANCELED;
    if (is_starved_) return UCS_ERR_NO_MEMORY;
    ControlMessage& message = messages_.front();
    ucs_status_t status = UCS_ERR_NO_MEMORY;
    try {
        status = ControlMessage::post(endpoint.scalable_lane(), message.id,
                                      {message.bytes(), message.length});
    } catch (const std::bad_alloc&) {
        ucs::log_debug("no memory yet for what goes to worker {:016x}", endpoint.remote_uuid());
    }
    if (status == UCS_ERR_NO_RESOURCE) return status;
    if (status == UCS_ERR_NO_MEMORY && ++failed_tries_ < kMostTries) {
        is_starved_ = true;
        endpoint.host().events.retry_later();
        return status;
    }
    failed_tries_ = 0;
    const ControlMessage::Then then = message.then;
    messages_.pop_front();
    ControlMessage::free(&message);
    if (status == UCS_OK) {
        endpoint.control_posted(then);
    } else if (status == UCS_ERR_NO_MEMORY) {
        endpoint.out_of_memory();
    } else {
        endpoint.fail(status);
    }
    return UCS_OK;
}

ucs_status_t ControlQueue::post() {
    while (!wait_.endpoint.is_failed() && !messages_.empty()) {
        const ucs_status_t status = post_first();
        if (status == UCS_ERR_NO_RESOURCE || status == UCS_ERR_NO_MEMORY) return status;
    }
    return UCS_OK;
}

void ControlQueue::pump() {
    while (wait_.lane == nullptr && post() == UCS_ERR_NO_RESOURCE) {
        // Messages that were posted may have led to others that found no room either, and wait
        // already.
        if (wait_.lane == nullptr) wait_.begin(*wait_.endpoint.scalable());
    }
}

void ControlQueue::retry() {
    is_starved_ = false;
    pump();
}

bool ControlQueue::wait_to_tell() {
    return wait_.begin(*wait_.endpoint.scalable());
}

void ControlQueue::drop() {
    wait_.end();
    messages_.clear_and_dispose(ControlMessage::free);
}

ucs_status_t ControlQueue::serve(uct::Pending* pending) {
    Wait& wait = *static_cast<Wait*>(pending);
    Endpoint& endpoint = wait.endpoint;
    ControlQueue& queue = wait.queue;
    wait.serving = true;
    ucs_status_t status = UCS_OK;
    if (endpoint.is_untold()) {
        status = endpoint.post_reset();
    } else if (!queue.is_empty()) {
        status = queue.post_first();
    }
    wait.serving = false;
    if (status == UCS_ERR_NO_RESOURCE) return status;
    if (status == UCS_ERR_NO_MEMORY) {
        endpoint.host().events.retry_later();
    } else if (!endpoint.is_failed() && !queue.is_empty()) {
        return UCS_INPROGRESS;
    }
    wait.lane = nullptr;
    return UCS_OK;
}

}  // namespace ucp
