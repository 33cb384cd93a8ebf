// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/endpoint/backlog.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <new>

#include "ucp/endpoint/endpoint.h"
#include "ucp/worker/worker.h"

namespace ucp {

ControlMessage* ControlMessage::make(AmId id, std::span<const std::byte> message, Then then) {
    void* memory = ::operator new(sizeof(ControlMessage) + message.size());
    auto* made = new (memory) ControlMessage();
    made->id = id;
    made->then = then;
    made->length = static_cast<uint32_t>(message.size());
    std::ranges::copy(message, made->bytes());
    return made;
}

void ControlMessage::free(ControlMessage* message) {
    message->~ControlMessage();
    ::operator delete(message);
}

ucs_status_t ControlMessage::post(const Lane& lane, AmId id, std::span<const std::byte> message) {
    const uct::InterfaceAttributes& attributes = lane.attributes;
    uint64_t header;
    // Over a network every message takes a buffer of its receiver.
    if (attributes.device_type == uct::DeviceType::kSharedMemory &&
        (attributes.capabilities & uct::kAmShort) != 0 && message.size() >= sizeof(header) &&
        message.size() - sizeof(header) <= attributes.am.max_short) {
        std::memcpy(&header, message.data(), sizeof(header));
        const auto rest = message.subspan(sizeof(header));
        return lane.endpoint.am_short(static_cast<uint8_t>(id), header, rest.data(),
                                      static_cast<uint32_t>(rest.size()));
    }
    const auto pack = [](void* destination, void* arg) {
        const auto bytes = *static_cast<std::span<const std::byte>*>(arg);
        std::ranges::copy(bytes, static_cast<std::byte*>(destination));
        return bytes.size();
    };
    const ssize_t sent = lane.endpoint.am_bcopy(static_cast<uint8_t>(id), pack, &message);
    return sent < 0 ? static_cast<ucs_status_t>(sent) : UCS_OK;
}

Backlog::Backlog(Endpoint& endpoint)
    : request_wait(endpoint, serve_requests), control_wait(endpoint, serve_controls) {}

Backlog::~Backlog() {
    assert(requests.empty() && controls.empty());
    request_wait.end();
    control_wait.end();
}

// Inside a transport's call a wait can neither leave its queue nor join another: `serving` makes
// pump() keep off, and what has to go on elsewhere is left to the worker's progress.
ucs_status_t Backlog::serve_requests(uct::Pending* pending) {
    auto& wait = *static_cast<LaneWait*>(pending);
    Endpoint& endpoint = wait.endpoint;
    wait.serving = true;
    // Control messages go first, and what is tried here may need one of them.
    if (wait.lane == endpoint.scalable() && endpoint.post_controls() == UCS_ERR_NO_RESOURCE) {
        wait.serving = false;
        return UCS_ERR_NO_RESOURCE;
    }
    const auto step = endpoint.next_step();
    if (step && &step->lane.endpoint == wait.lane) {
        const ucs_status_t status = endpoint.take(*step);
        if (status == UCS_ERR_NO_RESOURCE) {
            wait.serving = false;
            return status;
        }
    }
    wait.serving = false;
    const auto next = endpoint.next_step();
    if (next && &next->lane.endpoint == wait.lane) return UCS_INPROGRESS;
    wait.lane = nullptr;
    if (next) endpoint.worker().pump_later(endpoint);
    return UCS_OK;
}

ucs_status_t Backlog::serve_controls(uct::Pending* pending) {
    auto& wait = *static_cast<LaneWait*>(pending);
    Endpoint& endpoint = wait.endpoint;
    wait.serving = true;
    ucs_status_t status = UCS_OK;
    if (!endpoint.backlog().controls.empty()) status = endpoint.post_first_control();
    wait.serving = false;
    if (status == UCS_ERR_NO_RESOURCE) return status;
    if (!endpoint.backlog().controls.empty()) return UCS_INPROGRESS;
    wait.lane = nullptr;
    return UCS_OK;
}

}  // namespace ucp
