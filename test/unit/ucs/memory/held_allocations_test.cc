// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/memory/held_allocations.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace ucs {
namespace {

TEST(HeldAllocations, HoldsUntilTheLastOperationHasEnded) {
    HeldAllocations held;
    EXPECT_FALSE(held.is_held(7));
    EXPECT_TRUE(held.hold({.allocation = 7}));
    EXPECT_TRUE(held.hold({.allocation = 7}));
    EXPECT_TRUE(held.is_held(7));
    held.release(7);
    EXPECT_TRUE(held.is_held(7));
    held.release(7);
    EXPECT_FALSE(held.is_held(7));
}

// Numbers that share a place are told apart, and the place is free again in the end.
TEST(HeldAllocations, NeverTakesOneForAnother) {
    HeldAllocations held;
    constexpr uint64_t kFirst = 3;
    unsigned refused = 0;
    EXPECT_TRUE(held.hold({.allocation = kFirst}));
    for (uint64_t other = kFirst + 1; other < kFirst + 1000; ++other) {
        EXPECT_FALSE(held.is_held(other));
        if (!held.hold({.allocation = other})) {
            ++refused;
            EXPECT_FALSE(held.is_held(other));
            continue;
        }
        EXPECT_TRUE(held.is_held(other));
        held.release(other);
        EXPECT_FALSE(held.is_held(other));
    }
    EXPECT_GT(refused, 0u);
    EXPECT_TRUE(held.is_held(kFirst));
    held.release(kFirst);
    EXPECT_FALSE(held.is_held(kFirst));
}

TEST(HeldAllocations, HasNoPlaceForWhatHasNoNumberOrTooManyUsers) {
    HeldAllocations held;
    EXPECT_FALSE(held.hold({.allocation = 0}));
    EXPECT_FALSE(held.is_held(0));
    EXPECT_FALSE(held.hold({.allocation = uint64_t{1} << 48}));
    unsigned users = 0;
    while (held.hold({.allocation = 5})) ++users;
    EXPECT_EQ(users, 65535u);
    for (; users > 0; --users) held.release(5);
    EXPECT_FALSE(held.is_held(5));
}

// What was found out holds for as long as anybody works on the allocation, and is new afterwards.
TEST(HeldAllocations, KeepsWhatIsKnownUntilTheLastOperationHasEnded) {
    HeldAllocations held;
    const MemoryInfo* const first = held.hold({.length = 100, .allocation = 7});
    ASSERT_NE(first, nullptr);
    EXPECT_EQ(held.hold({.length = 200, .allocation = 7}), first);
    EXPECT_EQ(first->length, 100u);
    held.release(7);
    EXPECT_EQ(first->length, 100u);
    held.release(7);
    const MemoryInfo* const next = held.hold({.length = 300, .allocation = 7});
    ASSERT_NE(next, nullptr);
    EXPECT_EQ(next->length, 300u);
    held.release(7);
}

TEST(HeldAllocations, HoldsAgainOnlyWhatIsHeld) {
    HeldAllocations held;
    EXPECT_EQ(held.hold_again(0), nullptr);
    EXPECT_EQ(held.hold_again(7), nullptr);
    const MemoryInfo* const first = held.hold({.allocation = 7});
    EXPECT_EQ(held.hold_again(7), first);
    EXPECT_EQ(held.hold_again(7 + 256), nullptr) << "it shares the place";
    held.release(7);
    EXPECT_TRUE(held.is_held(7));
    held.release(7);
    EXPECT_EQ(held.hold_again(7), nullptr);
    unsigned users = 0;
    ASSERT_NE(held.hold({.allocation = 5}), nullptr);
    while (held.hold_again(5) != nullptr) ++users;
    EXPECT_EQ(users, 65534u);
}

TEST(HeldAllocations, CountsWhatThreadsHoldAtOnce) {
    HeldAllocations held;
    ASSERT_TRUE(held.hold({.allocation = 9}));
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&] {
            for (int round = 0; round < 10'000; ++round) {
                EXPECT_TRUE(held.hold({.allocation = 9}));
                EXPECT_TRUE(held.is_held(9));
                held.release(9);
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(held.is_held(9));
    held.release(9);
    EXPECT_FALSE(held.is_held(9));
}

}  // namespace
}  // namespace ucs
