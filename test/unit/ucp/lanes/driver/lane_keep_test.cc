// SPDX-License-Identifier: BSD-3-Clause

// Dedicated lanes that are kept when they are given back: transport endpoints are counted.

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "unit/ucp/cluster.h"

namespace ucp::test {
namespace {

class LaneKeep : public ::testing::Test {
  protected:
    static Cluster::Options options(bool keeps) {
        Cluster::Options made;
        if (keeps) made.config.lane_keep = std::chrono::seconds(60);
        return made;
    }
    static bool reaches(Cluster& cluster, ucp_ep_h endpoint, ucpx_lane_state_t state) {
        return cluster.until([&] { return cluster.lane_state(endpoint) == state; });
    }
    static void promote(Cluster& cluster, ucp_ep_h endpoint) {
        ASSERT_EQ(ucpx_ep_lanes_request(endpoint, UCPX_LANE_POLICY_DEDICATED), UCS_OK);
        ASSERT_TRUE(reaches(cluster, endpoint, UCPX_LANE_STATE_ESTABLISHED));
    }
    static void demote(Cluster& cluster, ucp_ep_h endpoint) {
        ASSERT_EQ(ucpx_ep_lanes_request(endpoint, UCPX_LANE_POLICY_SCALABLE), UCS_OK);
        ASSERT_TRUE(reaches(cluster, endpoint, UCPX_LANE_STATE_SCALABLE));
    }
    // A message each way, each of its own content, while lanes may be on the move.
    static void talk(Cluster& cluster, ucp_ep_h there, ucp_ep_h back) {
        static uint64_t number = 0;
        for (const auto& [endpoint, to] : {std::pair{there, 1}, {back, 0}}) {
            const uint64_t sent = ++number;
            uint64_t received = 0;
            EXPECT_EQ(cluster.finish(ucp_tag_send_nbx(endpoint, &sent, 8, 7, &kNothing)), UCS_OK);
            EXPECT_EQ(cluster.finish(ucp_tag_recv_nbx(cluster.worker(static_cast<size_t>(to)),
                                                      &received, 8, 7, ~uint64_t{0}, &kNothing)),
                      UCS_OK);
            EXPECT_EQ(received, sent);
        }
    }
    static uint64_t made(const Cluster& cluster) {
        return cluster.fabric.counters(uct::mock::Kind::kDedicated).made;
    }
    static std::string info(ucp_ep_h endpoint) {
        char* text = nullptr;
        size_t length = 0;
        FILE* const stream = open_memstream(&text, &length);
        ucp_ep_print_info(endpoint, stream);
        std::fclose(stream);
        std::string result(text, length);
        std::free(text);
        return result;
    }
};

TEST_F(LaneKeep, ALaneIsMadeOnceForManySwitches) {
    constexpr unsigned kSwitches = 10;
    for (const bool keeps : {true, false}) {
        Cluster cluster(2, options(keeps));
        const ucp_ep_h there = cluster.endpoint(0, 1), back = cluster.endpoint(1, 0);
        for (unsigned round = 0; round < kSwitches; ++round) {
            const ucp_ep_h asker = round % 2 == 0 ? there : back;
            ASSERT_NO_FATAL_FAILURE(promote(cluster, asker));
            talk(cluster, there, back);
            ASSERT_NO_FATAL_FAILURE(demote(cluster, asker));
            talk(cluster, there, back);
            ASSERT_EQ(ucpx_ep_lanes_request(asker, UCPX_LANE_POLICY_AUTO), UCS_OK);
            ASSERT_TRUE(reaches(cluster, back, UCPX_LANE_STATE_SCALABLE));
            ASSERT_TRUE(reaches(cluster, there, UCPX_LANE_STATE_SCALABLE));
        }
        // One at each end.
        EXPECT_EQ(made(cluster), keeps ? 2 : 2 * kSwitches);
        for (const size_t index : {0, 1}) {
            EXPECT_EQ(cluster.counters(index).promotions, kSwitches);
            EXPECT_EQ(cluster.counters(index).lanes_reused, keeps ? kSwitches - 1 : 0);
            EXPECT_EQ(cluster.counters(index).kept, keeps ? 1u : 0u);
            EXPECT_EQ(cluster.counters(index).dedicated, 0u);
            EXPECT_EQ(cluster.fabric.dedicated_endpoints(cluster.uuid(index)), keeps ? 1u : 0u);
        }
        EXPECT_EQ(info(there).find("is kept") != std::string::npos, keeps) << info(there);
        const uint64_t uuid = cluster.uuid(0);
        cluster.destroy(0);
        EXPECT_EQ(cluster.fabric.dedicated_endpoints(uuid), 0u);
    }
}

TEST_F(LaneKeep, AnEndpointToTheSameWorkerTakesTheLaneOfTheOneBefore) {
    Cluster cluster(2, options(true));
    const ucp_ep_h back = cluster.endpoint(1, 0);
    constexpr unsigned kEndpoints = 6;
    for (unsigned round = 0; round < kEndpoints; ++round) {
        const ucp_ep_h there = cluster.connect(0, 1);
        ASSERT_NO_FATAL_FAILURE(promote(cluster, there));
        talk(cluster, there, back);
        EXPECT_EQ(cluster.finish(ucp_ep_close_nbx(there, &kNothing)), UCS_OK);
        ASSERT_TRUE(cluster.until(
            [&] { return cluster.counters(0).kept == 1 && cluster.counters(1).kept == 1; }));
    }
    EXPECT_EQ(made(cluster), 2u);
    EXPECT_EQ(cluster.counters(0).lanes_reused, kEndpoints - 1);
}

TEST_F(LaneKeep, AnAdapterThatIsFullGivesTheKeptOneForANewOne) {
    Cluster::Options full = options(true);
    full.fabric.max_dedicated = 1;
    Cluster cluster(3, full);
    ASSERT_NO_FATAL_FAILURE(promote(cluster, cluster.endpoint(0, 1)));
    ASSERT_NO_FATAL_FAILURE(demote(cluster, cluster.endpoint(0, 1)));
    EXPECT_EQ(cluster.counters(0).kept, 1u);
    ASSERT_NO_FATAL_FAILURE(promote(cluster, cluster.endpoint(0, 2)));
    EXPECT_EQ(cluster.counters(0).kept, 0u);
    // One end has dropped it: both make a new one.
    ASSERT_NO_FATAL_FAILURE(demote(cluster, cluster.endpoint(0, 2)));
    ASSERT_NO_FATAL_FAILURE(promote(cluster, cluster.endpoint(0, 1)));
    EXPECT_EQ(cluster.counters(0).lanes_reused, 0u);
    talk(cluster, cluster.endpoint(0, 1), cluster.endpoint(1, 0));
}

TEST_F(LaneKeep, ItGoesWithItsTimeAndWithItsPeer) {
    Cluster cluster(2, options(true));
    const ucp_ep_h there = cluster.endpoint(0, 1);
    ASSERT_NO_FATAL_FAILURE(promote(cluster, there));
    ASSERT_NO_FATAL_FAILURE(demote(cluster, there));
    EXPECT_EQ(cluster.counters(0).kept, 1u);
    cluster.clock.advance(std::chrono::seconds(61));
    cluster.steps(10);
    EXPECT_EQ(cluster.counters(0).kept, 0u);
    EXPECT_EQ(cluster.fabric.dedicated_endpoints(cluster.uuid(0)), 0u);

    ASSERT_NO_FATAL_FAILURE(promote(cluster, there));
    ASSERT_NO_FATAL_FAILURE(demote(cluster, there));
    EXPECT_EQ(cluster.counters(0).kept, 1u);
    ucp_request_param_t force{};
    force.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    force.flags = UCP_EP_CLOSE_FLAG_FORCE;
    EXPECT_EQ(cluster.finish(ucp_ep_close_nbx(there, &force)), UCS_OK);
    cluster.forget(0, 1);
    cluster.steps(10);
    EXPECT_EQ(cluster.counters(0).kept, 0u);
}

}  // namespace
}  // namespace ucp::test
