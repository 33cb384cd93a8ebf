// SPDX-License-Identifier: BSD-3-Clause
#include "tools/sim/matching.h"

#include <gtest/gtest.h>

namespace tools {
namespace {

TEST(GreedyMatching, TakesTheHeaviestWhoseEndsHaveASlot) {
    const auto chosen = greedy_matching({{0, 1, 5}, {1, 2, 9}, {2, 3, 7}, {0, 3, 1}}, 4, 1);
    ASSERT_EQ(chosen.size(), 2u);
    EXPECT_EQ(chosen[0].weight, 9u);
    EXPECT_EQ(chosen[1].weight, 1u);
}

TEST(GreedyMatching, TiesGoByRanks) {
    const auto chosen = greedy_matching({{1, 2, 4}, {0, 1, 4}}, 3, 1);
    ASSERT_EQ(chosen.size(), 1u);
    EXPECT_EQ(chosen[0].a, 0u);
}

TEST(GreedyMatching, LeavesIdleLinksOut) {
    EXPECT_TRUE(greedy_matching({{0, 1, 0}}, 2, 1).empty());
}

TEST(CompareMatching, EqualSetsAreEqual) {
    const std::vector<WeightedLink> links{{0, 1, 10}, {2, 3, 8}, {1, 2, 3}};
    const MatchingReport report = compare_matching(links, {{0, 1, 10}, {2, 3, 8}}, 4, 1, 0.2);
    EXPECT_EQ(report.differing, 0u);
    EXPECT_TRUE(report.unexplained.empty());
    EXPECT_DOUBLE_EQ(report.ratio(), 1.0);
}

// 11 against 10 is within a margin of 0.2: the incumbent may stay.
TEST(CompareMatching, NearTiesAreExplainedByTheMargin) {
    const std::vector<WeightedLink> links{{0, 1, 10}, {1, 2, 11}};
    const MatchingReport near = compare_matching(links, {{0, 1, 10}}, 3, 1, 0.2);
    EXPECT_EQ(near.differing, 2u);
    EXPECT_TRUE(near.unexplained.empty());
    EXPECT_EQ(compare_matching(links, {{0, 1, 10}}, 3, 1, 0.05).unexplained.size(), 1u);
}

TEST(CompareMatching, AFreeSlotExcusesNothing) {
    const MatchingReport report = compare_matching({{0, 1, 1}}, {}, 2, 1, 0.2);
    ASSERT_EQ(report.unexplained.size(), 1u);
    EXPECT_EQ(report.unexplained[0].weight, 1u);
    EXPECT_DOUBLE_EQ(report.ratio(), 0.0);
}

}  // namespace
}  // namespace tools
