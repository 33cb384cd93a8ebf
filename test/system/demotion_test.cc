// SPDX-License-Identifier: BSD-3-Clause

// The end of a dedicated lane, seen from the end that hears of it last.

#include "system/soft_world.h"

namespace ucp::test {
namespace {

// Lets time pass for the adapters and for one worker only.
void step_alone(SoftWorld& world, size_t index) {
    world.cluster.clock.advance(std::chrono::nanoseconds(500));
    world.wire.advance_to(world.cluster.clock.now());
    ucp_worker_progress(world.cluster.worker(index));
    world.wire.leave(index);
}

// Worker 0 has destroyed its end; worker 1, which has not run since, flushes. Of its own end all is
// done but a grant that it posted after the lane's flush, unsignalled: a flush that made that end
// visible would write to a queue pair that is gone.
TEST(Demotion, AFlushOfALaneThatIsDoneSucceedsWhenThePeersEndIsGone) {
    unsigned seen = 0;
    // The messages before decide at which one a grant is due.
    for (unsigned messages = 0; messages < 8; ++messages) {
        SoftWorld::Options options;
        options.traffic.workers = 2;
        options.variables = {{"RC_TIMEOUT", "16us"}, {"RC_FC_WND_SIZE", "2"}};
        SoftWorld world(options);
        Cluster& cluster = world.cluster;
        EndpointFailure failure;
        const ucp_ep_h from = cluster.endpoint(0, 1);
        const ucp_ep_h to = cluster.connect(1, 0, with_handler(failure));
        ASSERT_EQ(ucpx_ep_lanes_request(from, UCPX_LANE_POLICY_DEDICATED), UCS_OK);
        const auto is_up = [&] {
            return cluster.lane_state(from) == UCPX_LANE_STATE_ESTABLISHED &&
                   cluster.lane_state(to) == UCPX_LANE_STATE_ESTABLISHED;
        };
        ASSERT_TRUE(cluster.until(is_up));
        for (unsigned count = 0; count < messages; ++count) {
            EXPECT_EQ(cluster.finish(ucp_am_send_nbx(from, 0, nullptr, 0, "", 0, &kNothing)),
                      UCS_OK);
        }
        ASSERT_EQ(ucpx_ep_lanes_request(to, UCPX_LANE_POLICY_SCALABLE), UCS_OK);
        for (unsigned count = 0; world.wire.dedicated_endpoints(0) != 0; ++count) {
            ASSERT_LT(count, 20000u);
            cluster.step();
        }
        if (world.wire.dedicated_endpoints(1) == 0) continue;
        ++seen;
        const ucs_status_ptr_t flush = ucp_ep_flush_nbx(to, &kNothing);
        // Long enough for the adapter to give up whatever it may have posted.
        for (unsigned count = 0; count < 2000; ++count) step_alone(world, 0);
        EXPECT_EQ(cluster.finish(flush), UCS_OK);
        EXPECT_TRUE(cluster.until([&] { return world.wire.dedicated_endpoints(1) == 0; }));
        EXPECT_EQ(failure.calls, 0u);
    }
    EXPECT_GT(seen, 0u);
}

}  // namespace
}  // namespace ucp::test
