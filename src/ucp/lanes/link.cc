// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/lanes/link.h"

#include <iterator>

namespace ucp::lanes {

const char* name(LinkState state) {
    static constexpr const char* kNames[] = {
        "idle",  "requested", "withdrawing", "committed", "creating", "connecting",
        "ready", "switching", "established", "demoting",  "releasing"};
    static_assert(std::size(kNames) == kLinkStates);
    const auto index = static_cast<std::size_t>(state);
    return index < kLinkStates ? kNames[index] : "unknown";
}

const char* name(Reason reason) {
    switch (reason) {
        case Reason::kNone:
            return "never negotiated";
        case Reason::kHot:
            return "hot";
        case Reason::kAsked:
            return "the peer asked";
        case Reason::kOutranked:
            return "outranked";
        case Reason::kBusy:
            return "the peer was busy";
        case Reason::kRefused:
            return "the peer refused";
        case Reason::kCold:
            return "cold";
        case Reason::kPeer:
            return "the peer gave it back";
        case Reason::kPolicy:
            return "as told";
        case Reason::kClosing:
            return "closing";
        case Reason::kNoLane:
            return "no lane could be made";
        case Reason::kNoAnswer:
            return "the peer did not answer";
        case Reason::kFailed:
            return "the lane failed";
        case Reason::kDied:
            return "the peer died";
        case Reason::kProgress:
            return "in progress";
        case Reason::kFull:
            return "the lane was full";
    }
    return "unknown";
}

bool Round::fits(LinkState state) const {
    const auto lane_is = [this](Lane least, Lane most) { return lane >= least && lane <= most; };
    const auto peer_is = [this](PeerStep least, PeerStep most) {
        return peer >= least && peer <= most;
    };
    const TxDirection::State tx = direction.tx.state();
    const bool is_up = lane == Lane::kConnected;
    const bool has_moved = tx != TxDirection::State::kScalable;
    const bool is_leaving = tx == TxDirection::State::kLeaving || tx == TxDirection::State::kLeft;
    const bool is_early = !has_moved && acknowledged == Acknowledged::kNone && !flushed;
    switch (state) {
        case LinkState::kIdle:
        case LinkState::kRequested:
        case LinkState::kWithdrawing:
            return is_early && lane == Lane::kNone && peer == PeerStep::kNone;
        case LinkState::kCommitted:
            return is_early && lane == Lane::kNone && peer <= PeerStep::kLane;
        case LinkState::kCreating:
            return is_early && lane == Lane::kCreating && peer <= PeerStep::kLane;
        case LinkState::kConnecting:
            return is_early && lane_is(Lane::kCreated, Lane::kConnecting) &&
                   (lane == Lane::kConnecting ? peer_is(PeerStep::kLane, PeerStep::kReady)
                                              : peer == PeerStep::kNone);
        case LinkState::kReady:
            return is_early && is_up && peer == PeerStep::kLane;
        case LinkState::kSwitching:
            // The peer may have left again while this end's marker waits for room.
            if (tx == TxDirection::State::kMarking && peer == PeerStep::kDmark) {
                return is_up && acknowledged == Acknowledged::kNone && !flushed;
            }
            return is_up && has_moved && !is_leaving && !flushed &&
                   (acknowledged == Acknowledged::kNone
                        ? peer_is(PeerStep::kReady, PeerStep::kMark)
                        : acknowledged == Acknowledged::kMark && peer == PeerStep::kReady);
        case LinkState::kEstablished:
            return is_up && tx == TxDirection::State::kDedicated && peer == PeerStep::kMark &&
                   acknowledged == Acknowledged::kMark && !flushed;
        case LinkState::kDemoting:
            return is_up && peer >= PeerStep::kReady &&
                   (acknowledged == Acknowledged::kDmark ? !has_moved : is_leaving) &&
                   !may_release();
        case LinkState::kReleasing:
            return lane == Lane::kCreating || lane == Lane::kDestroying;
    }
    return false;
}

}  // namespace ucp::lanes
