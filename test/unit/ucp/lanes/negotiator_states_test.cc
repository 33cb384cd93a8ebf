// SPDX-License-Identifier: BSD-3-Clause

// What each message and each event does in each state of a link.

#include "unit/ucp/lanes/negotiator_fixture.h"

namespace ucp::lanes {
namespace {

class LanesNegotiatorStates : public NegotiatorFixture {
  protected:
    // act(state), each time with a link that was newly brought to that state.
    template <typename Act>
    void in_every_state(Act act) {
        for (std::size_t number = 0; number < kLinkStates; ++number) {
            const auto from = static_cast<LinkState>(number);
            SCOPED_TRACE(name(from));
            start(worker_);
            ASSERT_NO_FATAL_FAILURE(bring_to(from));
            act(from);
        }
    }
};

struct Row {
    LinkState from;
    Type type;
    ucs_status_t status;
    LinkState to;
    const char* actions;
};

// Rows that are not here: the message is stale, or carries nothing that matters; nothing happens.
constexpr ucs_status_t kBad = UCS_ERR_INVALID_PARAM;
const Row kRows[] = {
    {LinkState::kIdle, Type::kRequest, UCS_OK, LinkState::kCreating, "2:ACCEPT 2:create"},
    {LinkState::kRequested, Type::kAccept, UCS_OK, LinkState::kCreating, "2:create"},
    {LinkState::kRequested, Type::kDeny, UCS_OK, LinkState::kIdle, ""},
    {LinkState::kWithdrawing, Type::kAccept, UCS_OK, LinkState::kIdle, ""},
    {LinkState::kWithdrawing, Type::kDeny, UCS_OK, LinkState::kIdle, ""},
    {LinkState::kCommitted, Type::kWithdraw, UCS_OK, LinkState::kIdle, ""},
    {LinkState::kCreating, Type::kWithdraw, UCS_OK, LinkState::kReleasing, ""},
    {LinkState::kConnecting, Type::kLane, UCS_OK, LinkState::kConnecting, "2:connect"},
    {LinkState::kConnecting, Type::kWithdraw, UCS_OK, LinkState::kReleasing, "2:destroy"},
    {LinkState::kReady, Type::kReady, UCS_OK, LinkState::kSwitching, "2:switch"},
    {LinkState::kReady, Type::kWithdraw, UCS_OK, LinkState::kReleasing, "2:destroy"},
    {LinkState::kSwitching, Type::kMark, UCS_OK, LinkState::kSwitching, "2:MARK_ACK 2:gate"},
    {LinkState::kSwitching, Type::kMarkAck, UCS_OK, LinkState::kSwitching, "2:window"},
    {LinkState::kSwitching, Type::kWithdraw, kBad, LinkState::kSwitching, ""},
    {LinkState::kEstablished, Type::kDmark, UCS_OK, LinkState::kDemoting,
     "2:stop 2:flush 2:early 2:DMARK_ACK"},
    {LinkState::kEstablished, Type::kWithdraw, kBad, LinkState::kEstablished, ""},
    {LinkState::kDemoting, Type::kDmark, UCS_OK, LinkState::kDemoting, "2:early 2:DMARK_ACK"},
    {LinkState::kDemoting, Type::kDmarkAck, UCS_OK, LinkState::kDemoting, "2:resume"},
    {LinkState::kReleasing, Type::kRequest, UCS_OK, LinkState::kReleasing, ""},  // deferred
    // The peer has lost the round.
    {LinkState::kRequested, Type::kGone, UCS_OK, LinkState::kIdle, ""},
    {LinkState::kWithdrawing, Type::kGone, UCS_OK, LinkState::kIdle, ""},
    {LinkState::kCommitted, Type::kGone, UCS_OK, LinkState::kIdle, ""},
    {LinkState::kCreating, Type::kGone, UCS_OK, LinkState::kReleasing, ""},
    {LinkState::kConnecting, Type::kGone, UCS_OK, LinkState::kReleasing, "2:destroy"},
    {LinkState::kReady, Type::kGone, UCS_OK, LinkState::kReleasing, "2:destroy"},
    {LinkState::kSwitching, Type::kGone, UCS_OK, LinkState::kReleasing, "2:fail 2:destroy"},
    {LinkState::kEstablished, Type::kGone, UCS_OK, LinkState::kReleasing, "2:fail 2:destroy"},
    {LinkState::kDemoting, Type::kGone, UCS_OK, LinkState::kReleasing, "2:fail 2:destroy"},
    // A request in a round: its sender has lost that, and is found out when it is asked.
    {LinkState::kCommitted, Type::kRequest, UCS_OK, LinkState::kCommitted, "2:DENY"},
    {LinkState::kCreating, Type::kRequest, UCS_OK, LinkState::kCreating, "2:DENY"},
    {LinkState::kConnecting, Type::kRequest, UCS_OK, LinkState::kConnecting, "2:DENY"},
    {LinkState::kReady, Type::kRequest, UCS_OK, LinkState::kReady, "2:DENY"},
    {LinkState::kSwitching, Type::kRequest, UCS_OK, LinkState::kSwitching, "2:DENY"},
    {LinkState::kEstablished, Type::kRequest, UCS_OK, LinkState::kEstablished, "2:DENY"},
    {LinkState::kDemoting, Type::kRequest, UCS_OK, LinkState::kDemoting, "2:DENY"},
};

// In these states a message of the current round that has no row breaks the protocol.
bool strict(LinkState state, Type type) {
    const bool of_a_round = type >= Type::kLane && type <= Type::kFlushed;
    const bool early_lane = type == Type::kLane && state <= LinkState::kConnecting;
    return of_a_round && !early_lane && state >= LinkState::kCommitted &&
           state <= LinkState::kDemoting;
}

TEST_F(LanesNegotiatorStates, EveryMessageInEveryState) {
    for (auto t = static_cast<int>(Type::kScore); t <= static_cast<int>(kLastMessageType); ++t) {
        const auto type = static_cast<Type>(t);
        SCOPED_TRACE(name(type));
        in_every_state([&](LinkState from) {
            Row expected{from, type, strict(from, type) ? kBad : UCS_OK, from, ""};
            if (type == Type::kPing) expected.actions = in_round(from) ? "2:PONG" : "2:GONE";
            for (const Row& row : kRows) {
                if (row.from == from && row.type == type) expected = row;
            }
            EXPECT_EQ(expected.status, deliver(type));
            EXPECT_EQ(expected.to, state());
            EXPECT_EQ(expected.actions, sink_->take());
            EXPECT_TRUE(negotiator_->consistent());
            EXPECT_EQ(expected.status == kBad ? 1u : 0u, negotiator_->counters().violations);
        });
    }
}

TEST_F(LanesNegotiatorStates, StaleEpochsAreIgnoredInEveryState) {
    for (auto t = static_cast<int>(Type::kAccept); t <= static_cast<int>(kLastMessageType); ++t) {
        const auto type = static_cast<Type>(t);
        SCOPED_TRACE(name(type));
        in_every_state([&](LinkState from) {
            Message stale = message(type);
            stale.epoch += 2;
            EXPECT_EQ(UCS_OK, hear(kPeer, stale));
            EXPECT_EQ(from, state());
            EXPECT_EQ(type == Type::kPing ? "2:GONE" : "", sink_->take());
        });
    }
}

// The steps of a round that a link came by fit its state, and no state far from it.
TEST_F(LanesNegotiatorStates, ARoundFitsItsStateAlone) {
    in_every_state([&](LinkState from) {
        const Round& round = negotiator_->find(kPeer)->round;
        EXPECT_TRUE(round.fits(from));
        for (std::size_t number = 0; number < kLinkStates; ++number) {
            const auto other = static_cast<LinkState>(number);
            // Until a lane is made a round is empty.
            const bool is_empty = from <= LinkState::kCommitted && other <= LinkState::kCommitted;
            // A round may be left at any step.
            const bool is_left = from == LinkState::kCreating && other == LinkState::kReleasing;
            EXPECT_EQ(other == from || is_empty || is_left, round.fits(other)) << name(other);
        }
    });
    Round impossible;
    impossible.lane = Round::Lane::kConnected;
    impossible.peer = Round::PeerStep::kMark;
    impossible.acknowledged = Round::Acknowledged::kMark;
    for (std::size_t number = 0; number < kLinkStates; ++number) {
        EXPECT_FALSE(impossible.fits(static_cast<LinkState>(number)));  // no marker was posted
    }
}

TEST_F(LanesNegotiatorStates, WhoHasLostARoundSaysSoAfterDeathToo) {
    in_every_state([&](LinkState) {
        const Message ping = message(Type::kPing);
        negotiator_->on_peer_died(kPeer);
        sink_->take();
        EXPECT_EQ(UCS_OK, hear(kPeer, ping));
        EXPECT_EQ("2:GONE", sink_->take());
        EXPECT_EQ(ping.epoch, sink_->last.epoch);
        EXPECT_TRUE(negotiator_->consistent());
    });
}

TEST_F(LanesNegotiatorStates, APeerThatLostTheRoundFreesTheSlotForOthers) {
    in_every_state([&](LinkState from) {
        deliver(Type::kGone);
        EXPECT_TRUE(negotiator_->consistent());
        if (from == LinkState::kCreating) negotiator_->on_lane_created(kPeer, UCS_OK, {});
        negotiator_->on_lane_destroyed(kPeer);
        sink_->take();
        if (from == LinkState::kCommitted) return;  // the other one holds the slot
        EXPECT_EQ(0u, negotiator_->held());
        score(kOther, 2000);
        deliver(Type::kAccept, kOther);
        EXPECT_EQ("3:SCORE 3:REQUEST 3:create", sink_->take());
    });
}

TEST_F(LanesNegotiatorStates, APeerThatLostTheRoundLosesNothingOnceAllIsDelivered) {
    start(worker_);
    bring_to(LinkState::kDemoting);
    deliver(Type::kDmark);
    deliver(Type::kDmarkAck);
    negotiator_->on_flushed(kPeer);
    EXPECT_EQ("2:early 2:DMARK_ACK 2:resume 2:FLUSHED", sink_->take());
    deliver(Type::kGone);
    EXPECT_EQ("2:destroy", sink_->take());
    EXPECT_EQ(LinkState::kReleasing, state());
    EXPECT_EQ(0u, negotiator_->counters().failures);
}

TEST_F(LanesNegotiatorStates, ALinkThatClosesHearsClosedWhereThePeerLostTheRound) {
    for (const LinkState from : {LinkState::kRequested, LinkState::kReady}) {
        SCOPED_TRACE(name(from));
        start(worker_);
        bring_to(from);
        negotiator_->on_close(kPeer);
        sink_->take();
        deliver(Type::kGone);
        negotiator_->on_lane_destroyed(kPeer);
        EXPECT_NE(std::string::npos, sink_->take().find("2:closed"));
        EXPECT_EQ(LinkState::kIdle, state());
    }
}

TEST_F(LanesNegotiatorStates, ARequestTwiceInOneRoundBreaksTheProtocol) {
    start(worker_);
    Message request = message(Type::kRequest);
    EXPECT_EQ(UCS_OK, hear(kPeer, request));
    EXPECT_EQ(LinkState::kCreating, state());
    sink_->take();
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, hear(kPeer, request));
    EXPECT_EQ(LinkState::kCreating, state());
    EXPECT_EQ("", sink_->take());
    EXPECT_EQ(1u, negotiator_->counters().violations);
}

TEST_F(LanesNegotiatorStates, DeathInEveryStateFreesTheSlotOnceTheLaneIsGone) {
    in_every_state([&](LinkState from) {
        negotiator_->on_peer_died(kPeer);
        EXPECT_TRUE(negotiator_->consistent());
        if (!holds_slot(from)) {
            EXPECT_EQ(nullptr, negotiator_->find(kPeer));
            return;
        }
        EXPECT_EQ(1u, negotiator_->held());
        if (from == LinkState::kCreating) {
            EXPECT_EQ("", sink_->take());
            negotiator_->on_lane_created(kPeer, UCS_OK, {});
        }
        EXPECT_EQ(from == LinkState::kReleasing ? "" : "2:destroy", sink_->take());
        negotiator_->on_lane_destroyed(kPeer);
        EXPECT_EQ(0u, negotiator_->held());
        EXPECT_EQ(nullptr, negotiator_->find(kPeer));
        // The slot serves another link.
        score(kOther, 100);
        deliver(Type::kAccept, kOther);
        EXPECT_EQ("3:SCORE 3:REQUEST 3:create", sink_->take());
    });
}

TEST_F(LanesNegotiatorStates, AFailedLaneIsAnErrorOnlyWhileItMayCarryMessages) {
    in_every_state([&](LinkState from) {
        negotiator_->on_lane_failed(kPeer, UCS_ERR_ENDPOINT_TIMEOUT);
        const bool carries = from >= LinkState::kReady && from <= LinkState::kDemoting;
        const char* expected = carries                          ? "2:fail 2:destroy"
                               : from == LinkState::kConnecting ? "2:WITHDRAW 2:destroy"
                                                                : "";
        EXPECT_EQ(expected, sink_->take());
    });
    // After FLUSHED and the peer's DMARK nothing can be lost any more.
    start(worker_);
    bring_to(LinkState::kDemoting);
    deliver(Type::kDmark);
    deliver(Type::kDmarkAck);
    negotiator_->on_flushed(kPeer);
    sink_->take();
    negotiator_->on_lane_failed(kPeer, UCS_ERR_ENDPOINT_TIMEOUT);
    EXPECT_EQ("", sink_->take());
    deliver(Type::kFlushed);
    EXPECT_EQ("2:destroy", sink_->take());
}

TEST_F(LanesNegotiatorStates, AFullLaneIsLeftOnceItsDirectionHasMoved) {
    in_every_state([&](LinkState from) {
        negotiator_->on_lane_full(kPeer);
        const bool is_left = from == LinkState::kEstablished || from == LinkState::kSwitching;
        EXPECT_EQ(is_left ? "2:stop 2:flush" : "", sink_->take());
        EXPECT_EQ(is_left ? LinkState::kDemoting : from, state());
        EXPECT_TRUE(negotiator_->consistent());
    });
    // The peer has acknowledged nothing yet.
    start(worker_);
    bring_to(LinkState::kSwitching);
    deliver(Type::kMark);
    sink_->take();
    negotiator_->on_lane_full(kPeer);
    EXPECT_EQ("2:stop 2:flush", sink_->take());
    EXPECT_EQ(Reason::kFull, negotiator_->find(kPeer)->reason);
    // It is not asked for again at once.
    EXPECT_GE(negotiator_->find(kPeer)->retry_at, now_ + config_.retry_after);
}

// The peer has sent READY and computes since: its direction is still to move when it wakes.
TEST_F(LanesNegotiatorStates, AFullLaneIsLeftBeforeThePeerHasMovedToIt) {
    start(worker_);
    bring_to(LinkState::kSwitching);
    negotiator_->on_lane_full(kPeer);
    negotiator_->on_marker_posted(kPeer);
    negotiator_->on_flushed(kPeer);
    EXPECT_EQ("2:stop 2:flush", sink_->take());
    EXPECT_EQ(LinkState::kDemoting, state());
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, deliver(Type::kDmark));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, deliver(Type::kFlushed));
    // It wakes: moves here, finds the markers, and goes back.
    EXPECT_EQ(UCS_OK, deliver(Type::kMark));
    EXPECT_EQ("2:MARK_ACK 2:gate", sink_->take());
    EXPECT_EQ(UCS_OK, deliver(Type::kMarkAck));
    EXPECT_EQ(UCS_OK, deliver(Type::kDmark));
    EXPECT_EQ("2:early 2:DMARK_ACK", sink_->take());
    EXPECT_EQ(UCS_OK, deliver(Type::kDmarkAck));
    EXPECT_EQ("2:resume 2:FLUSHED", sink_->take());
    EXPECT_TRUE(negotiator_->consistent());
    EXPECT_EQ(UCS_OK, deliver(Type::kFlushed));
    EXPECT_EQ("2:destroy", sink_->take());
    EXPECT_EQ(LinkState::kReleasing, state());
}

