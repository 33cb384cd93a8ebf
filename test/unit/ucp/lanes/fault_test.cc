// SPDX-License-Identifier: BSD-3-Clause
// Faults at each step: the steps of one run are counted, then the run is repeated once for each of
// them with the fault there.
#include <gtest/gtest.h>

#include <set>

#include "unit/ucp/lanes/cluster.h"

namespace lanes_test {
namespace {

using ucp::lanes::kMillisecond;
using ucp::lanes::LinkState;
using ucp::lanes::Policy;
using ucp::lanes::Reason;

enum class Role { kAsker, kAnswerer };
using RoleState = std::pair<Role, LinkState>;

// What a step finds: the states of the links of one node, as the end that opened the round or as
// the other. An Idle link has no role, and counts for both.
class Seen {
  public:
    void note(const Link& link) {
        const bool opened = (link.epoch & 1) == (link.low_end ? 0 : 1);
        if (link.state == LinkState::kIdle || opened) states_.insert({Role::kAsker, link.state});
        if (link.state == LinkState::kIdle || !opened) {
            states_.insert({Role::kAnswerer, link.state});
        }
    }

    // Every state from `first` on in either role; those of an own request in that of the asker.
    void expect_all_from(LinkState first) const {
        for (std::size_t i = static_cast<std::size_t>(first); i < ucp::lanes::kLinkStates; ++i) {
            const auto state = static_cast<LinkState>(i);
            const bool asks = state == LinkState::kRequested || state == LinkState::kWithdrawing;
            EXPECT_TRUE(states_.contains({Role::kAsker, state})) << "asker, " << name(state);
            EXPECT_EQ(!asks, states_.contains({Role::kAnswerer, state}))
                << "answerer, " << name(state);
        }
    }

