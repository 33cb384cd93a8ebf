// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/lanes/link.h"

#include "ucs/type/names.h"

namespace ucp::lanes {

const char* name(LinkState state) {
    static constexpr const char* kNames[] = {
        "idle",  "requested", "withdrawing", "committed", "creating", "connecting",
        "ready", "switching", "established", "demoting",  "releasing"};
    return ucs::name_in<LinkState::kReleasing>(kNames, state);
}

const char* name(Reason reason) {
    static constexpr const char* kNames[] = {"never negotiated",
                                             "hot",
                                             "the peer asked",
                                             "outranked",
                                             "the peer was busy",
                                             "the peer refused",
                                             "cold",
                                             "the peer gave it back",
                                             "as told",
                                             "closing",
                                             "no lane could be made",
                                             "the peer did not answer",
                                             "the lane failed",
                                             "the peer died",
                                             "in progress",
                                             "the lane was full"};
    return ucs::name_in<Reason::kFull>(kNames, reason);
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
            return lane == Lane::kCreating || lane_is(Lane::kKeeping, Lane::kDestroying);
    }
    return false;
}

}  // namespace ucp::lanes
