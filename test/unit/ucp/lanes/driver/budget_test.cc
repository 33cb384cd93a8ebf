// SPDX-License-Identifier: BSD-3-Clause

// What a process may have of dedicated queue pairs (UCX_MAX_DEDICATED_QPS, UCX_MAX_ADAPTER_QPS) is
// shared by its workers.

#include <gtest/gtest.h>

#include <chrono>

#include "unit/ucp/cluster.h"

namespace ucp::test {
namespace {

// One queue pair for the worker of node 0 and another one of the same process.
Cluster::Options one_queue_pair() {
    Cluster::Options options;
    options.config.max_priority_endpoints = 1;
    options.config.bulk_qps = 0;
    options.config.lane_keep = std::chrono::hours(1);
    options.config.switch_interval = std::chrono::milliseconds(1);  // a lane is tried again soon
    return options;
}

// The first worker keeps a lane that it has no use for, until the other one wants one; then that
// one has it, and the first gets none.
void share_the_lane(Cluster& cluster, ucp_worker_h other, ucp_ep_h its_endpoint, size_t peer) {
    const ucp_ep_h endpoint = cluster.endpoint(0, peer);
    const auto reaches = [&](ucp_ep_h which, ucpx_lane_state_t state) {
        return cluster.until(
            [&] {
                ucp_worker_progress(other);
                return cluster.lane_state(which) == state;
            },
            20000);
    };
    const uint64_t other_uuid = unwrap(other).uuid();
    ASSERT_EQ(ucpx_ep_lanes_request(endpoint, UCPX_LANE_POLICY_DEDICATED), UCS_OK);
    ASSERT_TRUE(reaches(endpoint, UCPX_LANE_STATE_ESTABLISHED));
    ASSERT_EQ(ucpx_ep_lanes_request(endpoint, UCPX_LANE_POLICY_SCALABLE), UCS_OK);
    ASSERT_TRUE(reaches(endpoint, UCPX_LANE_STATE_SCALABLE));
    EXPECT_EQ(cluster.counters(0).kept, 1u);
    EXPECT_EQ(cluster.fabric.dedicated_endpoints(cluster.uuid(0)), 1u);

    ASSERT_EQ(ucpx_ep_lanes_request(its_endpoint, UCPX_LANE_POLICY_DEDICATED), UCS_OK);
    ASSERT_TRUE(reaches(its_endpoint, UCPX_LANE_STATE_ESTABLISHED));
    EXPECT_EQ(cluster.counters(0).kept, 0u);
    EXPECT_EQ(cluster.fabric.dedicated_endpoints(other_uuid), 1u);
    EXPECT_EQ(cluster.fabric.dedicated_endpoints(cluster.uuid(0)), 0u);

    ASSERT_EQ(ucpx_ep_lanes_request(endpoint, UCPX_LANE_POLICY_DEDICATED), UCS_OK);
    EXPECT_FALSE(reaches(endpoint, UCPX_LANE_STATE_ESTABLISHED));
    EXPECT_EQ(cluster.fabric.dedicated_endpoints(cluster.uuid(0)), 0u);
}

TEST(SharedQueuePairs, OfTheWorkersOfAContext) {
    Cluster::Options options = one_queue_pair();
    options.config.max_dedicated_qps = 1;
    Cluster cluster(3, options);
    const ucp_worker_params_t params{};
    ucp_worker_h second = nullptr;
    ASSERT_EQ(ucp_worker_create(cluster.context(0), &params, &second), UCS_OK);
    ucp_address_t* address = nullptr;
    size_t length = 0;
    ASSERT_EQ(ucp_worker_get_address(cluster.worker(2), &address, &length), UCS_OK);
    ucp_ep_params_t to{};
    to.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    to.address = address;
    ucp_ep_h endpoint = nullptr;
    ASSERT_EQ(ucp_ep_create(second, &to, &endpoint), UCS_OK);
    ucp_worker_release_address(cluster.worker(2), address);
    share_the_lane(cluster, second, endpoint, 1);
    ucp_worker_destroy(second);
}

TEST(SharedQueuePairs, ALaneThatTheDeviceHasNoRoomForTakesThatOfAKeptOne) {
    Cluster::Options options = one_queue_pair();
    options.config.max_priority_endpoints = 2;
    options.fabric.max_dedicated = 1;
    Cluster cluster(3, options);
    const ucp_ep_h first = cluster.endpoint(0, 1), second = cluster.endpoint(0, 2);
    const auto reaches = [&](ucp_ep_h which, ucpx_lane_state_t state) {
        return cluster.until([&] { return cluster.lane_state(which) == state; }, 20000);
    };
    ASSERT_EQ(ucpx_ep_lanes_request(first, UCPX_LANE_POLICY_DEDICATED), UCS_OK);
    ASSERT_TRUE(reaches(first, UCPX_LANE_STATE_ESTABLISHED));
    ASSERT_EQ(ucpx_ep_lanes_request(first, UCPX_LANE_POLICY_SCALABLE), UCS_OK);
    ASSERT_TRUE(reaches(first, UCPX_LANE_STATE_SCALABLE));
    EXPECT_EQ(cluster.counters(0).kept, 1u);
    ASSERT_EQ(ucpx_ep_lanes_request(second, UCPX_LANE_POLICY_DEDICATED), UCS_OK);
    EXPECT_TRUE(reaches(second, UCPX_LANE_STATE_ESTABLISHED));
    EXPECT_EQ(cluster.counters(0).kept, 0u);
}

TEST(SharedQueuePairs, OfTheContextsOfAProcessOnAnAdapter) {
    Cluster::Options options = one_queue_pair();
    options.config.max_adapter_qps = 1;
    options.fabric.room_for_dedicated = 1000;
    options.in_one_process = 2;
    Cluster cluster(4, options);
    share_the_lane(cluster, cluster.worker(1), cluster.endpoint(1, 3), 2);
}

}  // namespace
}  // namespace ucp::test
