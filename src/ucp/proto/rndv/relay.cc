// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/proto/rndv/relay.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <new>

#include "ucs/type/bits.h"

namespace ucp {

Relay::~Relay() {
    for (auto& [sender, inflow] : inflows_) give_back(inflow);
}

// One that is not in use, or one more that can be described, up to as many as a sender gets.
bool Relay::find_window(Inflow& inflow, const TagReceive& receive) {
    if (!inflow.unused.empty()) return true;
    Endpoint* const endpoint = endpoints_.find(receive.sender);
    if (inflow.parts == kWindows || endpoint == nullptr) return false;
    RelayWindow window{
        inflow.device->take_window(receive.buffer.device_bytes().data(), inflow.parts), {}};
    if (window.bytes.empty()) return false;
    if (!direct_.describe(*endpoint, window.bytes, nullptr, &window.described) ||
        window.described.has_handle == 0) {
        inflow.device->put_window(window.bytes, false);
        return false;
    }
    inflow.unused.push_back(window);
    return true;
}

void Relay::give_back(Inflow& inflow) {
    for (const RelayWindow& window : inflow.unused) inflow.device->put_window(window.bytes, false);
    inflow.unused.clear();
}

bool Relay::receive(Request& receive, const ucs::MemoryExport& theirs) {
    TagReceive& part = receive.part<TagReceive>();
    if (!takes_parts(theirs) || part.buffer.found() == nullptr || part.wanted < kLeast)
        return false;
    Inflow& inflow = inflows_[part.sender];
    if (inflow.transits.empty()) {
        if (inflow.is_refused && !std::has_single_bit(++inflow.tries)) return false;
        inflow.device = part.buffer.found()->owner;
        inflow.unused.reserve(kWindows);
        if (!find_window(inflow, part)) return false;
    }
    inflow.transits.emplace_back().receive = &receive;
    part.timing.is_elsewhere = true;
    go_on(inflow);
    return true;
}

// As few parts as the windows' size allows, but one for each window where the message is long
// enough; all alike.
size_t Relay::part_length(size_t message, size_t window) {
    const size_t parts = std::max((message + window - 1) / window,
                                  std::clamp<size_t>(message / kLeastPart, 1, kWindows));
    return std::min(ucs::align_up((message + parts - 1) / parts, kAlignment), window);
}

void Relay::begin_part(Inflow& inflow, Transit& transit) {
    const TagReceive& receive = transit.part();
    Endpoint* const endpoint = endpoints_.find(receive.sender);
    Request* const part = endpoint == nullptr ? nullptr : requests_.allocate();
    if (part == nullptr) {
        transit.status = endpoint == nullptr ? UCS_ERR_CONNECTION_RESET : UCS_ERR_NO_MEMORY;
        return;
    }
    const RelayWindow& window = inflow.unused.back();
    const size_t length =
        std::min(part_length(receive.wanted, window.bytes.size()), receive.wanted - transit.asked);
    part->emplace<RelayPart>(this, &inflow, &transit, window, uint64_t{transit.asked},
                             static_cast<uint32_t>(length), false);
    part->endpoint = endpoint;
    part->callback_kind = Request::CallbackKind::kInternal;
    part->on_finish.internal = part_ended;
    RndvRtr rtr{};
    try {
        rtr.receiver = requests_.name(*part);
    } catch (const std::bad_alloc&) {
        requests_.recycle(*part);
        transit.status = UCS_ERR_NO_MEMORY;
        return;
    }
    rtr.request = receive.sender_request;
    rtr.from = endpoints_.local_uuid();
    rtr.offset = transit.asked;
    rtr.end = transit.asked + length;
    rtr.address = RndvRtr::kPart;
    rtr.export_length = sizeof(window.described);
    std::array<std::byte, sizeof(rtr) + sizeof(window.described)> message;
    std::memcpy(message.data(), &rtr, sizeof(rtr));
    std::memcpy(message.data() + sizeof(rtr), &window.described, sizeof(window.described));
    inflow.unused.pop_back();
    transit.asked += length;
    ++transit.parts;
    ++inflow.parts;
    endpoint->send_control(AmId::kRndvRtr, message);
}

// Begins what parts there are windows for, and ends what has got all of its parts.
void Relay::go_on(Inflow& inflow) {
    for (Transit& transit : inflow.transits) {
        while (transit.goes_on() && find_window(inflow, transit.part()))
            begin_part(inflow, transit);
        // None will come back to it.
        if (inflow.parts == 0 && transit.goes_on()) transit.arrived = transit.asked;
    }
    for (;;) {
        const auto ended = std::ranges::find_if(inflow.transits, [](const Transit& transit) {
            return transit.parts == 0 && !transit.goes_on();
        });
        if (ended == inflow.transits.end()) return;
        const Transit transit = *ended;
        inflow.transits.erase(ended);
        if (inflow.transits.empty()) give_back(inflow);
        // Whoever hears of it may receive the next one.
        owner_.relayed(*transit.receive, std::min(transit.arrived, transit.asked), transit.status);
    }
}

bool Relay::is_part(const Request& request) {
    return request.callback_kind == Request::CallbackKind::kInternal &&
           request.on_finish.internal == part_ended;
}

void Relay::stored(Request& request, ucs_status_t status) {
    RelayPart& part = request.part<RelayPart>();
    const Unpacker& buffer = part.transit->part().buffer;
    part.is_stored = true;
    requests_.unname(request);
    const ucs::DevicePiece piece{&part.window.described, 0,
                                 buffer.device_bytes().data() + part.offset, part.length};
    if (status == UCS_OK && direct_.copy(request, piece, buffer.found(), false)) return;
    request.complete(status == UCS_OK ? UCS_ERR_NO_RESOURCE : status);
}

void Relay::part_ended(Request& request) {
    const RelayPart& part = request.part<RelayPart>();
    part.relay->end_part(request, part);
}

void Relay::end_part(const Request& request, const RelayPart& part) {
    Inflow& inflow = *part.inflow;
    Transit& transit = *part.transit;
    --transit.parts;
    --inflow.parts;
    if (part.is_stored) {
        inflow.unused.push_back(part.window);
    } else {
        inflow.device->put_window(part.window.bytes, true);
    }
    const bool is_refused = request.status == UCS_ERR_NO_RESOURCE && part.is_stored;
    if (request.status == UCS_OK || (is_refused && !inflow.is_refused)) inflow.tries = 0;
    if (request.status == UCS_OK || is_refused) inflow.is_refused = is_refused;
    if (is_refused) {
        transit.arrived = std::min<size_t>(transit.arrived, part.offset);
    } else if (request.status != UCS_OK && transit.status == UCS_OK) {
        transit.status = request.status;
    }
    go_on(inflow);
}

}  // namespace ucp
