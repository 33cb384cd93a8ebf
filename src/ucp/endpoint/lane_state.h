// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "ucp/context/queue_pair_budget.h"
#include "ucp/endpoint/ordered_lane.h"
#include "ucp/lanes/switch.h"
#include "ucs/sys/time.h"
#include "uct/api/interface.h"
#include "uct/api/types.h"

namespace ucp {

class Endpoint;

// What an endpoint has only while it holds a dedicated lane, from its creation to its destruction.
//
// It is also the lane's receive gate: until the peer's MARK is processed, messages of the new lane
// are copied out and kept, at most as many as the window that the peer was granted; and as many of
// those that come on the scalable lane before the peer's DMARK.
struct LaneState final : uct::ReceiveGate {
    struct Held {
        uint8_t id;
        std::vector<std::byte> data;
    };
    struct Fence : uct::Completion {
        LaneState* state = nullptr;
        uint8_t lane_bit = 0;  // the lane that is flushed
        bool running = false;  // one-sided operations wait for that flush
    };
    struct Flush : uct::Completion {
        LaneState* state = nullptr;
        bool due = false;  // wanted; it, or the marker, has found no room or no memory yet
        bool running = false;
        bool is_done = false;  // the lane has done all that it ever will: see drained()
    };

    // DMARK's own place in the lane's queue: messages on the scalable lane do not wait for it.
    struct MarkerWait : uct::Pending {
        MarkerWait(LaneState& lane, Progress serve) : uct::Pending(serve), state(lane) {}
        LaneState& state;
        unsigned failed_tries = 0;         // for lack of memory
        ucs::Time next_try = ucs::kNever;  // kNever: it does not wait for memory
    };

    // @param held_count  counts the messages that are held back
    LaneState(Endpoint& owner, uint64_t& held_count) : endpoint(owner), held_messages(held_count) {
        fence.state = this;
        flush.state = this;
    }

    void hold(uint8_t id, const void* data, size_t length) override {
        keep(held, id, data, length);
    }
    void hold_early(uint8_t id, const void* data, size_t length) { keep(early, id, data, length); }

    bool takes_one_sided() const {
        using State = lanes::TxDirection::State;
        if (direction == nullptr || !connected) return false;
        const State state = direction->tx.state();
        return state == State::kMarking || state == State::kWindowed || state == State::kDedicated;
    }
    void posted() {
        if (direction != nullptr) direction->tx.posted();
    }
    // All of this end is complete and nothing more is posted. Once the peer knows it may destroy
    // its end at any time: a flush must not use the lane from here on.
    bool drained() const { return flush.is_done; }

    Endpoint& endpoint;
    uint64_t& held_messages;
    void* owner = nullptr;         // the driver that made it, for its callbacks
    unsigned interface_index = 0;  // place of the lane's transport in the InterfaceSet
    QueuePairBudget::Share share;
    std::unique_ptr<MarkerWait> marker_wait;  // the dedicated lane may know it, and goes first
    std::unique_ptr<uct::Endpoint> dedicated;
    lanes::Switch* direction = nullptr;  // the negotiator's
    bool connected = false;
    bool is_watched = false;            // messages have found no room: the driver looks after it
    bool had_room = false;              // since the driver looked last
    std::vector<std::byte> end_marker;  // DMARK that waits for room on the lane, or for memory
    Fence fence;
    Flush flush;

    bool has_lost = false;  // there was no memory for one: what is kept must not be handed over
    std::vector<Held> held;
    std::vector<Held> early;  // ordered messages of the scalable lane before DMARK

    // From the end of the use of the dedicated lane until the peer has acknowledged DMARK.
    std::unique_ptr<OrderedLane> ordered;

  private:
    void keep(std::vector<Held>& queue, uint8_t id, const void* data, size_t length) {
        const auto* bytes = static_cast<const std::byte*>(data);
        try {
            queue.push_back({id, {bytes, bytes + length}});
            ++held_messages;
        } catch (const std::bad_alloc&) {
            has_lost = true;
        }
    }
};

}  // namespace ucp