  private:
    std::set<RoleState> states_;
};

// Nodes 0 and 1 are hot, then 0 and 2 are hotter at cap 1. In between node 1 asks for 2 and takes
// it back. So every state of every role occurs; `on_step` sees each delivery and each transition.
void play(Cluster& cluster, const std::function<void()>& on_step) {
    cluster.on_step = on_step;
    cluster.measured = {{{0, 1}, 1000}, {{1, 0}, 500}};
    cluster.sample_every(50 * kMillisecond);
    const auto talk = [&cluster] {
        for (std::size_t a = 0; a < 3; ++a) {
            for (std::size_t b = 0; b < 3; ++b) {
                if (a == b || cluster[a].dead) continue;
                cluster[a].send_data(b, 3);
                cluster[a].put(b);
            }
        }
    };
    for (int i = 0; i < 10; ++i) {
        cluster.after(i * 40 * kMillisecond + cluster.delay(0, kMillisecond), talk);
    }
    cluster.run(250 * kMillisecond);
    for (const Policy policy : {Policy::kDedicated, Policy::kScalable, Policy::kAuto}) {
        if (cluster[1].dead || cluster[1].endpoints[2].failed) break;
        cluster[1].negotiator.set_policy(2, policy);
    }
    cluster.measured[{0, 2}] = 5000;
    cluster.run(450 * kMillisecond);
}

Config config() {
    Config made = config_of_tests();
    made.cap = 1;
    made.trickle_ratio = 0;
    made.min_residence = 50 * kMillisecond;
    made.wait_timeout = 20 * kMillisecond;
    made.refresh = 100 * kMillisecond;
    made.stale_after = 200 * kMillisecond;
    made.hold = 0;
    return made;
}

// Of crossing requests the one of the lower worker id counts: in one of these runs node 0 has the
// lower one, in the other node 2.
constexpr std::uint64_t kSeeds[] = {2, 7};

// Each step gets its fault; one in three where less than half of the simulations is wanted.
std::size_t stride() {
    return part_of(10) >= 5 ? 1 : 3;
}

std::size_t steps_of_a_run(std::uint64_t seed, Seen& seen) {
    std::size_t steps = 0;
    Cluster cluster(3, config(), seed);
    play(cluster, [&] {
        ++steps;
        for (std::size_t node = 0; node < 3; ++node) {
            for (const auto& [peer, link] : cluster[node].negotiator.links()) seen.note(link);
        }
    });
    cluster.check_quiet();
    EXPECT_TRUE(cluster.errors.empty()) << cluster.errors.front();
    EXPECT_TRUE(cluster.established(0, 2));
    EXPECT_FALSE(cluster.established(0, 1));
    return steps;
}

void kill_at(std::uint64_t seed, std::size_t victim, std::size_t step, Seen& survivors) {
    Cluster cluster(3, config(), seed);
    std::size_t at = 0;
    play(cluster, [&] {
        if (at++ != step) return;
        cluster.kill(victim);
        for (std::size_t node = 0; node < 3; ++node) {
            const Link* link = cluster[node].negotiator.find(victim);
            if (node != victim && link != nullptr) survivors.note(*link);
        }
    });
    // Whoever holds anything for the dead finds out; the survivors go on together.
    const std::size_t a = victim == 0 ? 1 : 0;
    const std::size_t b = victim == 2 ? 1 : 2;
    cluster.measured[{a, b}] = 3000;
    cluster.run(6000 * kMillisecond);
    cluster.check_quiet();
    ASSERT_TRUE(cluster.errors.empty()) << cluster.errors.front();
    ASSERT_TRUE(cluster.established(a, b) && cluster.established(b, a));
}

TEST(LanesFaults, APeerKilledAtEachStep) {
    Seen seen, survivors;
    for (const std::uint64_t seed : kSeeds) {
        const std::size_t steps = steps_of_a_run(seed, seen);
        ASSERT_GT(steps, 100u);
        for (std::size_t victim = 0; victim < 3; ++victim) {
            for (std::size_t step = 0; step < steps; step += stride()) {
                SCOPED_TRACE(testing::Message()
                             << "seed " << seed << " victim " << victim << " step " << step);
                ASSERT_NO_FATAL_FAILURE(kill_at(seed, victim, step, survivors));
            }
        }
    }
    seen.expect_all_from(LinkState::kIdle);
    survivors.expect_all_from(LinkState::kIdle);
}

// What the end that remembers has at that step; its sends end, and the two find to each other
// again.
void forget_at(std::uint64_t seed, std::size_t node, std::size_t peer, std::size_t step,
               Seen& seen) {
    Cluster cluster(3, config(), seed);
    std::size_t at = 0;
    play(cluster, [&] {
        if (at++ != step) return;
        const Link* link = cluster[peer].negotiator.find(node);
        if (link != nullptr) seen.note(*link);
        cluster.forget(node, peer);
        cluster[peer].send_data(node, 20);  // more than a window
    });
    cluster.run(3000 * kMillisecond);
    cluster.check_quiet();
    ASSERT_TRUE(cluster.errors.empty()) << cluster.errors.front();
    cluster.measured = {{{node, peer}, 20000}, {{peer, node}, 20000}};
    cluster.run(6000 * kMillisecond);
    cluster.check_quiet();
    ASSERT_TRUE(cluster.errors.empty()) << cluster.errors.front();
    ASSERT_TRUE(cluster.established(node, peer) && cluster.established(peer, node));
}

TEST(LanesFaults, APeerThatForgetsAtEachStepAndLives) {
    Seen run, seen;
    for (const std::uint64_t seed : kSeeds) {
        const std::size_t steps = steps_of_a_run(seed, run);
        for (const auto& [node, peer] : {std::pair{0, 1}, {1, 0}, {0, 2}, {2, 0}, {1, 2}, {2, 1}}) {
            for (std::size_t step = 0; step < steps; step += stride()) {
                SCOPED_TRACE(testing::Message() << "seed " << seed << " node " << node
                                                << " forgets " << peer << " step " << step);
                ASSERT_NO_FATAL_FAILURE(forget_at(seed, node, peer, step, seen));
            }
        }
    }
    seen.expect_all_from(LinkState::kIdle);
}

// @return whether an endpoint failed
bool fail_lane_at(std::uint64_t seed, std::size_t end, std::size_t step, Seen& seen) {
    Cluster cluster(3, config(), seed);
    const std::size_t peer = end == 0 ? 1 : 0;
    std::size_t at = 0;
    play(cluster, [&] {
        if (at++ != step || cluster[end].endpoints[peer].uid == 0) return;
        seen.note(*cluster[end].negotiator.find(peer));
        cluster[end].negotiator.on_lane_failed(peer, UCS_ERR_ENDPOINT_TIMEOUT);
    });
    cluster.run(3000 * kMillisecond);
    const bool failed = cluster[end].endpoints[peer].failed;
    for (const auto& [a, b] : {std::pair{end, peer}, std::pair{peer, end}}) {
        const Link* link = cluster[a].negotiator.find(b);
        EXPECT_TRUE(!failed || link == nullptr) << name(link->state);
    }
    cluster.check_quiet();
    EXPECT_TRUE(cluster.errors.empty()) << cluster.errors.front();
    return failed;
}

// The dedicated lane of one end breaks at each step. Either the round is withdrawn, or both ends'
// endpoints fail and their slots are free.
TEST(LanesFaults, ALaneThatFailsAtEachStep) {
    std::size_t failures = 0;
    Seen run, seen;
    for (const std::uint64_t seed : kSeeds) {
        const std::size_t steps = steps_of_a_run(seed, run);
        for (std::size_t end = 0; end < 3; ++end) {
            for (std::size_t step = 0; step < steps; step += stride()) {
                SCOPED_TRACE(testing::Message()
                             << "seed " << seed << " end " << end << " step " << step);
                failures += fail_lane_at(seed, end, step, seen);
                if (HasFailure()) return;
            }
        }
    }
    EXPECT_GT(failures, 20u);
    seen.expect_all_from(LinkState::kCreating);
}

// Lanes that cannot be made: every round ends, nothing is held, and it works once they can.
TEST(LanesFaults, LanesThatCannotBeMade) {
    Config patient = config();
    patient.retry_after = 10 * kMillisecond;
    patient.retry_max = 20 * kMillisecond;
    Cluster cluster(2, patient, 3);
    cluster.create_failures = 101;
    cluster.measured = {{{0, 1}, 1000}, {{1, 0}, 500}};
    cluster.sample_every(20 * kMillisecond);
    cluster.run(500 * kMillisecond);
    EXPECT_GT(cluster[0].negotiator.counters().withdrawals, 2u);
    EXPECT_FALSE(cluster.established(0, 1));
    cluster.create_failures = 0;
    cluster.run(700 * kMillisecond);
    cluster.check_quiet();
    EXPECT_TRUE(cluster.errors.empty()) << cluster.errors.front();
    EXPECT_TRUE(cluster.established(0, 1) && cluster.established(1, 0));
}

// The talk's picture: 15 of 15 taken, the 16th is denied; a hotter one replaces the coldest.
TEST(LanesCapacity, FifteenOfFifteen) {
    Config picture = config_of_tests();
    picture.cap = 15;
    Cluster cluster(17, picture, 5);
    for (std::size_t i = 1; i <= 15; ++i) cluster.measured[{i, 0}] = 1000 + 100 * i;
    cluster.sample_every(100 * kMillisecond);
    cluster.run(1000 * kMillisecond);
    EXPECT_EQ(15u, cluster[0].negotiator.held());

    cluster.measured[{16, 0}] = 1050;
    cluster.run(2000 * kMillisecond);
    EXPECT_FALSE(cluster.established(16, 0));
    EXPECT_GE(cluster[16].negotiator.counters().denials_received, 1u);
    EXPECT_EQ(Reason::kOutranked, cluster[16].negotiator.find(0)->reason);
    EXPECT_EQ(15u, cluster[0].negotiator.held());

    cluster.measured[{16, 0}] = 5000;
    cluster.run(4000 * kMillisecond);
    EXPECT_TRUE(cluster.established(16, 0) && cluster.established(0, 16));
    EXPECT_FALSE(cluster.established(1, 0));
    EXPECT_EQ(15u, cluster[0].negotiator.held());
    cluster.check_quiet();
    EXPECT_TRUE(cluster.errors.empty()) << cluster.errors.front();
}

}  // namespace
}  // namespace lanes_test
