// SPDX-License-Identifier: BSD-3-Clause

// UCX_MAX_DEDICATED_QPS: the workers of a context share it.

#include <gtest/gtest.h>

#include <utility>

#include "ucp/context/queue_pair_budget.h"
#include "unit/ucp/cluster.h"

namespace ucp::test {
namespace {

TEST(QueuePairBudget, AShareIsGivenBackOnce) {
    QueuePairBudget budget(2);
    QueuePairBudget::Share first(budget), second(budget), none(budget);
    EXPECT_TRUE(first && second);
    EXPECT_FALSE(none);
    QueuePairBudget::Share moved(std::move(first));
    EXPECT_EQ(budget.left(), 0u);
    moved.give_back();
    moved.give_back();
    EXPECT_EQ(budget.left(), 1u);
    second = QueuePairBudget::Share(budget);
    EXPECT_EQ(budget.left(), 1u);
}

TEST(QueuePairBudget, IsOneForAllWorkersOfAContext) {
    Cluster::Options options;
    options.config.max_priority_endpoints = 1;
    options.config.max_dedicated_qps = 1;
    options.config.bulk_qps = 0;
    Cluster cluster(3, options);
    ucp_worker_params_t params{};
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

    const auto reaches = [&](ucp_ep_h which, ucpx_lane_state_t state) {
        return cluster.until(
            [&] {
                ucp_worker_progress(second);
                return cluster.lane_state(which) == state;
            },
            5000);
    };
    const uint64_t second_uuid = unwrap(second).uuid();
    ASSERT_EQ(ucpx_ep_lanes_request(cluster.endpoint(0, 1), UCPX_LANE_POLICY_DEDICATED), UCS_OK);
    ASSERT_TRUE(reaches(cluster.endpoint(0, 1), UCPX_LANE_STATE_ESTABLISHED));
    ASSERT_EQ(ucpx_ep_lanes_request(endpoint, UCPX_LANE_POLICY_DEDICATED), UCS_OK);
    EXPECT_FALSE(reaches(endpoint, UCPX_LANE_STATE_ESTABLISHED));
    EXPECT_EQ(cluster.lane_state(endpoint), UCPX_LANE_STATE_SCALABLE);
    EXPECT_EQ(cluster.fabric.dedicated_endpoints(second_uuid), 0u);

    ASSERT_EQ(ucpx_ep_lanes_request(cluster.endpoint(0, 1), UCPX_LANE_POLICY_SCALABLE), UCS_OK);
    ASSERT_TRUE(reaches(cluster.endpoint(0, 1), UCPX_LANE_STATE_SCALABLE));
    ASSERT_EQ(ucpx_ep_lanes_request(endpoint, UCPX_LANE_POLICY_DEDICATED), UCS_OK);
    EXPECT_TRUE(reaches(endpoint, UCPX_LANE_STATE_ESTABLISHED));
    EXPECT_EQ(cluster.fabric.dedicated_endpoints(second_uuid), 1u);
    EXPECT_EQ(cluster.fabric.dedicated_endpoints(cluster.uuid(0)), 0u);
    ucp_worker_destroy(second);
}

}  // namespace
}  // namespace ucp::test
