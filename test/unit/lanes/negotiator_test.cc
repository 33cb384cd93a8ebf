// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/lanes/negotiator.h"

#include <gtest/gtest.h>

#include <memory>

#include "unit/lanes/recorder.h"

namespace ucp::lanes {
namespace {

using lanes_test::Recorder;
using Type = MessageType;

constexpr Peer kPeer = 2;   // worker 20
constexpr Peer kOther = 3;  // worker 30

class LanesNegotiator : public ::testing::Test {
  protected:
    LanesNegotiator() {
        config_.trickle_ratio = 0;
        config_.min_score = 10;
        config_.min_residence = 0;
        config_.request_pings = 1;
    }
    void start(std::uint64_t worker, std::uint32_t cap = 1) {
        own_ = worker;
        config_.cap = cap;
        sink_ = std::make_unique<Recorder>();
        negotiator_ = std::make_unique<Negotiator>(config_, worker, *sink_);
        now_ = 0;
    }

    Message message(Type type, Peer peer = kPeer) {
        Message made;
        made.type = type;
        const Link* link = negotiator_->find(peer);
        made.epoch = link ? link->epoch : 0;
        made.window = 4;
        made.address = {9};
        if (type == Type::kRequest) {
            made.epoch = 0x100 | (peer * 10 > own_);
            made.half = made.estimate = 1000;
        }
        if (type == Type::kScore) made.half = 5;
        return made;
    }
    ucs_status_t deliver(Type type, Peer peer = kPeer) {
        return negotiator_->on_message(peer, message(type, peer));
    }
    void advance(Time by) { negotiator_->advance(now_ += by); }
    void score(Peer peer, Score half) {
        negotiator_->on_score(peer, half);
        advance(0);
    }
    LinkState state(Peer peer = kPeer) const { return negotiator_->find(peer)->state; }

    // Takes `peer` from a denied or fresh link to Established, by an own request.
    void climb(Peer peer, LinkState until) {
        const std::uint8_t address[] = {1};
        const auto reached = [&] { return state(peer) == until; };
        deliver(Type::kScore, peer);
        if (reached()) return;
        score(peer, 100);
        if (reached()) return;
        if (until == LinkState::kWithdrawing) {
            advance(config_.wait_timeout);
            advance(config_.wait_timeout);
            return;
        }
        deliver(Type::kAccept, peer);
        if (reached()) return;
        negotiator_->on_lane_created(peer, UCS_OK, address);
        if (reached()) return;
        deliver(Type::kLane, peer);
        negotiator_->on_lane_ready(peer, UCS_OK);
        if (reached()) return;
        deliver(Type::kReady, peer);
        negotiator_->on_marker_posted(peer);
        if (reached()) return;
        deliver(Type::kMark, peer);
        deliver(Type::kMarkAck, peer);
        if (reached()) return;
        negotiator_->set_policy(peer, Policy::kScalable);
        negotiator_->on_marker_posted(peer);
        if (reached()) return;
        deliver(Type::kDmark, peer);
        deliver(Type::kDmarkAck, peer);
        negotiator_->on_flushed(peer);
        deliver(Type::kFlushed, peer);
    }
    void bring_to(LinkState wanted) {
        if (wanted == LinkState::kCommitted) {
            // Agreed, but the only slot is still on its way down.
            climb(kOther, LinkState::kEstablished);
            score(kPeer, 1000);
            deliver(Type::kAccept);
        } else {
            climb(kPeer, wanted);
        }
        ASSERT_EQ(wanted, state());
        ASSERT_TRUE(negotiator_->consistent());
        sink_->take();
    }

