// SPDX-License-Identifier: BSD-3-Clause

// Lanes that both ends have left as agreed, and that the next round of their link takes back.

#include "ucp/lanes/kept_lanes.h"

#include <gtest/gtest.h>

#include "unit/ucp/lanes/cluster.h"
#include "unit/ucp/lanes/negotiator_fixture.h"

namespace ucp::lanes {
namespace {

using lanes_test::Cluster;
using lanes_test::part_of;

class LanesKept : public NegotiatorFixture {
  protected:
    LanesKept() { config_.keep = 1000 * kMillisecond; }

    // A link that has had a lane; what is left of it is kept. @return the epoch of that round
    Epoch keep(Peer peer) {
        climb(peer, LinkState::kReleasing);
        const Epoch epoch = negotiator_->find(peer)->epoch;
        negotiator_->on_lane_destroyed(peer);
        score(peer, 0);
        negotiator_->set_policy(peer, Policy::kAuto);
        EXPECT_EQ(LinkState::kIdle, state(peer));
        EXPECT_TRUE(negotiator_->consistent());
        return epoch;
    }
    // Asks for the peer's link once more. @return what REQUEST offers
    Epoch ask(Peer peer) {
        sink_->take();
        advance(config_.busy_retry);
        score(peer, 5000);
        EXPECT_EQ(LinkState::kRequested, state(peer));
        return sink_->last.kept;
    }
    ucs_status_t accept(Peer peer, Epoch kept) {
        Message answer = message(Type::kAccept, peer);
        answer.kept = kept;
        sink_->take();
        return hear(peer, answer);
    }
};

TEST_F(LanesKept, ARoundThatEndsAsAgreedKeepsItsLane) {
    start(worker_);
    const Epoch epoch = keep(kPeer);
    EXPECT_NE(std::string::npos, sink_->take().find("2:keep"));
    EXPECT_EQ(LinkState::kIdle, state());
    EXPECT_EQ(1u, negotiator_->kept());
    EXPECT_EQ(0u, negotiator_->held());
    EXPECT_EQ(epoch, ask(kPeer));
    EXPECT_EQ(UCS_OK, accept(kPeer, epoch));
    EXPECT_EQ("2:take", sink_->take());
    EXPECT_EQ(0u, negotiator_->kept());
    EXPECT_EQ(1u, negotiator_->held());
    EXPECT_EQ(1u, negotiator_->counters().reused);
    EXPECT_TRUE(negotiator_->consistent());
}

TEST_F(LanesKept, APeerWithoutItGetsANewOne) {
    start(worker_);
    keep(kPeer);
    ask(kPeer);
    EXPECT_EQ(UCS_OK, accept(kPeer, 0));
    EXPECT_EQ("2:drop 2:create", sink_->take());
    EXPECT_EQ(0u, negotiator_->counters().reused);
}

TEST_F(LanesKept, NobodyAgreesToALaneThatWasNotOffered) {
    start(worker_);
    const Epoch epoch = keep(kPeer);
    ask(kPeer);
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, accept(kPeer, epoch + 2));
    EXPECT_EQ(LinkState::kRequested, state());
    EXPECT_EQ("", sink_->take());
    EXPECT_TRUE(negotiator_->consistent());
}

TEST_F(LanesKept, TheAnswererTakesTheSameLaneOrNone) {
    for (const bool is_same : {true, false}) {
        start(worker_);
        const Epoch epoch = keep(kPeer);
        sink_->take();
        Message request = message(Type::kRequest);
        request.kept = is_same ? epoch : epoch + 2;
        request.local = request.estimate = 5000;
        EXPECT_EQ(UCS_OK, hear(kPeer, request));
        EXPECT_EQ(is_same ? "2:ACCEPT 2:take" : "2:ACCEPT 2:drop 2:create", sink_->take());
        EXPECT_EQ(is_same ? epoch : 0, sink_->last.kept);
    }
}

TEST_F(LanesKept, AsLongAsItIsNamedItStays) {
    start(worker_);
    const Epoch epoch = keep(kPeer);
    ask(kPeer);
    config_.wait_timeout = config_.keep;
    advance(config_.keep / 2);
    advance(config_.keep / 2);
    EXPECT_EQ(1u, negotiator_->kept());  // the request is out
    deliver(Type::kDeny);
    EXPECT_EQ(std::string::npos, sink_->take().find("2:drop"));
    advance(1);
    EXPECT_NE(std::string::npos, sink_->take().find("2:drop"));
    EXPECT_EQ(0u, negotiator_->kept());
    EXPECT_NE(0u, epoch);
}

TEST_F(LanesKept, ItGoesWhenItsTimeIsOver) {
    start(worker_);
    keep(kPeer);
    EXPECT_LE(negotiator_->next_deadline(), now_ + config_.keep);
    advance(config_.keep - 1);
    EXPECT_EQ(1u, negotiator_->kept());
    sink_->take();
    advance(1);
    EXPECT_NE(std::string::npos, sink_->take().find("2:drop"));
    EXPECT_EQ(0u, negotiator_->kept());
}

// Else a peer that does not answer would take a place beside the cap from others.
TEST_F(LanesKept, ARequestThatWasTakenBackPinsNoLane) {
    start(worker_);
    keep(kPeer);
    ask(kPeer);
    for (int pings = 0; pings < 2; ++pings) advance(config_.wait_timeout);
    ASSERT_EQ(LinkState::kWithdrawing, state());
    advance(config_.keep);
    EXPECT_EQ(0u, negotiator_->kept());
    deliver(Type::kAccept);
    EXPECT_EQ(0u, negotiator_->held());
    EXPECT_TRUE(negotiator_->consistent());
}

TEST_F(LanesKept, OfThoseWhoseTimeIsOverOneGoesAtATime) {
    start(worker_, 2);
    for (const Peer peer : {kPeer, kOther}) keep(peer);
    sink_->take();
    advance(config_.keep);
    EXPECT_EQ(1u, negotiator_->kept());
    EXPECT_LE(negotiator_->next_deadline(), now_);
    advance(0);
    EXPECT_EQ(0u, negotiator_->kept());
}

TEST_F(LanesKept, ItGoesWithItsPeerAndWithItsWorkerButNotWithTheEndpoint) {
    start(worker_);
    keep(kPeer);
    sink_->take();
    negotiator_->forget(kPeer);
    EXPECT_EQ("", sink_->take());
    EXPECT_EQ(1u, negotiator_->kept());
    negotiator_->on_peer_died(kPeer);
    EXPECT_EQ("2:drop", sink_->take());

    start(worker_);
    keep(kPeer);
    sink_->take();
    negotiator_->withdraw_all();
    EXPECT_NE(std::string::npos, sink_->take().find("2:drop"));
    EXPECT_EQ(0u, negotiator_->kept());
}

TEST_F(LanesKept, AnEndpointThatClosesLeavesItForTheNext) {
    start(worker_);
    bring_to(LinkState::kDemoting);
    negotiator_->on_close(kPeer);
    deliver(Type::kDmark);
    deliver(Type::kDmarkAck);
    negotiator_->on_flushed(kPeer);
    deliver(Type::kFlushed);
    negotiator_->on_lane_destroyed(kPeer);
    const std::string all = sink_->take();
    EXPECT_NE(std::string::npos, all.find("2:keep 2:closed")) << all;
    negotiator_->forget(kPeer);
    EXPECT_EQ(1u, negotiator_->kept());
}

TEST_F(LanesKept, WhatFailedOrWasWithdrawnIsNotKept) {
    start(worker_);
    bring_to(LinkState::kDemoting);
    deliver(Type::kDmark);
    deliver(Type::kDmarkAck);
    negotiator_->on_flushed(kPeer);
    negotiator_->on_lane_failed(kPeer, UCS_ERR_ENDPOINT_TIMEOUT);
    sink_->take();
    deliver(Type::kFlushed);
    EXPECT_EQ("2:destroy", sink_->take());

    start(worker_);
    bring_to(LinkState::kConnecting);
    deliver(Type::kWithdraw);
    EXPECT_EQ("2:destroy", sink_->take());
}

TEST_F(LanesKept, ALaneThatWasLostMakesTheRoundMakeItsOwn) {
    start(worker_);
    const Epoch epoch = keep(kPeer);
    ask(kPeer);
    negotiator_->on_kept_lane_lost({kPeer * 10, 0});
    EXPECT_EQ(UCS_OK, accept(kPeer, epoch));
    EXPECT_EQ("2:create", sink_->take());
}

TEST_F(LanesKept, WhatOthersNeedGoesFirst) {
    // A lane that cannot be made.
    start(worker_, 2);
    keep(kPeer);
    climb(kOther, LinkState::kCreating);
    sink_->take();
    negotiator_->on_lane_created(kOther, UCS_ERR_NO_RESOURCE, {});
    EXPECT_EQ("2:drop 3:create", sink_->take());
    EXPECT_EQ(LinkState::kCreating, state(kOther));
    negotiator_->on_lane_created(kOther, UCS_ERR_NO_RESOURCE, {});
    EXPECT_EQ("3:WITHDRAW", sink_->take());
    // What another adapter has is of no use to it, unless it is memory that is lacking.
    for (const ucs_status_t lack : {UCS_ERR_NO_RESOURCE, UCS_ERR_NO_MEMORY}) {
        start(worker_, 3);
        keep(kPeer);
        sink_->elsewhere = kPeer;
        climb(kOther, LinkState::kCreating);
        sink_->take();
        negotiator_->on_lane_created(kOther, lack, {});
        EXPECT_EQ(lack == UCS_ERR_NO_MEMORY ? "2:drop 3:create" : "3:WITHDRAW", sink_->take());
    }
    // Of two, the one that helps goes, though it was kept last.
    start(worker_, 3);
    keep(kPeer);
    keep(4);
    sink_->elsewhere = kPeer;
    climb(kOther, LinkState::kCreating);
    sink_->take();
    negotiator_->on_lane_created(kOther, UCS_ERR_NO_RESOURCE, {});
    EXPECT_EQ("4:drop 3:create", sink_->take());
    // As many as there are places: the one that was kept first goes.
    config_.max_parked = 1;
    start(worker_, 2);
    keep(kPeer);
    sink_->take();
    keep(kOther);
    const std::string all = sink_->take();
    EXPECT_NE(std::string::npos, all.find("2:drop")) << all;
    EXPECT_EQ(1u, negotiator_->kept());
}

TEST_F(LanesKept, AnotherLinksLaneMakesRoomForAParkedOne) {
    config_.max_parked = 1;
    start(worker_);
    keep(4);
    climb(kOther, LinkState::kEstablished);
    ask(kPeer);
    accept(kPeer, 0);
    EXPECT_EQ(LinkState::kDemoting, state(kOther));
    negotiator_->on_marker_posted(kOther);
    EXPECT_EQ(1u, negotiator_->kept());
    advance(config_.patience);
    sink_->take();
    advance(config_.patience / 4);
    EXPECT_EQ(1u, negotiator_->parked());
    EXPECT_EQ(0u, negotiator_->kept());
    EXPECT_EQ("4:drop 2:create", sink_->take());
}

// A lane that must be parked has the place of a kept one, also where that is taken for it.
TEST_F(LanesKept, ParkedLanesComeFirst) {
    config_.max_parked = 1;
    for (const bool takes_it : {false, true}) {
        start(worker_);
        const Epoch epoch = keep(kPeer);
        climb(kOther, LinkState::kEstablished);
        if (!takes_it) {
            // Kept by one end alone.
            ask(kPeer);
            accept(kPeer, 0);
        } else {
            EXPECT_EQ(epoch, ask(kPeer));
            accept(kPeer, epoch);
        }
        EXPECT_EQ(LinkState::kDemoting, state(kOther));
        negotiator_->on_marker_posted(kOther);
        sink_->take();
        advance(config_.patience);
        advance(config_.patience / 4);
        EXPECT_EQ(1u, negotiator_->parked());
        EXPECT_EQ(0u, negotiator_->kept());
        EXPECT_EQ(takes_it ? "2:take" : "2:create", sink_->take());
        EXPECT_TRUE(negotiator_->consistent());
    }
}

std::string first_error(const Cluster& cluster) {
    return cluster.errors.empty() ? "" : cluster.errors.front();
}

Config cluster_config(std::uint32_t cap) {
    Config config = config_of_tests();
    config.cap = cap;
    config.trickle_ratio = 0;
    config.min_residence = 0;
    config.retry_after = config.busy_retry;
    config.retry_max = 4 * kMillisecond;
    return config;
}

TEST(LanesKeptSimulation, ALaneIsMadeOnceForManyRounds) {
    constexpr unsigned kRounds = 20;
    for (const bool keeps : {true, false}) {
        Config config = cluster_config(1);
        if (!keeps) config.keep = 0;
        Cluster cluster(2, config, 1);
        for (unsigned round = 0; round < kRounds; ++round) {
            const std::size_t asker = round % 2;
            cluster[asker].negotiator.advance(cluster.now());
            cluster[asker].negotiator.set_policy(1 - asker, Policy::kDedicated);
            cluster[asker].send_data(1 - asker, 5);
            cluster.run(cluster.now() + 20 * kMillisecond);
            ASSERT_TRUE(cluster.established(0, 1)) << round;
            cluster[asker].negotiator.set_policy(1 - asker, Policy::kScalable);
            cluster.run(cluster.now() + 20 * kMillisecond);
            cluster[asker].negotiator.set_policy(1 - asker, Policy::kAuto);
            cluster.run(cluster.now() + 20 * kMillisecond);
        }
        cluster.check_quiet();
        EXPECT_EQ("", first_error(cluster));
        for (const std::size_t node : {0, 1}) {
            EXPECT_EQ(keeps ? 1u : kRounds, cluster[node].lanes_made);
            EXPECT_EQ(keeps ? kRounds - 1 : 0, cluster[node].negotiator.counters().reused);
            EXPECT_EQ(0u, cluster[node].strangers);
        }
    }
}

// Switches at random, sleepers, deaths and lost endpoints, while kept lanes are lost, and adapters
// are full.
TEST(LanesKeptSimulation, LossesAtRandom) {
    std::uint64_t reused = 0, strangers = 0, made = 0, switches = 0;
    for (std::uint64_t seed = 0; seed < part_of(140); ++seed) {
        Config config = cluster_config(1 + seed % 3);
        config.keep = seed % 2 == 0 ? 60'000 * kMillisecond : 2 * kMillisecond;
        config.max_parked = 1 + seed % 4;
        config.wait_timeout = 20 * kMillisecond;
        config.patience = kMillisecond;
        config.window = 512;
        Cluster cluster(3 + seed % 4, config, seed);
        if (seed % 5 == 0) cluster.most_lanes = config.cap + 1;
        const bool is_lossy = seed % 3 != 0;
        cluster.on_change = [&](std::size_t node, Peer peer, const Change& change) {
            // Also while they are named.
            const bool is_named = change.to == LinkState::kCommitted;
            if (is_lossy && is_named && cluster.random()() % 6 == 0) cluster[node].lose_kept(peer);
        };
        const std::uint64_t faults = seed % 7;
        for (int i = 0; i < 300; ++i) {
            const std::size_t a = cluster.random()() % cluster.size();
            const std::size_t b =
                (a + 1 + cluster.random()() % (cluster.size() - 1)) % cluster.size();
            const auto choice = cluster.random()() % 12;
            if (!cluster[a].dead && !cluster[a].asleep && !cluster[a].endpoints[b].failed) {
                cluster[a].negotiator.advance(cluster.now());
                if (choice < 2) cluster[a].negotiator.set_policy(b, Policy::kScalable);
                if (choice >= 2 && choice < 6)
                    cluster[a].negotiator.set_policy(b, Policy::kDedicated);
                if (choice == 6) cluster[a].negotiator.set_policy(b, Policy::kAuto);
                if (choice == 7 && is_lossy) cluster[a].lose_kept(b);
                if (choice == 10) cluster[a].negotiator.on_lane_full(b);
                if (choice == 8 && i % 5 == 0 && faults > 3)
                    cluster.sleep(a, cluster.now() + cluster.delay(0, 6 * kMillisecond));
                if (choice == 9 && i % 20 == 0 && faults == 1) cluster.forget(a, b);
                cluster[a].send_data(b, 1 + cluster.random()() % 5);
                cluster[a].put(b);
            }
            if (i == 200 && faults == 2) cluster.kill(0);
            cluster.run(cluster.now() + cluster.delay(0, 700'000));
        }
        for (std::size_t a = 0; a < cluster.size(); ++a) {
            for (std::size_t b = 0; b < cluster.size(); ++b) {
                if (a == b || cluster[a].dead) continue;
                cluster[a].negotiator.set_policy(b, Policy::kAuto);
            }
        }
        cluster.run(cluster.now() + 10'000 * kMillisecond);
        cluster.check_quiet();
        ASSERT_EQ("", first_error(cluster)) << "seed " << seed;
        for (std::size_t a = 0; a < cluster.size(); ++a) {
            const auto& node = cluster[a];
            reused += node.negotiator.counters().reused;
            made += node.lanes_made;
            strangers += node.strangers;
            if (node.dead) continue;
            ASSERT_EQ(0u, node.negotiator.held()) << "seed " << seed;
            ASSERT_EQ(node.kept.size(), node.negotiator.kept()) << "seed " << seed;
            ASSERT_EQ(0u, node.negotiator.counters().violations) << "seed " << seed;
            // Without losses both ends take the same lane, or none.
            if (!is_lossy) {
                ASSERT_EQ(0u, node.strangers) << "seed " << seed;
            }
        }
        switches += cluster.switches();
    }
    EXPECT_GT(switches, part_of(5'000));
    EXPECT_GT(reused, part_of(1'000));
    EXPECT_GT(made, part_of(1'000));
    EXPECT_GT(strangers, part_of(5));
}

}  // namespace
}  // namespace ucp::lanes
