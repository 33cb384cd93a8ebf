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
//   Windowed | Dedicated -stop-> Leaving -marker_posted-> Left -dmark_acknowledged-> Scalable
//
// No state waits for the peer before it has taken `window` messages, twice: as many as a scalable
// lane alone would take of a sender whose peer makes no progress.
class TxDirection {
  public:
    enum class State : std::uint8_t {
        kScalable,
        kMarking,    // MARK not yet on the scalable lane: messages wait
        kWindowed,   // dedicated lane, at most `window` messages until MARK_ACK
        kDedicated,  // dedicated lane, no limit of ours
        kLeaving,    // DMARK not yet on the dedicated lane; messages as in kLeft
        kLeft,       // scalable lane, at most `window` ordered messages until DMARK_ACK
    };

    State state() const { return state_; }

    // The lane of the next active message, once may_post() is true.
    LaneKind lane() const {
        return state_ == State::kWindowed || state_ == State::kDedicated ? LaneKind::kDedicated
                                                                         : LaneKind::kScalable;
    }
    // Messages on the scalable lane say which round's DMARK they come after.
    bool is_ordered() const { return state_ == State::kLeaving || state_ == State::kLeft; }

    bool may_post() const {
        return state_ == State::kScalable || state_ == State::kDedicated ||
               (state_ != State::kMarking && room_ > 0);
    }

    // An active message was posted on lane().
    void posted() {
        if (state_ == State::kWindowed || is_ordered()) --room_;
    }

    // Each returns false, and changes nothing, in a state that has no such transition.
    bool begin(std::uint32_t window);
    bool marker_posted();
    bool mark_acknowledged();
    bool stop();
    bool dmark_acknowledged();

  private:
    State state_ = State::kScalable;
    std::uint32_t window_ = 0;
    std::uint32_t room_ = 0;
};

// From which lane one direction delivers active messages. Messages of the dedicated lane that come
// before MARK, and ordered ones of the scalable lane that come before DMARK, are held, in order, by
// the endpoint; DMARK is one of the dedicated lane's messages.
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
