// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/lanes/switch.h"

#include "ucs/type/names.h"

namespace ucp::lanes {

bool TxDirection::begin(std::uint32_t window) {
    if (state_ != State::kScalable) return false;
    state_ = State::kMarking;
    window_ = room_ = window;
    return true;
}

bool TxDirection::marker_posted() {
    if (state_ == State::kMarking) {
        state_ = State::kWindowed;
    } else if (state_ == State::kLeaving) {
        state_ = State::kLeft;
    } else {
        return false;
    }
    return true;
}

bool TxDirection::mark_acknowledged() {
    // A demotion may have overtaken the acknowledgement: the window matters no more.
    if (state_ == State::kLeaving || state_ == State::kLeft) return true;
    if (state_ != State::kWindowed) return false;
    state_ = State::kDedicated;
    return true;
}

bool TxDirection::stop() {
    if (state_ != State::kWindowed && state_ != State::kDedicated) return false;
    state_ = State::kLeaving;
    room_ = window_;
    return true;
}

bool TxDirection::dmark_acknowledged() {
    if (state_ != State::kLeft) return false;
    state_ = State::kScalable;
    return true;
}

bool RxDirection::mark() {
    if (lane_ != LaneKind::kScalable) return false;
    lane_ = LaneKind::kDedicated;
    return true;
}

bool RxDirection::dmark() {
    if (lane_ != LaneKind::kDedicated) return false;
    lane_ = LaneKind::kScalable;
    return true;
}

const char* name(TxDirection::State state) {
    static constexpr const char* kNames[] = {"scalable",  "marking", "windowed",
                                             "dedicated", "leaving", "left"};
    return ucs::name_in<TxDirection::State::kLeft>(kNames, state);
}

}  // namespace ucp::lanes