// The same seen from the other end, whose own MARK has no room when DMARK comes.
TEST_F(LanesNegotiatorStates, APeerThatLeavesAtOnceIsFollowedWhenTheMarkerIsPosted) {
    start(worker_);
    bring_to(LinkState::kReady);
    deliver(Type::kReady);
    deliver(Type::kMark);
    sink_->take();
    EXPECT_EQ(UCS_OK, deliver(Type::kDmark));
    EXPECT_EQ("2:early", sink_->take());
    EXPECT_EQ(LinkState::kSwitching, state());
    EXPECT_TRUE(negotiator_->consistent());
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, deliver(Type::kDmark));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, deliver(Type::kFlushed));
    negotiator_->on_lane_full(kPeer);  // nothing was posted there
    EXPECT_EQ(LinkState::kSwitching, state());
    negotiator_->on_marker_posted(kPeer);
    EXPECT_EQ("2:stop 2:flush 2:DMARK_ACK", sink_->take());
    EXPECT_EQ(LinkState::kDemoting, state());
    EXPECT_EQ(Reason::kPeer, negotiator_->find(kPeer)->reason);
    negotiator_->on_marker_posted(kPeer);
    EXPECT_EQ(UCS_OK, deliver(Type::kMarkAck));
    EXPECT_EQ(UCS_OK, deliver(Type::kDmarkAck));
    negotiator_->on_flushed(kPeer);
    EXPECT_EQ("2:resume 2:FLUSHED", sink_->take());
    EXPECT_EQ(UCS_OK, deliver(Type::kFlushed));
    EXPECT_EQ("2:destroy", sink_->take());
    EXPECT_TRUE(negotiator_->consistent());
}

