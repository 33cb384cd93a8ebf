// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/endpoint/backlog.h"

#include <cassert>
#include <cstring>
#include <new>

#include <fmt/format.h>

#include "ucp/endpoint/endpoint.h"
#include "ucp/trace/probe.h"
#include "ucp/trace/trace.h"

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

Backlog::~Backlog() {
    assert(requests.empty() && controls.empty());
    request_wait.end();
    control_wait.end();
}

void trace_stall(const Endpoint& endpoint, bool begins) {
    if (begins) {
        SWIFTLANE_PROBE(stall_begin, &endpoint, endpoint.remote_uuid());
    } else {
        SWIFTLANE_PROBE(stall_end, &endpoint);
    }
    Trace* const trace = Trace::active();
    if (trace == nullptr) return;
    if (!begins) {
        trace->end("stall", "stall", endpoint.local_uuid(), &endpoint);
        return;
    }
    trace->begin("stall", "stall", endpoint.local_uuid(), &endpoint,
                 {{"peer", fmt::format("{:016x}", endpoint.remote_uuid())}});
}

}  // namespace ucp
