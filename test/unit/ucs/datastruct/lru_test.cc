// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/datastruct/lru.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace ucs {
namespace {

class LruTest : public ::testing::Test {
  protected:
    void touch(int owner) {
        lru_.touch(slots_[owner], [this](int& value) { evicted_.push_back(value); }) = owner;
    }

    std::vector<int> order() {
        std::vector<int> values;
        lru_.for_each([&](int value) { values.push_back(value); });
        return values;
    }

    Lru<int> lru_{3};
    std::array<Lru<int>::Slot, 10> slots_;
    std::vector<int> evicted_;
};

TEST_F(LruTest, SlotIsTwoBytes) {
    EXPECT_EQ(sizeof(Lru<int>::Slot), 2u);
}

TEST_F(LruTest, NewestComesFirst) {
    for (const int owner : {1, 2, 3, 1}) touch(owner);
    EXPECT_EQ(order(), (std::vector<int>{1, 3, 2}));
    EXPECT_TRUE(lru_.is_newest(slots_[1]));
    EXPECT_FALSE(lru_.is_newest(slots_[3]));
    EXPECT_EQ(lru_.newest(), 1);
}

TEST_F(LruTest, TheOldestMakesRoom) {
    for (const int owner : {1, 2, 3, 1, 4}) touch(owner);
    EXPECT_EQ(evicted_, std::vector<int>{2});
    EXPECT_FALSE(slots_[2].in_use());
    EXPECT_EQ(order(), (std::vector<int>{4, 1, 3}));
    EXPECT_EQ(lru_.size(), 3u);
}

TEST_F(LruTest, AnEntryKeepsItsValueTillItGoes) {
    touch(1);
    *lru_.find(slots_[1]) = 77;
    EXPECT_EQ(lru_.touch(slots_[1], [](int&) {}), 77);
    lru_.remove(slots_[1]);
    EXPECT_EQ(lru_.find(slots_[1]), nullptr);
    EXPECT_EQ(lru_.touch(slots_[1], [](int&) {}), 0);
}

TEST_F(LruTest, NobodyIsNewestWhenEmpty) {
    EXPECT_FALSE(lru_.is_newest(slots_[1]));
    touch(1);
    lru_.remove(slots_[1]);
    EXPECT_FALSE(lru_.is_newest(slots_[1]));
    EXPECT_FALSE(lru_.is_newest(slots_[2]));
    EXPECT_EQ(lru_.size(), 0u);
}

TEST_F(LruTest, RemovalOfTheNewestMovesItOn) {
    for (const int owner : {1, 2, 3}) touch(owner);
    lru_.remove(slots_[3]);
    EXPECT_TRUE(lru_.is_newest(slots_[2]));
    lru_.remove(slots_[3]);  // no effect
    EXPECT_EQ(order(), (std::vector<int>{2, 1}));
    touch(4);
    EXPECT_TRUE(evicted_.empty());
}

TEST_F(LruTest, ClearFreesEverySlot) {
    for (const int owner : {1, 2, 3}) touch(owner);
    lru_.clear();
    for (const auto& slot : slots_) EXPECT_FALSE(slot.in_use());
    EXPECT_TRUE(order().empty());
}

TEST(Lru, CapacityIsBroughtIntoBounds) {
    EXPECT_EQ(Lru<int>(0).capacity(), 1u);
    EXPECT_EQ(Lru<char>(1 << 20).capacity(), Lru<char>::kMaxCapacity);
}

TEST(Lru, TheLastSlotOfTheLargestWorks) {
    Lru<char> lru(Lru<char>::kMaxCapacity);
    std::vector<Lru<char>::Slot> slots(lru.capacity());
    for (auto& slot : slots) {
        lru.touch(slot, [](char&) { FAIL(); });
        ASSERT_TRUE(lru.is_newest(slot));
    }
    lru.clear();
    for (auto& slot : slots) ASSERT_FALSE(lru.is_newest(slot));
}

}  // namespace
}  // namespace ucs
