// SPDX-License-Identifier: BSD-3-Clause

// How many dedicated queue pairs a context may have: what counts, and what the limits are.

#include "ucp/context/queue_pair_budget.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "common/mock_transport.h"
#include "unit/ucp/cluster.h"
#include "unit/ucs/config/environment_fixture.h"

namespace ucp::test {
namespace {

using Share = QueuePairBudget::Share;
using Use = QueuePairBudget::Use;

TEST(QueuePairBudget, AShareIsGivenBackOnce) {
    QueuePairBudget budget(2);
    Share first = budget.take(0, Use::kLane), second = budget.take(1, Use::kBulk);
    EXPECT_TRUE(first && second);
    EXPECT_FALSE(budget.take(0, Use::kLane));
    Share moved(std::move(first));
    EXPECT_FALSE(budget.take(0, Use::kLane));
    moved.give_back();
    moved.give_back();
    Share third = budget.take(0, Use::kLane);
    EXPECT_TRUE(third);
    EXPECT_FALSE(budget.take(0, Use::kLane));
    third = Share();
    EXPECT_TRUE(budget.take(0, Use::kLane));
}

TEST(QueuePairBudget, AnAdapterIsSharedByItsPortsAndByAllContexts) {
    AdapterCounts process;
    QueuePairBudget one(UINT32_MAX), other(UINT32_MAX);
    for (const unsigned port : {0u, 1u}) one.limit(port, process.find_or_make("mlx5_0"), 3);
    one.limit(2, process.find_or_make("mlx5_1"), 1);
    other.limit(5, process.find_or_make("mlx5_0"), 3);
    EXPECT_EQ(one.most(), 4u);
    const Share first = one.take(0, Use::kLane), second = one.take(1, Use::kLane);
    Share third = other.take(5, Use::kBulk);
    EXPECT_TRUE(first && second && third);
    EXPECT_FALSE(one.take(1, Use::kBulk));
    EXPECT_FALSE(other.take(5, Use::kBulk));
    EXPECT_TRUE(one.take(2, Use::kLane));
    EXPECT_TRUE(one.take(7, Use::kLane));  // of nobody with a limit: a ring in memory
    EXPECT_TRUE(one.share_an_adapter(0, 1) && one.share_an_adapter(7, 7));
    EXPECT_FALSE(one.share_an_adapter(0, 2) || one.share_an_adapter(0, 7));
    third.give_back();
    EXPECT_TRUE(one.take(1, Use::kBulk));
}

TEST(QueuePairBudget, RoomIsWhatNobodyHas) {
    AdapterCounts process;
    QueuePairBudget one(5), other(UINT32_MAX);
    EXPECT_EQ(other.room(), UINT32_MAX);
    EXPECT_EQ(one.room_of(0), 5u);
    for (const unsigned port : {0u, 1u}) one.limit(port, process.find_or_make("mlx5_0"), 3);
    one.limit(2, process.find_or_make("mlx5_1"), 4);
    other.limit(0, process.find_or_make("mlx5_0"), 3);
    EXPECT_EQ(one.room(), 5u);
    const Share elsewhere = other.take(0, Use::kLane);
    EXPECT_EQ(one.room_of(1), 2u);
    EXPECT_EQ(one.room_of(2), 4u);
    EXPECT_EQ(one.room_of(7), 5u);
    const Share first = one.take(0, Use::kBulk), second = one.take(1, Use::kBulk);
    EXPECT_EQ(one.room_of(0), 0u);
    EXPECT_EQ(one.room_of(2), 3u);
    EXPECT_EQ(one.room(), 3u);
    EXPECT_EQ(other.room(), 0u);
    // What the adapter refuses is not counted.
    EXPECT_FALSE(one.take(0, Use::kLane));
    EXPECT_EQ(one.room(), 3u);
}

TEST(QueuePairBudget, WhatALaneLacksIsWantedWhereItIsUntilSomeIsGivenBack) {
    AdapterCounts process;
    QueuePairBudget one(UINT32_MAX), other(UINT32_MAX);
    one.limit(0, process.find_or_make("mlx5_0"), 1);
    other.limit(0, process.find_or_make("mlx5_0"), 1);
    other.limit(1, process.find_or_make("mlx5_1"), 1);
    Share held = one.take(0, Use::kBulk);
    const Share elsewhere = other.take(1, Use::kBulk);
    EXPECT_FALSE(other.take(0, Use::kBulk));
    EXPECT_FALSE(one.is_lane_wanted());
    EXPECT_FALSE(other.take(0, Use::kLane));
    EXPECT_TRUE(one.is_lane_wanted());
    EXPECT_TRUE(held.is_wanted());
    EXPECT_FALSE(elsewhere.is_wanted());
    held.give_back();
    EXPECT_FALSE(one.is_lane_wanted());
    EXPECT_TRUE(other.take(0, Use::kLane));
}

// --- what a context's limit is

using QueuePairLimit = ucs::test::EnvironmentTest;

// Of a context whose program says how many processes there are, 0: it does not, on such devices.
uint32_t most(const Config& config, size_t processes, const uct::mock::Config& devices) {
    uct::mock::Fabric fabric(devices);
    uct::Component* components[] = {&fabric.component()};
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    if (processes != 0) params.field_mask |= UCP_PARAM_FIELD_ESTIMATED_NUM_PPN;
    params.features = UCP_FEATURE_TAG;
    params.estimated_num_ppn = processes;
    ContextSeams seams;
    seams.components = components;
    std::unique_ptr<Context> context;
    EXPECT_EQ(Context::create(params, config, seams, &context), UCS_OK);
    return context->queue_pair_budget().most();
}

// On a device with room for so many.
uint32_t most(const Config& config, size_t processes = 0, size_t room = 100000) {
    return most(config, processes, uct::mock::Config{.room_for_dedicated = room});
}

TEST_F(QueuePairLimit, EachAdapterHasItsOwnWhichItsPortsShare) {
    for (const bool are_ports : {false, true}) {
        EXPECT_EQ(most(quiet_config(), 0,
                       {.room_for_dedicated = 100000, .devices = 2, .are_ports = are_ports}),
                  are_ports ? 4096u : 8192u);
    }
}

TEST_F(QueuePairLimit, TheProcessesOfAHostSplitAnAdapterByDefault) {
    const Config config = quiet_config();
    EXPECT_EQ(most(config), 4096u);
    EXPECT_EQ(most(config, 128), 32u);
    EXPECT_EQ(most(config, 10000), 1u);
    EXPECT_EQ(most(config, 4, 1000), 250u);
}

TEST_F(QueuePairLimit, TheUserSaysMoreThanTheProgramAndThatMoreThanTheLauncher) {
    environment = {{"OMPI_COMM_WORLD_LOCAL_SIZE", "8"}};
    Config config = quiet_config();
    EXPECT_EQ(most(config), 512u);
    EXPECT_EQ(most(config, 16), 256u);
    config.processes_on_host = 2;
    EXPECT_EQ(most(config, 16), 2048u);
    config.max_adapter_qps = 100;
    EXPECT_EQ(most(config, 16), 50u);
    config.max_dedicated_qps = 20;
    EXPECT_EQ(most(config, 16), 20u);
}

TEST_F(QueuePairLimit, EveryLauncherIsUnderstood) {
    const std::pair<ucs::MapEnvironment, uint32_t> launchers[] = {
        {{{"MPI_LOCALNRANKS", "4"}}, 1024},
        {{{"PMI_LOCAL_SIZE", "2"}}, 2048},
        {{{"SLURM_STEP_TASKS_PER_NODE", "4(x2),16,3"}}, 256},
        {{{"SLURM_STEP_TASKS_PER_NODE", "many"}}, 4096},
        {{{"MPI_LOCALNRANKS", ""}, {"PMI_LOCAL_SIZE", "8"}}, 512},
    };
    for (const auto& [variables, expected] : launchers) {
        environment = variables;
        EXPECT_EQ(most(quiet_config()), expected);
    }
}

TEST_F(QueuePairLimit, WhoWantsALaneToEachPeerHasThemUnlessToldOtherwise) {
    Config config = quiet_config();
    config.lanes = LaneMode::kDedicated;
    EXPECT_EQ(most(config), UINT32_MAX);
    config.max_adapter_qps = 30;
    EXPECT_EQ(most(config), 30u);
}

}  // namespace
}  // namespace ucp::test
