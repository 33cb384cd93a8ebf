// SPDX-License-Identifier: BSD-3-Clause

// How links compete: requests, denials, floors, timers, records; what a round ends with.

#include <algorithm>
#include <numeric>

#include "unit/ucp/lanes/negotiator_fixture.h"

namespace ucp::lanes {
namespace {

class LanesNegotiator : public NegotiatorFixture {};

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

// What lies in one inbox is decided on as a whole: who takes its request back costs nobody a lane.
TEST_F(LanesNegotiator, ARequestTakenBackInTheSameInboxDemotesNobody) {
    start(worker_);
    climb(kOther, LinkState::kEstablished);
    sink_->take();
    const Message request = message(Type::kRequest);
    Message withdraw = message(Type::kWithdraw);
    withdraw.epoch = request.epoch;
    negotiator_->on_message(kPeer, request);
    EXPECT_EQ(0u, negotiator_->next_deadline());  // there is something to decide
    negotiator_->on_message(kPeer, withdraw);
    negotiator_->settle();
    EXPECT_EQ("2:DENY 2:REQUEST", sink_->take());
    EXPECT_EQ(LinkState::kEstablished, state(kOther));
}

TEST_F(LanesNegotiator, AnAgreementTakenBackInTheSameInboxDemotesNobody) {
    start(worker_);
    climb(kOther, LinkState::kEstablished);
    score(kPeer, 1000);
    sink_->take();
    ASSERT_EQ(LinkState::kRequested, state(kPeer));
    negotiator_->on_message(kPeer, message(Type::kAccept));
    EXPECT_TRUE(negotiator_->consistent());
    negotiator_->on_message(kPeer, message(Type::kWithdraw));
    negotiator_->settle();
    EXPECT_EQ("", sink_->take());
    EXPECT_EQ(LinkState::kEstablished, state(kOther));
    EXPECT_TRUE(negotiator_->consistent());
}

// The best of those that came together is answered first, whoever came first.
TEST_F(LanesNegotiator, OfRequestsInOneInboxTheBestWins) {
    start(worker_);
    Message good = message(Type::kRequest), better = message(Type::kRequest, kOther);
    good.local = good.estimate = 500;
    negotiator_->on_message(kPeer, good);
    negotiator_->on_message(kOther, better);
    negotiator_->settle();
    advance(0);
    EXPECT_EQ("3:ACCEPT 2:DENY 3:create", sink_->take());
}

// Of an interval's scores some are known: by these the holder is the worse one.
TEST_F(LanesNegotiator, ARequestWaitsForTheRestOfAnIntervalsScores) {
    start(worker_);
    climb(kOther, LinkState::kEstablished);
    sink_->take();
    const Measured first[] = {{kPeer, 1000}}, last[] = {{kOther, 100'000}};
    negotiator_->on_scores(first, false);
    hear(kPeer, message(Type::kRequest));
    EXPECT_EQ(LinkState::kEstablished, state(kOther));
    EXPECT_EQ(std::string::npos, sink_->take().find("2:ACCEPT"));
    EXPECT_TRUE(negotiator_->consistent());
    negotiator_->on_scores(last);
    EXPECT_NE(std::string::npos, sink_->take().find("2:DENY"));
    EXPECT_EQ(LinkState::kEstablished, state(kOther));
}

TEST_F(LanesNegotiator, OfALinkFarFromASlotSmallMovesAreNotSaid) {
    start(worker_);
    climb(kOther, LinkState::kEstablished);
    score(kOther, 100'000);
    score(kPeer, 1000);
    sink_->take();
    score(kPeer, 1400);
    EXPECT_EQ("", sink_->take());
    score(kPeer, 1600);
    EXPECT_EQ("2:SCORE", sink_->take());
    score(kPeer, 80'000);
    EXPECT_EQ("2:SCORE", sink_->take());
    deliver(Type::kScore);
    sink_->take();
    // With twice that it would have the slot.
    score(kPeer, 88'000);
    EXPECT_EQ("2:SCORE", sink_->take());
}

// Of a link that its peer has denied as well: until it beats what it must, or has grown by the
// margin, or its back-off is over.
TEST_F(LanesNegotiator, OfADeniedLinkSmallMovesAreNotSaid) {
    start(worker_);
    bring_to(LinkState::kRequested);
    const Score asked = negotiator_->find(kPeer)->score();
    const Score own = negotiator_->find(kPeer)->local;
    ASSERT_GT(own, 50u);
    Message denial = message(Type::kDeny);
    denial.epoch = negotiator_->find(kPeer)->epoch;
    denial.deny = DenyReason::kOutranked;
    denial.floor = {asked + asked / 10, {}};
    hear(kPeer, denial);
    sink_->take();
    score(kPeer, own - own / 5);
    EXPECT_EQ("", sink_->take());
    score(kPeer, own / 3);
    EXPECT_EQ("2:SCORE", sink_->take());
    score(kPeer, own / 4);
    EXPECT_EQ("", sink_->take());
    advance(negotiator_->config().retry_max);
    sink_->take();
    score(kPeer, own / 6);
    EXPECT_EQ("2:SCORE", sink_->take());
}

TEST_F(LanesNegotiator, OfALinkWithoutALaneWhatChanceMovesIsNotSaid) {
    start(worker_);
    climb(kOther, LinkState::kEstablished);
    Message answer = message(Type::kGone);
    answer.epoch = kNoRound;
    const auto measure = [&](Score least, Score doubt) {
        hear(kPeer, answer);
        sink_->take();
        negotiator_->on_score(kPeer, least + doubt, doubt);
        advance(0);
        return sink_->take();
    };
    EXPECT_EQ("2:SCORE", measure(90, 40));
    EXPECT_EQ("", measure(110, 40));
    EXPECT_EQ("", measure(70, 40));
    EXPECT_EQ("2:SCORE", measure(115, 40));
    EXPECT_EQ("2:SCORE", measure(104, 0));
    // What it is all the same is repeated.
    EXPECT_EQ("", measure(90, 40));
    advance(config_.refresh);
    sink_->take();
    EXPECT_EQ(90u, negotiator_->find(kPeer)->advertised);
    EXPECT_EQ("", measure(0, 200));
    EXPECT_EQ("2:SCORE", measure(0, 170));
    EXPECT_EQ(0u, sink_->last.local);
    // The first that is said, and what the program says, need no more.
    EXPECT_EQ("2:SCORE", measure(10, 200));
    negotiator_->set_policy(kPeer, Policy::kScalable);
    EXPECT_EQ("2:SCORE", sink_->take());
    EXPECT_EQ(0u, sink_->last.local);
}

TEST_F(LanesNegotiator, AScoreThatWasSaidStaysUntilItIsAQuarterOfWhatCounts) {
    config_.min_score = 1000;
    start(worker_);
    for (const Score measured : {500u, 250u}) {
        score(kPeer, measured);
        EXPECT_EQ(measured, negotiator_->find(kPeer)->advertised);
    }
    for (const Score measured : {249u, 300u, 499u}) {
        score(kPeer, measured);
        EXPECT_EQ(0u, negotiator_->find(kPeer)->advertised);
    }
    score(kPeer, 500);
    EXPECT_EQ(500u, negotiator_->find(kPeer)->advertised);
}

// A server whose slots are all in better use has no record of its many other clients, and tells
// them what they would have to beat.
TEST_F(LanesNegotiator, WhoCannotGetASlotIsDeniedWithoutARecord) {
    config_.max_links = 1;
    start(worker_);
    climb(kOther, LinkState::kEstablished);
    score(kOther, 100'000);
    const std::size_t most = negotiator_->config().max_links;
    for (Peer peer = 4; peer < 5000; ++peer) {
        Message request = message(Type::kRequest, peer);
        ASSERT_EQ(UCS_OK, hear(peer, request));
        ASSERT_LE(negotiator_->links().size(), most);
        ASSERT_EQ(Type::kDeny, sink_->last.type);
        ASSERT_EQ(DenyReason::kOutranked, sink_->last.deny);
        ASSERT_GT(sink_->last.floor.score, 100'000u);
    }
}

// So does one all of whose records are of better links, though none of them has the slot.
TEST_F(LanesNegotiator, WhoGetsNoRecordIsToldWhatHasOne) {
    config_.max_links = 1;
    start(worker_);
    climb(kOther, LinkState::kEstablished);
    const std::size_t most = negotiator_->config().max_links;
    Message news = message(Type::kScore);
    news.local = 5000;
    for (Peer peer = 4; negotiator_->links().size() < most; ++peer) hear(peer, news);
    Message request = message(Type::kRequest, 4000);
    request.local = request.estimate = 4000;
    EXPECT_EQ(UCS_OK, hear(4000, request));
    EXPECT_EQ(DenyReason::kOutranked, sink_->last.deny);
    EXPECT_EQ(5000u, sink_->last.floor.score);
    EXPECT_EQ(nullptr, negotiator_->find(4000));
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
    EXPECT_EQ(UCS_OK, hear(kPeer, answer));
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
    worse.local = worse.estimate = 50;
    hear(kOther, worse);
    EXPECT_EQ("3:DENY", sink_->take());
    EXPECT_EQ(DenyReason::kBusy, sink_->last.deny);

    Message better = message(Type::kRequest, 4);
    better.local = better.estimate = 500;
    Message best = message(Type::kRequest, 5);
    best.local = best.estimate = 600;
    hear(4, better);
    hear(5, best);
    EXPECT_EQ("", sink_->take());
    deliver(Type::kDeny);
    advance(0);
    EXPECT_EQ("5:ACCEPT 4:DENY 5:create", sink_->take());
}

TEST_F(LanesNegotiator, ADeferredRequestCanBeWithdrawnAndIsAnswered) {
    start(worker_);
    score(kPeer, 100);
    Message better = message(Type::kRequest, kOther);
    hear(kOther, better);
    sink_->take();
    Message withdraw = message(Type::kWithdraw, kOther);
    withdraw.epoch = better.epoch;
    hear(kOther, withdraw);
    EXPECT_EQ("3:DENY", sink_->take());
    deliver(Type::kDeny);
    EXPECT_EQ("3:REQUEST", sink_->take());  // not answered twice; this end asks for it now
}

TEST_F(LanesNegotiator, DeathOfTheOneAskedAnswersTheDeferred) {
    start(worker_);
    score(kPeer, 100);
    hear(kOther, message(Type::kRequest, kOther));
    sink_->take();
    negotiator_->on_peer_died(kPeer);
    EXPECT_EQ("3:ACCEPT 3:create", sink_->take());
}

TEST_F(LanesNegotiator, WithASlotToSpareARequestIsAnsweredAtOnce) {
    start(worker_, 2);
    score(kPeer, 100);
    sink_->take();
    hear(kOther, message(Type::kRequest, kOther));
    EXPECT_EQ("3:ACCEPT 3:create", sink_->take());
}

TEST_F(LanesNegotiator, AcceptsOnlyWhatBeatsBothFloors) {
    start(worker_);
    Message request = message(Type::kRequest);
    request.floor = {1000, {10, 20, 0}};  // equal to the link itself: not beaten
    hear(kPeer, request);
    EXPECT_EQ("2:DENY 2:REQUEST", sink_->take());  // this end would, with its own floor

    start(worker_);
    climb(kOther, LinkState::kEstablished);
    sink_->take();
    request = message(Type::kRequest);
    request.local = 120;  // the victim's 100 and the margin; its id is the higher one
    hear(kPeer, request);
    EXPECT_EQ("2:DENY", sink_->take());
    EXPECT_EQ((Rank{120, {10, 30, 0}}), sink_->last.floor);
    request.local = 121;
    request.epoch += 2;
    hear(kPeer, request);
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
        hear(kPeer, message(Type::kRequest));
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
    hear(kPeer, denial);
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
    hear(kPeer, denial);
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
        hear(kPeer, denial);
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
        Message news;
        news.type = Type::kScore;
        news.local = peer;
        hear(peer, news);
        negotiator_->on_score(peer, peer);
        ASSERT_LE(negotiator_->links().size(), 50u);
    }
    negotiator_->on_score(20000, 1'000'000);
    EXPECT_NE(nullptr, negotiator_->find(20000));
    EXPECT_EQ(50u, negotiator_->links().size());
    EXPECT_TRUE(negotiator_->consistent());
}

TEST_F(LanesNegotiator, ScoresAreAdvertisedWhenTheyMoveAndRepeated) {
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
    EXPECT_EQ(0u, sink_->last.local);
    advance(0);
    EXPECT_TRUE(negotiator_->links().empty());
}

// What varies says little: who has no slot counts for what it has at least.
// What a peer that computes does not read must not fill its queue: others' messages lie there too.
TEST_F(LanesNegotiator, AScoreThatMovesIsNotSentToASilentPeerAgainAndAgain) {
    start(worker_);
    deliver(Type::kScore);
    score(kPeer, 100'000);
    deliver(Type::kDeny);
    sink_->take();
    std::size_t scores = 0, pings = 0;
    for (Score measured = 100'000; measured >= 2; measured -= (measured + 4) / 5) {
        score(kPeer, measured);
        const std::string log = sink_->take();
        scores += log.find("2:SCORE") != log.npos;
        pings += log.find("2:PING") != log.npos;
    }
    EXPECT_EQ(Link::kMostUnheard, scores);
    EXPECT_GE(pings, 5u);
    EXPECT_LE(pings, 7u);
    // At this end the score has gone all the same; what it is now is said to who listens again.
    EXPECT_EQ(0u, negotiator_->find(kPeer)->advertised);
    Message answer = message(Type::kGone);
    answer.epoch = kNoRound;
    hear(kPeer, answer);
    EXPECT_EQ("2:SCORE", sink_->take());
    EXPECT_EQ(0u, sink_->last.local);
    hear(kPeer, answer);
    EXPECT_EQ("", sink_->take());
}

TEST_F(LanesNegotiator, DoubtCountsAgainstWhoHoldsNoSlot) {
    start(worker_, 1);
    climb(kPeer, LinkState::kEstablished);
    negotiator_->on_score(kPeer, 100, 30);
    EXPECT_EQ(100u, negotiator_->find(kPeer)->local);
    negotiator_->on_score(kOther, 100, 200);
    EXPECT_EQ(nullptr, negotiator_->find(kOther));
    negotiator_->on_score(kOther, 100, 30);
    EXPECT_EQ(70u, negotiator_->find(kOther)->local);
}

// Nobody looked when it was due: the repetition may lie in the inbox.
TEST_F(LanesNegotiator, ARemoteScoreOutlivesATimeInWhichThisEndDidNothing) {
    start(worker_);
    climb(kPeer, LinkState::kEstablished);
    Message news = message(Type::kScore);
    news.local = 1000;
    negotiator_->on_message(kPeer, news);
    advance(100 * config_.hold);
    EXPECT_EQ(1000u, negotiator_->find(kPeer)->remote);
    negotiator_->on_message(kPeer, news);
    advance(config_.refresh);
    EXPECT_EQ(1000u, negotiator_->find(kPeer)->remote);
}

// The peer computes: what it said last stands for a while.
TEST_F(LanesNegotiator, ARemoteScoreStandsWhileThePeerIsSilent) {
    start(worker_);
    climb(kPeer, LinkState::kEstablished);
    Message news = message(Type::kScore);
    news.local = 1000;
    negotiator_->on_message(kPeer, news);
    for (Time slept = 0; slept + kMillisecond < config_.hold; slept += config_.refresh) {
        EXPECT_EQ(1000u, negotiator_->find(kPeer)->remote);
        advance(config_.refresh);
    }
    advance(config_.refresh);
    EXPECT_EQ(500u, negotiator_->find(kPeer)->remote);
}

TEST_F(LanesNegotiator, DoubtKeepsALinkFromNoFreeSlot) {
    start(worker_);
    negotiator_->on_scores(std::vector<Measured>{{kPeer, 100, 99}});
    EXPECT_EQ(LinkState::kRequested, state());
}

TEST_F(LanesNegotiator, ARemoteScoreThatIsNotRepeatedDecays) {
    config_.hold = 0;
    start(worker_);
    climb(kPeer, LinkState::kEstablished);
    Message news = message(Type::kScore);
    news.local = 1000;
    hear(kPeer, news);
    score(kPeer, 0);
    sink_->take();
    std::string all;
    for (int i = 0; i < 10 && state() == LinkState::kEstablished; ++i) {
        advance(config_.stale_after);
        all += sink_->take() + "|";
    }
    // It is asked as well, in case it has lost the round.
    EXPECT_EQ("2:PING||2:PING||||2:PING|2:stop 2:flush|", all);
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
    hear(kPeer, lane);
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

TEST_F(LanesNegotiator, WhatFindsNoMemoryIsTriedAgainInItsOrder) {
    start(worker_);
    bring_to(LinkState::kEstablished);
    sink_->failures = 2;
    negotiator_->set_policy(kPeer, Policy::kScalable);
    EXPECT_EQ(now_, negotiator_->next_deadline());
    advance(1);
    EXPECT_EQ("", sink_->take());
    advance(1);
    EXPECT_EQ("2:SCORE 2:stop 2:flush", sink_->take());
    EXPECT_LT(now_, negotiator_->next_deadline());
}

TEST_F(LanesNegotiator, WhatFindsNoMemoryForLongFailsItsEndpointOnce) {
    start(worker_);
    bring_to(LinkState::kEstablished);
    sink_->failures = 5000;
    negotiator_->set_policy(kPeer, Policy::kScalable);
    for (int count = 0; count < 3000; ++count) advance(1);
    EXPECT_EQ("2:fail", sink_->take());
}

// Whoever asks would take the link, so that this end asks as soon as it can.
TEST_F(LanesNegotiator, ARequestEndsTheBackOffOfTheOneAsked) {
    start(worker_);
    score(kPeer, 100);
    hear(kPeer, denial(kPeer));
    score(kOther, 2000);
    deliver(Type::kRequest);  // the only slot is reserved for the other link
    EXPECT_EQ(DenyReason::kBusy, sink_->last.deny);
    hear(kOther, denial(kOther));
    sink_->take();
    advance(config_.busy_retry);
    EXPECT_NE(std::string::npos, sink_->take().find("2:REQUEST"));
}

TEST_F(LanesNegotiator, ALinkThatGrewStartsItsBackOffAnew) {
    start(worker_);
    score(kPeer, 100);
    for (int denials = 0; denials < 4; ++denials) {
        hear(kPeer, denial(kPeer));
        while (state() != LinkState::kRequested) advance(config_.retry_after / 4);
    }
    hear(kPeer, denial(kPeer));
    advance(config_.retry_after);
    EXPECT_EQ(LinkState::kIdle, state());
    // What chance explains is no growth.
    negotiator_->on_score(kPeer, 150, 31);
    advance(0);
    EXPECT_EQ(LinkState::kIdle, state());
    negotiator_->on_score(kPeer, 150, 29);
    advance(0);
    EXPECT_EQ(LinkState::kRequested, state());
}

TEST_F(LanesNegotiator, EqualsThatWereDeniedTogetherDoNotAskTogether) {
    start(worker_);
    for (const Peer peer : {kPeer, kOther}) {
        score(peer, 100);
        hear(peer, denial(peer));
    }
    EXPECT_NE(negotiator_->find(kPeer)->retry_at, negotiator_->find(kOther)->retry_at);
}

// No call of progress takes long, however many links there is something to do for.
class LanesManyAtOnce : public NegotiatorFixture {
  protected:
    static constexpr Peer kFirst = 2, kEnd = 10;
    static constexpr std::ptrdiff_t kMostInACall = 3;  // links in a call

    // How many links the sink was asked to do that for, in each call until nothing is due.
    std::vector<std::ptrdiff_t> in_each_call(const std::string& what) {
        std::vector<std::ptrdiff_t> counts;
        do {
            const std::string asked = sink_->take() + ' ';
            std::ptrdiff_t count = 0;
            for (std::size_t at = 0; (at = asked.find(what, at)) != std::string::npos; ++at)
                ++count;
            counts.push_back(count);
            EXPECT_TRUE(negotiator_->consistent());
            if (negotiator_->next_deadline() > now_) return counts;
            advance(0);
        } while (counts.size() < 100);
        return counts;
    }
};

TEST_F(LanesManyAtOnce, ColdLinksAreDemotedAFewAtATime) {
    start(worker_, 8);
    std::vector<Measured> cold;
    for (Peer peer = kFirst; peer < kEnd; ++peer) {
        climb(peer, LinkState::kEstablished);
        cold.push_back({peer, 0, 0});
    }
    sink_->take();
    negotiator_->on_scores(cold);
    EXPECT_EQ((std::vector<std::ptrdiff_t>{kMostInACall, kMostInACall, 2}), in_each_call(":stop "));
}

TEST_F(LanesManyAtOnce, RequestsAreAnsweredAFewAtATime) {
    start(worker_, 8);
    for (Peer peer = kFirst; peer < kEnd; ++peer) {
        negotiator_->on_message(peer, message(Type::kRequest, peer));
    }
    negotiator_->settle();
    std::ptrdiff_t sum = 0;
    const std::vector<std::ptrdiff_t> accepted = in_each_call(":ACCEPT ");
    for (const std::ptrdiff_t count : accepted) {
        EXPECT_LE(count, kMostInACall);
        sum += count;
    }
    EXPECT_EQ(8, sum);
    for (Peer peer = kFirst; peer < kEnd; ++peer) {
        EXPECT_EQ(LinkState::kCreating, state(peer));
    }
}

TEST_F(LanesManyAtOnce, LanesAreMadeOneAtATime) {
    start(worker_, 8);
    for (Peer peer = kFirst; peer < kEnd; ++peer) {
        negotiator_->on_message(peer, message(Type::kRequest, peer));
    }
    negotiator_->settle();
    const std::vector<std::ptrdiff_t> made = in_each_call(":create ");
    EXPECT_EQ(8, std::accumulate(made.begin(), made.end(), std::ptrdiff_t{0}));
    EXPECT_EQ(1, *std::max_element(made.begin(), made.end()));
}

// Those that nobody can have a slot for are denied no faster.
TEST_F(LanesManyAtOnce, RequestsAreDeniedAFewAtATime) {
    start(worker_);
    bring_to(LinkState::kRequested);
    for (Peer peer = kFirst + 1; peer < kEnd; ++peer) {
        Message request = message(Type::kRequest, peer);
        request.estimate = 50;  // below the own one
        negotiator_->on_message(peer, request);
    }
    negotiator_->settle();
    EXPECT_EQ((std::vector<std::ptrdiff_t>{kMostInACall, kMostInACall, 1}), in_each_call(":DENY "));
}

TEST_F(LanesNegotiator, TheWindowIsTheSmallerOfBothEnds) {
    for (const std::uint32_t own : {2u, 16u}) {
        config_.window = own;
        start(worker_);
        bring_to(LinkState::kSwitching);
        TxDirection& tx = negotiator_->switch_of(kPeer)->tx;
        std::uint32_t posted = 0;
        for (; tx.may_post(); ++posted) tx.posted();
        EXPECT_EQ(std::min(own, message(Type::kLane).window), posted);
    }
}

TEST_F(LanesNegotiator, OrderedMessagesAreOfTheirRound) {
    using Order = Negotiator::Order;
    start(worker_);
    bring_to(LinkState::kEstablished);
    const Epoch epoch = negotiator_->find(kPeer)->epoch;
    EXPECT_EQ(Order::kHold, negotiator_->order_of(kPeer, epoch));
    EXPECT_EQ(Order::kDrop, negotiator_->order_of(kPeer, epoch + 2));
    EXPECT_EQ(Order::kDrop, negotiator_->order_of(kOther, epoch));
    deliver(Type::kDmark);
    EXPECT_EQ(Order::kDeliver, negotiator_->order_of(kPeer, epoch));
}

TEST_F(LanesNegotiator, TheDeadAreNotAnswered) {
    start(worker_);
    bring_to(LinkState::kReleasing);
    deliver(Type::kRequest);  // is answered when the lane is gone
    negotiator_->on_peer_died(kPeer);
    sink_->take();
    score(kOther, 2000);
    advance(0);
    const std::string all = sink_->take();
    EXPECT_NE(std::string::npos, all.find("3:REQUEST")) << all;
    EXPECT_EQ(std::string::npos, all.find("2:")) << all;
}

// --- peers that make no progress

// Patience ends twice: this end may have been asleep itself, with the answer in its inbox.
TEST_F(LanesNegotiator, AnOverdueRequestStandsBackForAnotherThatCouldBeMade) {
    start(worker_);
    score(kPeer, 100);
    score(kOther, 50);
    advance(config_.patience);
    EXPECT_EQ(LinkState::kRequested, state());
    EXPECT_EQ(LinkState::kIdle, state(kOther));
    advance(config_.patience / 4);
    EXPECT_EQ(LinkState::kWithdrawing, state());
    EXPECT_EQ(LinkState::kRequested, state(kOther));
}

// The peer may have switched to the lane: it is not dropped, and left when it is Established.
TEST_F(LanesNegotiator, AVictimThatIsReadyGoesOnAndLeavesThen) {
    start(worker_);
    bring_to(LinkState::kReady);
    advance(config_.patience);
    advance(config_.patience / 4);
    sink_->take();
    Message better = message(Type::kRequest, kOther);
    better.local = better.estimate = 100'000;
    hear(kOther, better);
    EXPECT_EQ("3:ACCEPT 3:create", sink_->take());
    EXPECT_EQ(LinkState::kReady, state());
    EXPECT_EQ(1u, negotiator_->parked());
    deliver(Type::kReady);
    negotiator_->on_marker_posted(kPeer);
    deliver(Type::kMark);
    deliver(Type::kMarkAck);
    EXPECT_EQ(LinkState::kDemoting, state());
}

class LanesSleeper : public NegotiatorFixture {
  protected:
    // Two links, the worse one's peer is asleep. @return who goes for a third one
    Peer victim(Score awake) {
        start(worker_, 2);
        climb(kPeer, LinkState::kEstablished);
        climb(kOther, LinkState::kEstablished);
        advance(config_.stale_after);
        deliver(Type::kPong, kOther);
        score(kOther, awake);
        advance(config_.patience);
        Message request = message(Type::kRequest, 4);
        request.local = request.estimate = 100'000;
        hear(4, request);
        EXPECT_EQ(LinkState::kCommitted, state(4));
        return state(kPeer) == LinkState::kDemoting ? kPeer : kOther;
    }
};

TEST_F(LanesSleeper, IsNoVictimWhileSomebodyAwakeOfItsRankCouldBe) {
    EXPECT_EQ(kOther, victim(110));
}

// It would take the slot back.
TEST_F(LanesSleeper, GoesBeforeSomebodyBetter) {
    EXPECT_EQ(kPeer, victim(1000));
}

// Queue pairs and memory are limited each for itself.
TEST_F(LanesNegotiator, LanesWithinTheHostHaveSlotsOfTheirOwn) {
    constexpr Peer kNear = 50, kNearToo = 51;
    config_.host_cap = 1;
    start(worker_);
    sink_->first_near = kNear;
    climb(kPeer, LinkState::kEstablished);
    climb(kNear, LinkState::kEstablished);
    EXPECT_EQ(negotiator_->held(), 2u);
    EXPECT_TRUE(negotiator_->consistent());
    sink_->take();
    // Whoever is hotter takes the slot of its like, though the other link would be the colder one.
    score(kNearToo, 500);
    EXPECT_NE(sink_->take().find("51:REQUEST"), std::string::npos);
    score(kOther, 300);
    EXPECT_NE(sink_->take().find("3:REQUEST"), std::string::npos) << "one of the other kind is out";
    deliver(Type::kAccept, kNearToo);
    EXPECT_EQ(state(kNear), LinkState::kDemoting);
    EXPECT_EQ(state(kPeer), LinkState::kEstablished);
    deliver(Type::kAccept, kOther);
    EXPECT_EQ(state(kPeer), LinkState::kDemoting);
    EXPECT_TRUE(negotiator_->consistent());
}

TEST_F(LanesNegotiator, WithoutSlotsOfItsKindALinkIsNotAskedFor) {
    constexpr Peer kNear = 50;
    start(worker_);
    sink_->first_near = kNear;
    score(kNear, 500);
    EXPECT_EQ(negotiator_->find(kNear), nullptr);
    Message request = message(Type::kRequest, kNear);
    EXPECT_EQ(hear(kNear, request), UCS_OK);
    EXPECT_EQ(sink_->take(), "50:DENY");
    EXPECT_EQ(sink_->last.deny, DenyReason::kRefused);
    climb(kPeer, LinkState::kEstablished);
}

}  // namespace
}  // namespace ucp::lanes
