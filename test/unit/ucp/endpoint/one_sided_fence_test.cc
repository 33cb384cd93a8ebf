// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/endpoint/one_sided_fence.h"

#include <gtest/gtest.h>

namespace ucp {
namespace {

constexpr uint8_t kScalable = 1, kDedicated = 2;

TEST(OneSidedFence, NothingIsWaitedForWithoutOperations) {
    OneSidedFence fence(7);
    EXPECT_TRUE(fence.is_passed(7));
    EXPECT_FALSE(fence.is_passed(8)) << "a fence that it has not seen";
    EXPECT_EQ(fence.before(8), 0);
    fence.obey(8);
    EXPECT_TRUE(fence.is_passed(8));
}

TEST(OneSidedFence, OperationsBehindAFenceFollowThoseBeforeIt) {
    OneSidedFence fence(0);
    fence.use(kScalable);
    EXPECT_TRUE(fence.is_passed(0)) << "without a fence they have no order";
    EXPECT_EQ(fence.before(0), 0);
    EXPECT_EQ(fence.before(1), kScalable);
    fence.obey(1);
    EXPECT_FALSE(fence.is_passed(1));
    EXPECT_EQ(fence.before(), kScalable);
    EXPECT_EQ(fence.since(), 0);
    fence.use(kDedicated);
    EXPECT_EQ(fence.before(1), kScalable);
    EXPECT_EQ(fence.before(2), kScalable | kDedicated) << "those before both fences";
}

TEST(OneSidedFence, AFlushedLaneIsForgotten) {
    OneSidedFence fence(0);
    fence.use(kScalable);
    fence.obey(1);
    fence.use(kScalable);
    fence.use(kDedicated);
    fence.forget(kScalable);
    EXPECT_TRUE(fence.is_passed(1));
    EXPECT_EQ(fence.before(2), kDedicated);
}

TEST(OneSidedFence, WhatPassesWasBeforeTheFenceOnly) {
    OneSidedFence fence(0);
    fence.use(kDedicated);
    fence.obey(1);
    fence.use(kDedicated);
    fence.pass(kDedicated);
    EXPECT_TRUE(fence.is_passed(1));
    EXPECT_EQ(fence.since(), kDedicated);
}

TEST(OneSidedFence, AFlushThatBeginsBeforeAFenceSaysNothingOfIt) {
    OneSidedFence fence(0);
    fence.use(kScalable);
    fence.obey(1);
    const uint32_t begun = fence.seen();
    fence.use(kDedicated);
    fence.obey(2);
    fence.flushed(begun);
    EXPECT_EQ(fence.before(), kScalable | kDedicated);
    fence.flushed(fence.seen());
    EXPECT_TRUE(fence.is_passed(2));
}

TEST(OneSidedFence, NumbersOfFencesBeginAnew) {
    OneSidedFence fence(UINT32_MAX);
    fence.use(kScalable);
    fence.obey(0);
    EXPECT_EQ(fence.before(), kScalable);
    EXPECT_FALSE(fence.has_seen(UINT32_MAX));
}

}  // namespace
}  // namespace ucp
