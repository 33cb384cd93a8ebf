// SPDX-License-Identifier: BSD-3-Clause
#include "softhca/model/fault.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace softhca::test {
namespace {

TEST(FaultPlan, NamesWhatItCannotRead) {
    FaultPlan plan;
    std::string error;
    for (const char* bad : {"drop", "drop=2", "drop=x", "delay=0.5", "what=1", "kill_qp=-1"}) {
        EXPECT_FALSE(FaultPlan::parse(bad, &plan, &error)) << bad;
        EXPECT_EQ(error, bad);
    }
    ASSERT_TRUE(FaultPlan::parse("seed=9,delay=0.5:100,link_down=3:4,die=5", &plan, &error));
    EXPECT_EQ(plan.delay_ns, 100u);
    EXPECT_EQ(plan.link_down_for, 4u);
    EXPECT_FALSE(FaultPlan().active());
}

std::vector<bool> losses(uint64_t seed) {
    FaultPlan plan;
    plan.drop = 0.3;
    plan.seed = seed;
    FaultInjector faults;
    faults.set(plan);
    std::vector<bool> lost;
    for (int message = 0; message < 1000; ++message) lost.push_back(faults.drop_message());
    return lost;
}

TEST(FaultInjector, DrawsTheSameForTheSameSeedAndAsOftenAsThePlanSays) {
    const std::vector<bool> first = losses(1);
    EXPECT_EQ(losses(1), first);
    EXPECT_NE(losses(2), first);
    EXPECT_NEAR(static_cast<double>(std::ranges::count(first, true)), 300, 60);
}

TEST(FaultInjector, CountsFromTheTimeThePlanWasSet) {
    FaultInjector faults;
    EXPECT_FALSE(faults.fail_post()) << "there is no plan";
    FaultPlan plan;
    plan.fail_post = 2;
    for (int round = 0; round < 2; ++round) {
        faults.set(plan);
        EXPECT_FALSE(faults.fail_post());
        EXPECT_TRUE(faults.fail_post());
        EXPECT_FALSE(faults.fail_post());
    }
}

TEST(FaultInjector, ALinkIsDownForSoManyOperations) {
    FaultPlan plan;
    plan.link_down_at = 2;
    plan.link_down_for = 3;
    FaultInjector faults;
    faults.set(plan);
    std::string fates;
    for (int operation = 0; operation < 6; ++operation)
        fates += faults.operation() == FaultInjector::Fate::kLinkDown ? 'd' : 'u';
    EXPECT_EQ(fates, "uddduu");
}

}  // namespace
}  // namespace softhca::test
