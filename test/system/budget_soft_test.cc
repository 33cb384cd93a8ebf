// SPDX-License-Identifier: BSD-3-Clause

// The emulated adapter's queue pairs, counted there, beside what a process may have of them.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "system/soft_world.h"

namespace ucp::test {
namespace {

using namespace std::chrono_literals;

TEST(QueuePairBudgetSoft, IsLearnedFromTheAdapterAndSplitAmongProcesses) {
    SoftWorld::Options options;
    const auto most = [&] {
        const SoftWorld world(options);
        return unwrap(world.cluster.context(0)).queue_pair_budget().most();
    };
    EXPECT_EQ(most(), 4096u);
    options.config.processes_on_host = 100;
    EXPECT_EQ(most(), 40u);
    // Half of the 262,144 that the adapter says it can have.
    options.config.max_adapter_qps = 1'000'000;
    EXPECT_EQ(most(), 1310u);
}

// Two contexts of a process, three peers each; lanes come and go and leave kept ones, bulk takes
// what there is.
TEST(QueuePairBudgetSoft, TwoContextsNeverHaveMoreThanTheirProcessMay) {
    constexpr size_t kMost = 6, kPeers = 3;
    SoftWorld::Options options;
    options.in_one_process = 2;
    options.config.max_adapter_qps = kMost;
    options.config.max_priority_endpoints = 3;
    options.config.bulk_qps = 4;
    options.config.bulk_threshold = ucs::config::MemorySize{8192};
    options.config.lane_keep = 1h;
    options.config.switch_interval = 1ms;  // lanes that are refused are asked for again soon
    options.traffic.workers = 2 + kPeers;
    options.traffic.operations = 1000000;
    options.traffic.max_length = 60000;
    SoftWorld world(options);
    Cluster& cluster = world.cluster;
    for (const size_t index : {0, 1}) {
        for (size_t peer = 2; peer < 2 + kPeers; ++peer) world.join(index, peer);
    }
    size_t peak = 0;
    const auto reaches = [&](ucp_ep_h endpoint, ucpx_lane_state_t state) {
        return world.until([&] {
            const size_t taken = cluster.dedicated_endpoints(0) + cluster.dedicated_endpoints(1);
            peak = std::max(peak, taken);
            return cluster.lane_state(endpoint) == state;
        });
    };
    for (unsigned round = 0; round < 2; ++round) {
        for (size_t peer = 2; peer < 2 + kPeers; ++peer) {
            for (const size_t index : {0, 1}) {
                const ucp_ep_h endpoint = cluster.endpoint(index, peer);
                ASSERT_EQ(ucpx_ep_lanes_request(endpoint, UCPX_LANE_POLICY_DEDICATED), UCS_OK);
                ASSERT_TRUE(reaches(endpoint, UCPX_LANE_STATE_ESTABLISHED)) << index << peer;
            }
        }
        for (size_t peer = 2; peer < 2 + kPeers; ++peer) {
            for (const size_t index : {0, 1}) {
                const ucp_ep_h endpoint = cluster.endpoint(index, peer);
                ASSERT_EQ(ucpx_ep_lanes_request(endpoint, UCPX_LANE_POLICY_SCALABLE), UCS_OK);
                ASSERT_TRUE(reaches(endpoint, UCPX_LANE_STATE_SCALABLE)) << index << peer;
            }
        }
    }
    EXPECT_EQ(peak, kMost);
    world.finish({0, 1, 2, 3, 4});
    for (const size_t index : {0, 1}) {
        EXPECT_GT(cluster.counters(index).lanes_reused, 0u);
        EXPECT_EQ(cluster.counters(index).failures, 0u);
    }
}

}  // namespace
}  // namespace ucp::test