TEST_F(LanesNegotiatorStates, CloseInEveryStateEndsInClosedOnce) {
    in_every_state([&](LinkState from) {
        negotiator_->on_close(kPeer);
        negotiator_->on_close(kPeer);
        std::string all = sink_->take();
        // Play the peer and the adapter until nothing moves.
        for (int i = 0; i < 12; ++i) {
            if (state() == LinkState::kWithdrawing) deliver(Type::kDeny);
            negotiator_->on_lane_created(kPeer, UCS_ERR_NO_RESOURCE, {});
            if (state() == LinkState::kReady) deliver(Type::kReady);
            negotiator_->on_marker_posted(kPeer);
            if (state() == LinkState::kSwitching) {
                deliver(Type::kMarkAck);
                deliver(Type::kMark);
            }
            if (state() == LinkState::kDemoting) {
                deliver(Type::kDmark);
                deliver(Type::kDmarkAck);
                negotiator_->on_flushed(kPeer);
                deliver(Type::kFlushed);
            }
            if (state() == LinkState::kReleasing) negotiator_->on_lane_destroyed(kPeer);
        }
        all += " " + sink_->take();
        EXPECT_EQ(LinkState::kIdle, state());
        const auto first = all.find("2:closed");
        ASSERT_NE(std::string::npos, first) << all;
        EXPECT_EQ(std::string::npos, all.find("2:closed", first + 1)) << all;
        deliver(Type::kRequest);
        EXPECT_EQ(DenyReason::kRefused, sink_->last.deny);
    });
}

TEST_F(LanesNegotiatorStates, TimersPingEverMoreSeldomAndFreeNothing) {
    config_.max_parked = 0;
    in_every_state([&](LinkState from) {
        const bool is_up = from == LinkState::kEstablished;
        if ((!waits_for_peer(from) && !is_up) || from == LinkState::kRequested) return;
        negotiator_->set_policy(kPeer, Policy::kDedicated);  // it stays warm
        for (int i = 0; i < 5; ++i) {
            deliver(Type::kScore);  // it is heard of: no PING asks for that alone
            sink_->take();
            const Time wait = (is_up ? config_.stale_after : config_.wait_timeout) << i;
            advance(wait - 1);
            EXPECT_EQ(std::string::npos, sink_->take().find("2:PING"));
            advance(1);
            EXPECT_NE(std::string::npos, sink_->take().find("2:PING"));
            EXPECT_EQ(from, state());
        }
        deliver(Type::kPong);
        advance(is_up ? config_.stale_after : config_.wait_timeout);
    });
}

}  // namespace
}  // namespace ucp::lanes
