// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/sys/time.h"

#include <gtest/gtest.h>

#include "ucs/runtime/runtime.h"

namespace ucs {
namespace {

TEST(Time, DeadlinesDoNotOverflow) {
    EXPECT_EQ(deadline(Time(5s), 2s), Time(7s));
    EXPECT_EQ(deadline(Time(5s), kForever), kNever);
    EXPECT_EQ(deadline(Time(Duration::max() - Duration(1ns)), 2s), kNever);
}

TEST(Time, SecondsAndBack) {
    EXPECT_DOUBLE_EQ(seconds(1500us), 0.0015);
    EXPECT_EQ(from_seconds(0.25), Duration(250ms));
    EXPECT_EQ(from_seconds(1e300), kForever);
    EXPECT_EQ(from_seconds(seconds(kForever)), kForever);
}

TEST(WallClock, NeverGoesBack) {
    const WallClock clock;
    Time last = clock.now();
    for (int count = 0; count < 1000; ++count) {
        const Time next = clock.now();
        ASSERT_GE(next, last);
        last = next;
    }
}

TEST(WallClock, CalendarIsOfThisCentury) {
    EXPECT_GT(WallClock().calendar().time_since_epoch(), 24h * 365 * 50);
}

TEST(VirtualClock, MovesWhenTold) {
    VirtualClock clock(Time(1s));
    EXPECT_EQ(clock.now(), Time(1s));
    clock.advance(5ms);
    EXPECT_EQ(clock.now(), Time(1005ms));
    clock.advance_to(Time(2s));
    clock.advance_to(Time(1s));
    EXPECT_EQ(clock.now(), Time(2s));
    EXPECT_EQ(clock.calendar(), Time(2s));
}

TEST(Runtime, TimeAndEntropyComeFromTheSeam) {
    VirtualClock clock(Time(77s));
    SeededEntropy entropy(5), same(5);
    const Clock* old_clock = std::exchange(runtime().clock, &clock);
    Entropy* old_entropy = std::exchange(runtime().entropy, &entropy);
    EXPECT_EQ(now(), Time(77s));
    EXPECT_EQ(unique_id(), same.draw());
    runtime().clock = old_clock;
    runtime().entropy = old_entropy;
}

}  // namespace
}  // namespace ucs