    static constexpr std::uint64_t worker_ = 10;
    std::uint64_t own_ = 0;
    Config config_;
    std::unique_ptr<Recorder> sink_;
    std::unique_ptr<Negotiator> negotiator_;
    Time now_ = 0;
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
     "2:stop 2:flush 2:DMARK_ACK"},
    {LinkState::kEstablished, Type::kWithdraw, kBad, LinkState::kEstablished, ""},
    {LinkState::kDemoting, Type::kDmark, UCS_OK, LinkState::kDemoting, "2:DMARK_ACK"},
    {LinkState::kDemoting, Type::kDmarkAck, UCS_OK, LinkState::kDemoting, "2:resume"},
    {LinkState::kReleasing, Type::kRequest, UCS_OK, LinkState::kReleasing, "2:DENY"},
};

// In these states a message of the current round, or a request, that has no row breaks the
// protocol.
bool strict(LinkState state, Type type) {
    if (type == Type::kRequest) {
        return state >= LinkState::kCommitted && state <= LinkState::kDemoting;
    }
    const bool of_a_round = type >= Type::kLane && type <= Type::kFlushed;
    const bool early_lane = type == Type::kLane && state <= LinkState::kConnecting;
    return of_a_round && !early_lane && state >= LinkState::kCommitted &&
           state <= LinkState::kDemoting;
}

TEST_F(LanesNegotiator, EveryMessageInEveryState) {
    for (std::size_t s = 0; s < kLinkStates; ++s) {
        for (auto t = static_cast<int>(Type::kScore); t <= static_cast<int>(kLastMessageType);
             ++t) {
            const auto from = static_cast<LinkState>(s);
            const auto type = static_cast<Type>(t);
            Row expected{from, type, strict(from, type) ? kBad : UCS_OK, from, ""};
            if (type == Type::kPing) expected.actions = "2:PONG";
            for (const Row& row : kRows) {
                if (row.from == from && row.type == type) expected = row;
            }
            start(worker_);
            bring_to(from);
            EXPECT_EQ(expected.status, deliver(type)) << name(type) << " in " << name(from);
            EXPECT_EQ(expected.to, state()) << name(type) << " in " << name(from);
            EXPECT_EQ(expected.actions, sink_->take()) << name(type) << " in " << name(from);
            EXPECT_TRUE(negotiator_->consistent()) << name(type) << " in " << name(from);
            EXPECT_EQ(expected.status == kBad ? 1u : 0u, negotiator_->counters().violations);
        }
    }
}

TEST_F(LanesNegotiator, StaleEpochsAreIgnoredInEveryState) {
    for (std::size_t s = 0; s < kLinkStates; ++s) {
        for (auto t = static_cast<int>(Type::kAccept); t <= static_cast<int>(Type::kFlushed); ++t) {
            start(worker_);
            const auto from = static_cast<LinkState>(s);
            bring_to(from);
            Message stale = message(static_cast<Type>(t));
            stale.epoch += 2;
            EXPECT_EQ(UCS_OK, negotiator_->on_message(kPeer, stale));
            EXPECT_EQ(from, state()) << name(stale.type);
            EXPECT_EQ("", sink_->take()) << name(stale.type) << " in " << name(from);
        }
    }
}

TEST_F(LanesNegotiator, DeathInEveryStateFreesTheSlotOnceTheLaneIsGone) {
    for (std::size_t s = 0; s < kLinkStates; ++s) {
        const auto from = static_cast<LinkState>(s);
        start(worker_);
        bring_to(from);
        negotiator_->on_peer_died(kPeer);
        EXPECT_TRUE(negotiator_->consistent());
        if (!holds_slot(from)) {
            EXPECT_EQ(nullptr, negotiator_->find(kPeer)) << name(from);
            continue;
        }
        EXPECT_EQ(1u, negotiator_->held()) << name(from);
        if (from == LinkState::kCreating) {
            EXPECT_EQ("", sink_->take());
            negotiator_->on_lane_created(kPeer, UCS_OK, {});
        }
        EXPECT_EQ(from == LinkState::kReleasing ? "" : "2:destroy", sink_->take()) << name(from);
        negotiator_->on_lane_destroyed(kPeer);
        EXPECT_EQ(0u, negotiator_->held()) << name(from);
        EXPECT_EQ(nullptr, negotiator_->find(kPeer)) << name(from);
        // The slot serves another link.
        score(kOther, 100);
        deliver(Type::kAccept, kOther);
        EXPECT_EQ("3:SCORE 3:REQUEST 3:create", sink_->take()) << name(from);
    }
}

TEST_F(LanesNegotiator, AFailedLaneIsAnErrorOnlyWhileItMayCarryMessages) {
    for (std::size_t s = 0; s < kLinkStates; ++s) {
        const auto from = static_cast<LinkState>(s);
        start(worker_);
        bring_to(from);
        negotiator_->on_lane_failed(kPeer, UCS_ERR_ENDPOINT_TIMEOUT);
        const bool carries = from >= LinkState::kReady && from <= LinkState::kDemoting;
        const char* expected = carries                          ? "2:fail 2:destroy"
                               : from == LinkState::kConnecting ? "2:WITHDRAW 2:destroy"
                                                                : "";
        EXPECT_EQ(expected, sink_->take()) << name(from);
    }
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

TEST_F(LanesNegotiator, CloseInEveryStateEndsInClosedOnce) {
    for (std::size_t s = 0; s < kLinkStates; ++s) {
        const auto from = static_cast<LinkState>(s);
        start(worker_);
        bring_to(from);
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
        EXPECT_EQ(LinkState::kIdle, state()) << name(from);
        const auto first = all.find("2:closed");
        ASSERT_NE(std::string::npos, first) << name(from) << ": " << all;
        EXPECT_EQ(std::string::npos, all.find("2:closed", first + 1)) << name(from) << ": " << all;
        deliver(Type::kRequest);
        EXPECT_EQ(DenyReason::kRefused, sink_->last.deny) << name(from);
    }
}

TEST_F(LanesNegotiator, TimersPingAndFreeNothing) {
    for (std::size_t s = 0; s < kLinkStates; ++s) {
        const auto from = static_cast<LinkState>(s);
        if (!waits_for_peer(from) || from == LinkState::kRequested) continue;
        start(worker_);
        bring_to(from);
        for (int i = 0; i < 5; ++i) {
            advance(config_.wait_timeout);
            EXPECT_NE(std::string::npos, sink_->take().find("2:PING")) << name(from);
            EXPECT_EQ(from, state());
        }
    }
}

TEST_F(LanesNegotiator, AnUnansweredRequestIsWithdrawnButOnlyTheAnswerEndsIt) {
    start(worker_);
    bring_to(LinkState::kRequested);
    advance(config_.wait_timeout);
    EXPECT_NE(std::string::npos, sink_->take().find("2:PING"));
    deliver(Type::kPong);  // the peer is there: it may be deferring
    advance(config_.wait_timeout);
    EXPECT_EQ(LinkState::kRequested, state());
    advance(config_.wait_timeout);
    EXPECT_NE(std::string::npos, sink_->take().find("2:WITHDRAW"));
    EXPECT_EQ(LinkState::kWithdrawing, state());
    score(kOther, 100);  // the pledge is free for others
    EXPECT_NE(std::string::npos, sink_->take().find("3:REQUEST"));
    deliver(Type::kAccept);
    EXPECT_EQ(LinkState::kIdle, state());
}

TEST_F(LanesNegotiator, CrossingRequestsShareOneSlot) {
    start(worker_);  // the lower id
    bring_to(LinkState::kRequested);
    EXPECT_EQ(UCS_OK, deliver(Type::kRequest));
    EXPECT_EQ("", sink_->take());
    EXPECT_EQ(LinkState::kRequested, state());

    start(99);  // the higher id
    bring_to(LinkState::kRequested);
    const Epoch own = negotiator_->find(kPeer)->epoch;
    EXPECT_EQ(UCS_OK, deliver(Type::kRequest));
    EXPECT_EQ("2:ACCEPT 2:create", sink_->take());
    EXPECT_EQ(1u, negotiator_->held());
    Message answer = message(Type::kDeny);
    answer.epoch = own;  // whoever answers the voided request is too late
    EXPECT_EQ(UCS_OK, negotiator_->on_message(kPeer, answer));
    EXPECT_EQ(LinkState::kCreating, state());
}

TEST_F(LanesNegotiator, WithANewRequestTheLowerEndWouldNotAnswerAWithdrawnOne) {
    // Crossing while the own request is withdrawn follows the same rule.
    start(worker_);
    bring_to(LinkState::kWithdrawing);
    deliver(Type::kRequest);
    EXPECT_EQ(LinkState::kWithdrawing, state());
    start(99);
    bring_to(LinkState::kWithdrawing);
    deliver(Type::kRequest);
    EXPECT_EQ("2:ACCEPT 2:create", sink_->take());
}

TEST_F(LanesNegotiator, DefersTheBetterRequestAndDeniesTheRest) {
    start(worker_);
    score(kPeer, 100);
    ASSERT_EQ(LinkState::kRequested, state());
    sink_->take();
    Message worse = message(Type::kRequest, kOther);
    worse.half = worse.estimate = 50;
    negotiator_->on_message(kOther, worse);
    EXPECT_EQ("3:DENY", sink_->take());
    EXPECT_EQ(DenyReason::kBusy, sink_->last.deny);

    Message better = message(Type::kRequest, 4);
    better.half = better.estimate = 500;
    Message best = message(Type::kRequest, 5);
    best.half = best.estimate = 600;
    negotiator_->on_message(4, better);
    negotiator_->on_message(5, best);
    EXPECT_EQ("", sink_->take());
    deliver(Type::kDeny);
    EXPECT_EQ("5:ACCEPT 4:DENY 5:create", sink_->take());
}

TEST_F(LanesNegotiator, ADeferredRequestCanBeWithdrawnAndIsAnswered) {
    start(worker_);
    score(kPeer, 100);
    Message better = message(Type::kRequest, kOther);
    negotiator_->on_message(kOther, better);
    sink_->take();
    Message withdraw = message(Type::kWithdraw, kOther);
    withdraw.epoch = better.epoch;
    negotiator_->on_message(kOther, withdraw);
    EXPECT_EQ("3:DENY", sink_->take());
    deliver(Type::kDeny);
    EXPECT_EQ("3:REQUEST", sink_->take());  // not answered twice; this end asks for it now
}

TEST_F(LanesNegotiator, DeathOfTheOneAskedAnswersTheDeferred) {
    start(worker_);
    score(kPeer, 100);
    negotiator_->on_message(kOther, message(Type::kRequest, kOther));
    sink_->take();
    negotiator_->on_peer_died(kPeer);
    EXPECT_EQ("3:ACCEPT 3:create", sink_->take());
}

TEST_F(LanesNegotiator, WithASlotToSpareARequestIsAnsweredAtOnce) {
    start(worker_, 2);
    score(kPeer, 100);
    sink_->take();
    negotiator_->on_message(kOther, message(Type::kRequest, kOther));
    EXPECT_EQ("3:ACCEPT 3:create", sink_->take());
}

TEST_F(LanesNegotiator, AcceptsOnlyWhatBeatsBothFloors) {
    start(worker_);
    Message request = message(Type::kRequest);
    request.floor = {1000, {10, 20, 0}};  // equal to the link itself: not beaten
    negotiator_->on_message(kPeer, request);
    EXPECT_EQ("2:DENY 2:REQUEST", sink_->take());  // this end would, with its own floor

    start(worker_);
    climb(kOther, LinkState::kEstablished);
    sink_->take();
    request = message(Type::kRequest);
    request.half = 120;  // the victim's 100 and the margin; its id is the higher one
    negotiator_->on_message(kPeer, request);
    EXPECT_EQ("2:DENY", sink_->take());
    EXPECT_EQ((Rank{120, {10, 30, 0}}), sink_->last.floor);
    request.half = 121;
    request.epoch += 2;
    negotiator_->on_message(kPeer, request);
    EXPECT_EQ("2:ACCEPT 3:stop 3:flush", sink_->take());
    EXPECT_EQ(LinkState::kCommitted, state());  // the slot is not free yet
}

TEST_F(LanesNegotiator, AYoungOrRisingLinkIsNoVictim) {
    config_.min_residence = 100 * kMillisecond;
    start(worker_);
    for (const LinkState rising :
         {LinkState::kCreating, LinkState::kReady, LinkState::kEstablished}) {
        start(worker_);
        climb(kOther, rising);
        sink_->take();
        negotiator_->on_message(kPeer, message(Type::kRequest));
        EXPECT_EQ("2:DENY", sink_->take());
        EXPECT_EQ(DenyReason::kBusy, sink_->last.deny);
    }
    // Who denied asks by itself once the residence is over.
    advance(config_.min_residence);
    EXPECT_NE(std::string::npos, sink_->take().find("2:REQUEST"));
}

TEST_F(LanesNegotiator, AThresholdExpiresAndABusyDenialHasNone) {
    start(worker_);
    bring_to(LinkState::kRequested);
    Message denial = message(Type::kDeny);
    denial.deny = DenyReason::kOutranked;
    denial.floor = {500, {10, 20, 0}};
    negotiator_->on_message(kPeer, denial);
    score(kPeer, 104);
    EXPECT_EQ("", sink_->take());
    advance(config_.busy_retry);
    score(kPeer, 700);  // beats it
    EXPECT_EQ("2:SCORE 2:REQUEST", sink_->take());

    start(worker_);
    bring_to(LinkState::kRequested);
    denial = message(Type::kDeny);
    denial.deny = DenyReason::kOutranked;
    denial.floor = {500, {10, 20, 0}};
    negotiator_->on_message(kPeer, denial);
    advance(2 * config_.retry_after);
    EXPECT_NE(std::string::npos, sink_->take().find("2:REQUEST"));

    deliver(Type::kDeny);  // busy
    advance(10 * config_.busy_retry);
    EXPECT_NE(std::string::npos, sink_->take().find("2:REQUEST"));
}

TEST_F(LanesNegotiator, BackOffDoublesUpToItsLimit) {
    start(worker_);
    bring_to(LinkState::kRequested);
    Time last = 0;
    for (int i = 0; i < 12; ++i) {
        Message denial = message(Type::kDeny);
        denial.deny = DenyReason::kOutranked;
        denial.floor = {500, {10, 20, 0}};
        negotiator_->on_message(kPeer, denial);
        const Time begun = now_;
        while (state() == LinkState::kIdle) advance(50 * kMillisecond);
        const Time waited = now_ - begun;
        EXPECT_GE(waited + config_.retry_after, last);
        EXPECT_LE(waited, config_.retry_max * 3 / 2 + 50 * kMillisecond);
        last = std::min(waited, config_.retry_max);
    }
    EXPECT_GE(last, config_.retry_max);
}

TEST_F(LanesNegotiator, CapZeroRefusesWithoutARecord) {
    start(worker_, 0);
    score(kPeer, 1000);
    negotiator_->set_policy(kPeer, Policy::kDedicated);
    EXPECT_EQ("", sink_->take());
    EXPECT_EQ(UCS_OK, deliver(Type::kScore));
    EXPECT_EQ(UCS_OK, deliver(Type::kRequest));
    EXPECT_EQ("2:DENY", sink_->take());
    EXPECT_EQ(DenyReason::kRefused, sink_->last.deny);
    EXPECT_TRUE(negotiator_->links().empty());
}

TEST_F(LanesNegotiator, RecordsAreBounded) {
    config_.max_links = 50;
    start(worker_, 4);
    for (Peer peer = 2; peer < 10000; ++peer) {
        Message heard;
        heard.type = Type::kScore;
        heard.half = peer;
        negotiator_->on_message(peer, heard);
        negotiator_->on_score(peer, peer);
        ASSERT_LE(negotiator_->links().size(), 50u);
    }
    negotiator_->on_score(20000, 1'000'000);
    EXPECT_NE(nullptr, negotiator_->find(20000));
    EXPECT_EQ(50u, negotiator_->links().size());
    EXPECT_TRUE(negotiator_->consistent());
}

TEST_F(LanesNegotiator, HalvesAreToldWhenTheyMoveAndRepeated) {
    start(worker_, 1);
    negotiator_->on_score(kPeer, 4);  // below half of min_score: no record
    EXPECT_TRUE(negotiator_->links().empty());
    negotiator_->on_score(kPeer, 6);
    EXPECT_EQ("2:SCORE", sink_->take());
    negotiator_->on_score(kPeer, 6);
    EXPECT_EQ("", sink_->take());
    advance(config_.refresh);
    EXPECT_EQ("2:SCORE", sink_->take());
    negotiator_->on_score(kPeer, 0);
    EXPECT_EQ("2:SCORE", sink_->take());
    EXPECT_EQ(0u, sink_->last.half);
    advance(0);
    EXPECT_TRUE(negotiator_->links().empty());
}

TEST_F(LanesNegotiator, AHeardHalfThatIsNotRepeatedDecays) {
    start(worker_);
    climb(kPeer, LinkState::kEstablished);
    Message heard = message(Type::kScore);
    heard.half = 1000;
    negotiator_->on_message(kPeer, heard);
    score(kPeer, 0);
    sink_->take();
    for (int i = 0; i < 10 && state() == LinkState::kEstablished; ++i) advance(config_.stale_after);
    EXPECT_EQ("2:stop 2:flush", sink_->take());
}

TEST_F(LanesNegotiator, ALaneThatCannotBeMadeIsWithdrawn) {
    start(worker_);
    bring_to(LinkState::kCreating);
    negotiator_->on_lane_created(kPeer, UCS_ERR_NO_RESOURCE, {});
    EXPECT_EQ("2:WITHDRAW", sink_->take());
    EXPECT_EQ(LinkState::kIdle, state());
    EXPECT_EQ(0u, negotiator_->held());

    start(worker_);
    bring_to(LinkState::kConnecting);
    deliver(Type::kLane);
    negotiator_->on_lane_ready(kPeer, UCS_ERR_IO_ERROR);
    EXPECT_EQ("2:connect 2:WITHDRAW 2:destroy", sink_->take());
}

TEST_F(LanesNegotiator, TheLaneIsWhatBothEndsHave) {
    config_.window = 3;
    start(worker_);
    bring_to(LinkState::kConnecting);
    EXPECT_EQ(3u, sink_->last.window);
    Message lane = message(Type::kLane);
    lane.window = 100;
    lane.address = {4, 5};
    negotiator_->on_message(kPeer, lane);
    EXPECT_EQ((std::vector<std::uint8_t>{4, 5}), sink_->connected_to);
    EXPECT_EQ(3u, negotiator_->find(kPeer)->round.window);
}

TEST_F(LanesNegotiator, FlushedFollowsAckAndFlushInEitherOrder) {
    for (const bool ack_first : {true, false}) {
        start(worker_);
        bring_to(LinkState::kDemoting);
        deliver(Type::kDmark);
        if (ack_first) deliver(Type::kDmarkAck);
        if (!ack_first) negotiator_->on_flushed(kPeer);
        EXPECT_EQ(std::string::npos, sink_->take().find("FLUSHED"));
        if (ack_first) negotiator_->on_flushed(kPeer);
        if (!ack_first) deliver(Type::kDmarkAck);
        EXPECT_NE(std::string::npos, sink_->take().find("2:FLUSHED"));
        EXPECT_EQ(LinkState::kDemoting, state());
        deliver(Type::kFlushed);
        EXPECT_EQ("2:destroy", sink_->take());
        EXPECT_EQ(1u, negotiator_->held());
        negotiator_->on_lane_destroyed(kPeer);
        EXPECT_EQ(0u, negotiator_->held());
    }
}

}  // namespace
}  // namespace ucp::lanes
