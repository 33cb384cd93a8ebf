// SPDX-License-Identifier: BSD-3-Clause

// Lanes that are kept and taken back, over the emulated adapter: its queue pairs are counted.

#include <gtest/gtest.h>

#include <set>

#include "system/soft_world.h"

namespace ucp::test {
namespace {

class KeptLanes : public testing::TestWithParam<std::vector<std::string>> {};

TEST_P(KeptLanes, OneQueuePairForManySwitchesUnderTraffic) {
    SoftWorld::Options options;
    options.transports = GetParam();
    options.config.lane_keep = std::chrono::seconds(60);
    options.config.bulk_qps = 0;
    options.config.max_priority_endpoints = 1;
    options.traffic.workers = 2;
    options.traffic.operations = 1000000;
    options.traffic.max_length = 20000;
    SoftWorld world(options);
    world.join(0, 1);
    const ucp_ep_h endpoint = world.cluster.endpoint(0, 1);
    std::set<uint32_t> queue_pairs;
    const auto reaches = [&](ucpx_lane_state_t state) {
        return world.until([&] { return world.cluster.lane_state(endpoint) == state; });
    };
    constexpr unsigned kSwitches = 8;
    for (unsigned round = 0; round < kSwitches; ++round) {
        ASSERT_EQ(ucpx_ep_lanes_request(endpoint, UCPX_LANE_POLICY_DEDICATED), UCS_OK);
        ASSERT_TRUE(reaches(UCPX_LANE_STATE_ESTABLISHED)) << round;
        for (const uint32_t number : world.wire.dedicated_numbers(0)) queue_pairs.insert(number);
        for (unsigned step = 0; step < 50; ++step) world.step();
        ASSERT_EQ(ucpx_ep_lanes_request(endpoint, UCPX_LANE_POLICY_SCALABLE), UCS_OK);
        ASSERT_TRUE(reaches(UCPX_LANE_STATE_SCALABLE)) << round;
        for (unsigned step = 0; step < 50; ++step) world.step();
    }
    world.finish({0, 1});
    EXPECT_EQ(queue_pairs.size(), 1u);
    for (const size_t index : {0, 1}) {
        EXPECT_EQ(world.cluster.counters(index).promotions, kSwitches);
        EXPECT_EQ(world.cluster.counters(index).lanes_reused, kSwitches - 1);
        EXPECT_EQ(world.cluster.counters(index).failures, 0u);
        EXPECT_EQ(world.cluster.dedicated_endpoints(index), 1u);
    }
}

INSTANTIATE_TEST_SUITE_P(Dedicated, KeptLanes,
                         testing::Values(std::vector<std::string>{"dc_mlx5", "rc_mlx5"},
                                         std::vector<std::string>{"ud_verbs", "rc_verbs"}));

}  // namespace
}  // namespace ucp::test
