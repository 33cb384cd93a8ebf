// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace ucp::lanes {

enum class LaneKind : std::uint8_t { kScalable, kDedicated };

// Where one direction of a link sends its active messages. The negotiator moves it; the endpoint
// asks it before each message while a switch is under way, and tells it what it posted. One-sided
// operations do not ask: they go to the dedicated lane from begin() to stop().
//
//   Scalable -begin-> Marking -marker_posted-> Windowed -mark_acknowledged-> Dedicated
//   Windowed | Dedicated -stop-> Unmarking -marker_posted-> Stopped -dmark_acknowledged-> Scalable
class TxDirection {
  public:
    enum class State : std::uint8_t {
        kScalable,
        kMarking,    // MARK not yet on the scalable lane: messages wait
        kWindowed,   // dedicated lane, at most `window` messages until MARK_ACK
        kDedicated,  // dedicated lane, no limit of ours
        kUnmarking,  // DMARK not yet on the dedicated lane: messages wait
        kStopped,    // DMARK posted: messages wait for DMARK_ACK
    };

    State state() const { return state_; }

    // The lane of the next active message, once may_post() is true.
    LaneKind lane() const {
        return state_ == State::kScalable || state_ == State::kMarking ? LaneKind::kScalable
                                                                       : LaneKind::kDedicated;
    }

    bool may_post() const {
        return state_ == State::kScalable || state_ == State::kDedicated ||
               (state_ == State::kWindowed && room_ > 0);
    }

    // An active message was posted on lane().
    void posted() {
        if (state_ == State::kWindowed) --room_;
    }

    // Each returns false, and changes nothing, in a state that has no such transition.
    bool begin(std::uint32_t window);
    bool marker_posted();
    bool mark_acknowledged();
    bool stop();
    bool dmark_acknowledged();

  private:
    State state_ = State::kScalable;
    std::uint32_t room_ = 0;
};

// From which lane one direction delivers active messages. Messages of the dedicated lane that come
// before MARK are held, in order, by the endpoint; DMARK is one of that lane's messages.
class RxDirection {
  public:
    LaneKind lane() const { return lane_; }
    bool delivers(LaneKind from) const { return from == lane_; }

    bool mark();
    bool dmark();

  private:
    LaneKind lane_ = LaneKind::kScalable;
};

struct Switch {
    TxDirection tx;
    RxDirection rx;
};

const char* name(TxDirection::State state);

}  // namespace ucp::lanes
