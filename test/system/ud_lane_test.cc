// SPDX-License-Identifier: BSD-3-Clause

// Lanes without DC: from ud_verbs to rc and back, while datagrams are lost, doubled and overtaken.

#include "system/soft_world.h"

namespace ucp::test {
namespace {

class DatagramLanes : public testing::TestWithParam<const char*> {};

TEST_P(DatagramLanes, AHotPairIsPromotedUnderTrafficAndGivesItsLaneBack) {
    SoftWorld::Options options;
    options.transports = {"ud_verbs", GetParam()};
    options.variables.push_back({"UD_TIMER_TICK", "30us"});
    options.traffic.workers = 3;
    options.traffic.operations = 1000000;
    options.traffic.max_length = 10000;
    options.config.max_priority_endpoints = 1;
    options.config.switch_interval = std::chrono::milliseconds(1);
    options.config.sample_duty = 1;
    options.config.score_hold = ucs::Duration(0);
    options.faults.ud_drop = options.faults.ud_duplicate = options.faults.ud_delay = 0.05;
    options.faults.ud_delay_ns = 20000;
    SoftWorld world(options);
    world.join(0, 1);
    const auto state = [&](size_t from, size_t to) {
        return world.cluster.lane_state(world.cluster.endpoint(from, to));
    };
    ASSERT_TRUE(world.until([&] {
        return state(0, 1) == UCPX_LANE_STATE_ESTABLISHED &&
               state(1, 0) == UCPX_LANE_STATE_ESTABLISHED;
    }));
    EXPECT_EQ(world.cluster.dedicated_endpoints(0), 1u);
    EXPECT_EQ(world.cluster.dedicated_endpoints(2), 0u);
    world.finish({0, 1});
    // Nobody sends any more.
    EXPECT_TRUE(world.until([&] { return state(0, 1) == UCPX_LANE_STATE_SCALABLE; }));
    EXPECT_TRUE(world.until([&] { return world.cluster.dedicated_endpoints(0) == 0; }));
    EXPECT_EQ(world.cluster.counters(0).promotions, 1u);
    EXPECT_EQ(world.cluster.counters(0).demotions, 1u);
    EXPECT_EQ(world.cluster.counters(0).failures, 0u);
}

INSTANTIATE_TEST_SUITE_P(Dedicated, DatagramLanes, testing::Values("rc_mlx5", "rc_verbs"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace ucp::test
