// SPDX-License-Identifier: BSD-3-Clause
// What the negotiator wants done, on transport endpoints: lanes::Sink of the driver.
#include <algorithm>
#include <cassert>
#include <cstring>

#include <fmt/format.h>

#include "ucp/base/handles.h"
#include "ucp/lanes/driver/lane_driver.h"
#include "ucp/trace/probe.h"
#include "ucp/trace/trace.h"
#include "ucs/log/log.h"

namespace ucp {
namespace {

// A dedicated lane's address as it travels in LANE: what it is, where, and its endpoint.
#pragma pack(push, 1)
struct LaneAddress {
    uint32_t kind;
    uint8_t domain;
    uint8_t device_length;
};
#pragma pack(pop)

}  // namespace

lanes::PeerId LaneDriver::identify(lanes::Peer peer) {
    return {endpoint(peer).remote_uuid(), 0};
}

namespace {

// Header and message, ready to be sent.
struct Encoded {
    Encoded(uint64_t sender, const lanes::Message& message) {
        const LaneHeader header{sender};
        std::memcpy(bytes, &header, sizeof(header));
        const size_t written =
            lanes::encode(message, {bytes + sizeof(header), lanes::kMaxMessageSize});
        assert(written != 0);
        size = sizeof(header) + written;
    }
    std::span<const std::byte> span() const {
        return {reinterpret_cast<const std::byte*>(bytes), size};
    }

