// SPDX-License-Identifier: BSD-3-Clause

// Lanes without DC: from ud_verbs to rc and back, while datagrams are lost, doubled and overtaken.

#include "system/soft_wire.h"
#include "system/soft_world.h"
#include "unit/ucp/region.h"
#include "unit/ucp/runtime/sender_wires.h"
#include "unit/ucs/log/log_capture.h"

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

// The scalable lane has no atomics: the processor executes them there, and so on the dedicated one.
TEST_P(DatagramLanes, AtomicsAreTheProcessorsOnEitherLane) {
    for (const AtomicMode mode : {AtomicMode::kGuess, AtomicMode::kDevice}) {
        const ucs::LogCapture log;
        SoftWire wire(2, softhca::Model(), softhca::FaultPlan(), SoftWire::Variables(), 1);
        Cluster::Options options;
        options.wire = &wire;
        options.config.transports = {false, {"ud_verbs", GetParam()}};
        options.config.atomics = mode;
        Cluster cluster(2, options);
        Region there(cluster.context(1), 64);
        there.open(cluster.endpoint(0, 1));
        join_by_lane(cluster, 0, 1);
        cluster.hold_still(1);
        const uint64_t one = 1;
        ucp_request_param_t param{};
        param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
        param.datatype = ucp_dt_make_contig(sizeof(one));
        const ucs_status_ptr_t adding = ucp_atomic_op_nbx(
            cluster.endpoint(0, 1), UCP_ATOMIC_OP_ADD, &one, 1, there.address(), there.key, &param);
        cluster.steps(1000);
        EXPECT_EQ(there.bytes[0], 0);
        cluster.hold_still(SIZE_MAX);
        EXPECT_EQ(cluster.finish(adding), UCS_OK);
        EXPECT_EQ(cluster.finish(ucp_worker_flush_nbx(cluster.worker(0), &kNothing)), UCS_OK);
        EXPECT_EQ(there.bytes[0], 1);
        EXPECT_EQ(log.contains("has no effect"), mode == AtomicMode::kDevice);
        there.close();
    }
}

INSTANTIATE_TEST_SUITE_P(Dedicated, DatagramLanes, testing::Values("rc_mlx5", "rc_verbs"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace ucp::test