    uint8_t bytes[sizeof(LaneHeader) + lanes::kMaxMessageSize];
    size_t size;
};

}  // namespace

void LaneDriver::send(lanes::Peer peer, const lanes::Message& message) {
    Endpoint& owner = endpoint(peer);
    // A peer that does not answer may have lost its endpoint to this worker: it is greeted again.
    const lanes::Link* link =
        message.type == lanes::MessageType::kPing ? negotiator_.find(peer) : nullptr;
    const bool is_unanswered = link != nullptr && link->is_unanswered();
    owner.negotiate(Encoded(options_.uuid, message).span(), is_unanswered);
}

void LaneDriver::create_lane(lanes::Peer peer) {
    Endpoint& owner = endpoint(peer);
    std::unique_ptr<LaneState> state;
    ucs_status_t status = UCS_ERR_UNSUPPORTED;
    try {
        state = std::make_unique<LaneState>(owner, held_messages_);
        if (owner.is_promotable()) {
            state->interface_index = owner.dedicated_index();
            state->share =
                interfaces_.take_queue_pair(state->interface_index, QueuePairBudget::Use::kLane);
            status = UCS_ERR_NO_RESOURCE;
            if (state->share) {
                status = interfaces_[state->interface_index].transport->create_endpoint(
                    {}, &state->dedicated);
            }
        }
    } catch (const std::bad_alloc&) {
        status = UCS_ERR_NO_MEMORY;
    }
    bring_in(peer, std::move(state), status);
}

void LaneDriver::take_lane(lanes::Peer peer) {
    Endpoint& owner = endpoint(peer);
    auto state = std::make_unique<LaneState>(owner, held_messages_);
    ucs_status_t status = UCS_ERR_NO_ELEM;
    const auto kept = kept_.extract(owner.remote_uuid());
    if (!kept.empty()) {
        state->interface_index = kept.mapped().interface_index;
        state->share = std::move(kept.mapped().share);
        state->dedicated = std::move(kept.mapped().dedicated);
        // The endpoint may be a new one, made with other devices, which needs another kind of lane.
        const bool fits =
            owner.is_promotable() && state->interface_index == owner.dedicated_index();
        status = fits ? UCS_OK : UCS_ERR_UNREACHABLE;
    }
    bring_in(peer, std::move(state), status);
}

// Sets up the lane for its owner, and gives its address.
ucs_status_t LaneDriver::prepare(LaneState& state, std::vector<uint8_t>* address) {
    const Endpoint& owner = state.endpoint;
    const WorkerInterface& interface = interfaces_[state.interface_index];
    const auto& attributes = interface.transport->attributes();
    const LaneAddress header{interface.kind, static_cast<uint8_t>(interface.domain),
                             static_cast<uint8_t>(attributes.device_address_length)};
    address->resize(sizeof(header) + attributes.device_address_length +
                    attributes.endpoint_address_length);
    std::memcpy(address->data(), &header, sizeof(header));
    const auto bytes = std::as_writable_bytes(std::span(*address)).subspan(sizeof(header));
    ucs_status_t status =
        interface.transport->get_device_address(bytes.first(attributes.device_address_length));
    if (status == UCS_OK)
        status = state.dedicated->get_address(bytes.subspan(attributes.device_address_length));
    if (status != UCS_OK) return status;
    state.owner = this;
    state.fence.callback = fence_flushed;
    state.flush.callback = lane_flushed;
    state.dedicated->set_peer(owner.remote_uuid());
    state.dedicated->set_receive_gate(&state);
    state.dedicated->deliver_immediates(static_cast<uint8_t>(AmId::kNotify), owner.remote_uuid());
    return UCS_OK;
}

// Gives the lane to the endpoint, and its address to the peer. @param status  of making it
void LaneDriver::bring_in(lanes::Peer peer, std::unique_ptr<LaneState> state, ucs_status_t status) {
    Endpoint& owner = endpoint(peer);
    assert(owner.lane_state() == nullptr);
    std::vector<uint8_t> address;
    try {
        make_room_for_retries();
        if (status == UCS_OK) status = prepare(*state, &address);
    } catch (const std::bad_alloc&) {
        status = UCS_ERR_NO_MEMORY;
    }
    if (status == UCS_OK) {
        state->direction = negotiator_.switch_of(peer);
        owner.attach_lane(std::move(state));
    } else {
        ucs::log_debug("no dedicated lane to worker {:016x}: {}", owner.remote_uuid(),
                       ucs_status_string(status));
    }
    peak_held_ = std::max(peak_held_, negotiator_.held());
    negotiator_.on_lane_created(peer, status, address);
}

void LaneDriver::connect_lane(lanes::Peer peer, std::span<const uint8_t> address) {
    Endpoint& owner = endpoint(peer);
    LaneState& state = *owner.lane_state();
    WorkerInterface& interface = interfaces_[state.interface_index];
    const auto& attributes = interface.transport->attributes();
    ucs_status_t status = UCS_ERR_INVALID_ADDR;
    LaneAddress header;
    if (address.size() > sizeof(header)) {
        std::memcpy(&header, address.data(), sizeof(header));
        const auto bytes = std::as_bytes(address).subspan(sizeof(header));
        if (header.kind != interface.kind || header.domain != owner.domains().remote) {
            status = UCS_ERR_UNREACHABLE;
        } else if (bytes.size() == header.device_length + attributes.endpoint_address_length) {
            const uct::RemoteAddress remote{
                bytes.first(header.device_length), {}, bytes.subspan(header.device_length)};
            // A kept lane is connected already, if it is the one that the peer has kept.
            try {
                status = state.dedicated->is_connected(remote) ? UCS_OK
                                                               : state.dedicated->connect(remote);
            } catch (const std::bad_alloc&) {
                status = UCS_ERR_NO_MEMORY;
            }
        }
    }
    state.connected = status == UCS_OK;
    if (status != UCS_OK) {
        ucs::log_debug("the dedicated lane to worker {:016x} cannot be connected: {}",
                       owner.remote_uuid(), ucs_status_string(status));
    }
    negotiator_.on_lane_ready(peer, status);
}

// Room for one more lane in the graveyard, and for the states of all of them behind it.
void LaneDriver::make_graves() {
    graveyard_.reserve(graveyard_.size() + 1);
    abandoned_.reserve(abandoned_.size() + graveyard_.size() + 1);
}

void LaneDriver::destroy_lane(lanes::Peer peer) {
    Endpoint& owner = endpoint(peer);
    make_graves();
    std::unique_ptr<LaneState> state = owner.detach_lane();
    if (state == nullptr) {  // it could not be made
        negotiator_.on_lane_destroyed(peer);
        return;
    }
    state->direction = nullptr;
    state->connected = false;
    graveyard_.push_back({peer, std::move(state)});
    has_deferred_ = true;
    owner.lanes_changed();
}

void LaneDriver::keep_lane(lanes::Peer peer) {
    Endpoint& owner = endpoint(peer);
    make_graves();
    KeptLane& kept = kept_[owner.remote_uuid()];
    std::unique_ptr<LaneState> state = owner.detach_lane();
    state->direction = nullptr;
    state->connected = false;
    kept = {std::move(state->share), std::move(state->dedicated), state->interface_index};
    // The state is freed later: this may be a callback of its own flush, and a flush of the
    // program's may still call back.
    abandoned_.push_back(std::move(state));
    has_deferred_ = true;
    owner.lanes_changed();
    negotiator_.on_lane_destroyed(peer);
}

void LaneDriver::drop_kept_lane(const lanes::PeerId& peer) {
    kept_.erase(peer.worker);
}

// Would giving up that kept lane make room for a lane to `peer`? Yes if the budget says that its
// queue pair is wanted, or if both use one adapter.
bool LaneDriver::makes_room(const lanes::PeerId& kept, lanes::Peer peer) {
    const auto found = kept_.find(kept.worker);
    if (found == kept_.end()) return false;
    const KeptLane& lane = found->second;
    return lane.share.is_wanted() ||
           interfaces_.share_an_adapter(lane.interface_index, endpoint(peer).dedicated_index());
}

void LaneDriver::start_tx_switch(lanes::Peer peer, const lanes::Message& mark) {
    Endpoint& owner = endpoint(peer);
    owner.lanes_changed();
    owner.send_marker(Encoded(options_.uuid, mark).span());
}

void LaneDriver::open_tx_window(lanes::Peer peer) {
    endpoint(peer).lanes_changed();
}

void LaneDriver::open_rx_gate(lanes::Peer peer) {
    Endpoint& owner = endpoint(peer);
    LaneState* state = owner.lane_state();
    state->dedicated->set_receive_gate(nullptr);
    deliver(owner, state->held);
}

void LaneDriver::open_early(lanes::Peer peer) {
    Endpoint& owner = endpoint(peer);
    deliver(owner, owner.lane_state()->early);
}

void LaneDriver::deliver(Endpoint& owner, std::vector<LaneState::Held>& messages) {
    if (owner.lane_state()->has_lost) {
        ucs::log_error("no memory for messages of worker {:016x} that came before their turn",
                       owner.remote_uuid());
        return owner.reset(UCS_ERR_NO_MEMORY);
    }
    // Handlers may end the lane, so the messages leave it first.
    std::vector<LaneState::Held> held;
    held.swap(messages);
    const uint64_t sender = owner.remote_uuid();
    for (LaneState::Held& message : held) {
        interfaces_.deliver(sender, message.id, message.data.data(), message.data.size());
    }
}

void LaneDriver::stop_tx_and_mark(lanes::Peer peer, const lanes::Message& dmark) {
    Endpoint& owner = endpoint(peer);
    const Encoded encoded(options_.uuid, dmark);
    const auto bytes = encoded.span();
    LaneState& state = *owner.lane_state();
    auto ordered = std::make_unique<OrderedLane>(owner.scalable_lane(), options_.uuid, dmark.epoch);
    auto marker_wait = std::make_unique<LaneState::MarkerWait>(state, serve_marker);
    state.end_marker.assign(bytes.begin(), bytes.end());
    state.ordered = std::move(ordered);
    state.marker_wait = std::move(marker_wait);
    begin_marker(state);
    owner.lanes_changed();
}

// The marker belongs to what is flushed: while it waits for room or memory, so does the flush.
void LaneDriver::flush_lane(lanes::Peer peer) {
    LaneState& state = *endpoint(peer).lane_state();
    if (state.end_marker.empty()) {
        try_flush(state);
    } else {
        state.flush.due = true;
    }
}

// For one lane more than there are.
void LaneDriver::make_room_for_retries() {
    const size_t lanes = negotiator_.held() + negotiator_.parked() + size_t{1};
    for (auto* endpoints : {&to_retry_, &retrying_}) lanes::reserve_for(*endpoints, lanes);
}

void LaneDriver::retry_at(LaneState& state, ucs::Time when) {
    to_retry_.push_back(&state.endpoint);
    next_retry_ = std::min(next_retry_, when);
}

void LaneDriver::retry(LaneState& state) {
    LaneState::MarkerWait* const wait = state.marker_wait.get();
    if (wait != nullptr && wait->next_try != ucs::kNever) {
        // Called for other lanes' sake: this one's time has not come.
        if (clock_.now() < wait->next_try) return retry_at(state, wait->next_try);
        wait->next_try = ucs::kNever;
        begin_marker(state);
    } else if (state.flush.due && state.end_marker.empty()) {
        try_flush(state);
    }
}

void LaneDriver::try_flush(LaneState& state) {
    state.flush.due = false;
    state.flush.count = 1;
    state.flush.status = UCS_OK;
    state.flush.running = true;
    ucs_status_t status = UCS_ERR_NO_MEMORY;
    try {
        status = state.dedicated->flush(&state.flush);
    } catch (const std::bad_alloc&) {
        ucs::log_debug("no memory yet to flush a lane");
    }
    if (status == UCS_INPROGRESS) return;
    state.flush.running = false;
    if (status == UCS_ERR_NO_RESOURCE || status == UCS_ERR_NO_MEMORY) {
        state.flush.due = true;
        const bool has_memory = status == UCS_ERR_NO_RESOURCE;
        if (has_memory) has_deferred_ = true;
        return retry_at(state, has_memory ? ucs::kNever : ucs::deadline(clock_.now(), kPause));
    }
    tick();
    if (status == UCS_OK) {
        lane_drained(state);
    } else {
        negotiator_.on_lane_failed(state.endpoint.serial(), status);
    }
}

void LaneDriver::lane_drained(LaneState& state) {
    state.flush.is_done = true;
    state.endpoint.dedicated_drained();
    negotiator_.on_flushed(state.endpoint.serial());
}

void LaneDriver::lane_flushed(uct::Completion* self) {
    auto& flush = *static_cast<LaneState::Flush*>(self);
    flush.running = false;
    LaneState& state = *flush.state;
    if (state.direction == nullptr) return;
    auto& driver = *static_cast<LaneDriver*>(state.owner);
    driver.tick();
    // Flush again: the transport, or a flush of the program, may have posted something since.
    if (flush.status == UCS_OK) driver.try_flush(state);
    // Errors are handled by the transport's error handler, which is called as well.
}

void LaneDriver::fence_flushed(uct::Completion* self) {
    auto& fence = *static_cast<LaneState::Fence*>(self);
    LaneState& state = *fence.state;
    fence.running = false;
    if (state.direction == nullptr) return;
    state.endpoint.fence_flushed(fence.lane_bit);
}

void LaneDriver::resume_tx(lanes::Peer peer) {
    endpoint(peer).lanes_changed();
}

void LaneDriver::fail_endpoint(lanes::Peer peer, ucs_status_t status) {
    if (Endpoint* owner = endpoint_of(peer))
        status == UCS_ERR_NO_MEMORY ? owner->reset(status) : owner->fail(status);
}

void LaneDriver::closed(lanes::Peer peer) {
    to_forget_.push_back(peer);
    has_deferred_ = true;
}

void LaneDriver::notify(lanes::Peer peer, const lanes::Change& change) {
    Endpoint& owner = endpoint(peer);
    ucs::log_debug("link to worker {:016x}: {} -> {} ({}), score {}", owner.remote_uuid(),
                   lanes::name(change.from), lanes::name(change.to), lanes::name(change.reason),
                   change.score);
    SWIFTLANE_PROBE(lane_change, options_.uuid, owner.remote_uuid(), lanes::name(change.from),
                    lanes::name(change.to), lanes::name(change.reason), change.score);
    if (Trace* trace = Trace::active()) {
        trace->instant("lane", lanes::name(change.to), options_.uuid,
                       {{"peer", fmt::format("{:016x}", owner.remote_uuid())},
                        {"from", lanes::name(change.from)},
                        {"reason", lanes::name(change.reason)},
                        {"score", change.score}});
    }
    if (change.to == lanes::LinkState::kEstablished ||
        change.from == lanes::LinkState::kEstablished) {
        if (on_lane_change_) on_lane_change_(owner, change.to == lanes::LinkState::kEstablished);
    }
    if (callback_ == nullptr) return;
    ucpx_lane_event_t event{};
    event.field_mask = UCPX_LANE_EVENT_FIELD_EP | UCPX_LANE_EVENT_FIELD_PEER_UID |
                       UCPX_LANE_EVENT_FIELD_STATES | UCPX_LANE_EVENT_FIELD_REASON |
                       UCPX_LANE_EVENT_FIELD_SCORE;
    event.ep = owner.is_users() ? wrap(&owner) : nullptr;
    event.peer_uid = owner.remote_uuid();
    event.old_state = static_cast<ucpx_lane_state_t>(change.from);
    event.new_state = static_cast<ucpx_lane_state_t>(change.to);
    event.reason = static_cast<ucpx_lane_reason_t>(change.reason);
    event.score = change.score;
    callback_(callback_argument_, &event);
}

}  // namespace ucp
