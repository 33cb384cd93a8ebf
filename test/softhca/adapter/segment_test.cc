// SPDX-License-Identifier: BSD-3-Clause
#include "softhca/adapter/segment.h"

#include <gtest/gtest.h>

#include <vector>

namespace softhca::test {
namespace {

constexpr SegmentLayout kSmall{
    .index_bits = 4, .queues = 16, .regions = 16, .procs = 4, .arena_bytes = 1 << 16};
// Index 0 and 1 are nobody's.
constexpr unsigned kRecords = 14;

class Segments : public testing::Test {
  protected:
    void SetUp() override {
        ASSERT_TRUE(segment_.create_private(kSmall));
        segment_.set_self({0, 1});
    }
    Segment segment_;
};

TEST_F(Segments, ANumberNamesItsRecordUntilThatIsReleased) {
    QpRecord* record = segment_.allocate_qp();
    ASSERT_NE(record, nullptr);
    const uint32_t number = record->number;
    EXPECT_EQ(segment_.find_qp(number), record);
    EXPECT_EQ(segment_.find_qp(0), nullptr);
    EXPECT_EQ(segment_.find_qp(number + (1u << kSmall.index_bits)), nullptr);
    EXPECT_EQ(segment_.find_cq(number), nullptr) << "each kind has a table of its own";
    Segment::release(*record);
    EXPECT_EQ(segment_.find_qp(number), nullptr);
}

TEST_F(Segments, RecordsAreUsedInTurnUnderOtherNumbers) {
    std::vector<QpRecord*> all;
    while (QpRecord* record = segment_.allocate_qp()) all.push_back(record);
    ASSERT_EQ(all.size(), kRecords);
    const uint32_t stale = all[5]->number;
    Segment::release(*all[5]);
    QpRecord* again = segment_.allocate_qp();
    ASSERT_EQ(again, all[5]) << "the only one that is free";
    EXPECT_NE(again->number, stale);
    EXPECT_EQ(segment_.find_qp(stale), nullptr);
    EXPECT_EQ(segment_.allocate_qp(), nullptr);
}

TEST_F(Segments, BlocksAreApartAndComeBack) {
    const uint64_t first = segment_.allocate_block(5000);
    const uint64_t second = segment_.allocate_block(100);
    ASSERT_NE(first, 0u);
    ASSERT_NE(second, 0u);
    EXPECT_GE(second, first + 5000);
    segment_.free_block(first, 5000);
    EXPECT_EQ(segment_.allocate_block(8192), first) << "of the same size class";
    EXPECT_NE(segment_.allocate_block(8192), first);
    EXPECT_EQ(segment_.allocate_block(1 << 17), 0u) << "more than there is";
    segment_.free_block(0, 5000);
}

TEST_F(Segments, WhatADeadProcessLeftIsFreedAndNothingElse) {
    QpRecord* theirs = segment_.allocate_qp();
    MrRecord* region = segment_.allocate_mr();
    CqRecord* queue = segment_.allocate_cq();
    region->key = 0x1234;
    queue->ring_bytes = 4096;
    queue->ring = segment_.allocate_block(queue->ring_bytes);
    const uint64_t ring = queue->ring;
    const Owner dead = segment_.self();
    segment_.set_self({1, 1});
    QpRecord* ours = segment_.allocate_qp();
    EXPECT_EQ(segment_.reap(dead), 3u);
    EXPECT_EQ(theirs->number, 0u);
    EXPECT_EQ(region->key, 0u);
    EXPECT_NE(segment_.find_qp(ours->number), nullptr);
    EXPECT_EQ(segment_.allocate_block(4096), ring) << "with its ring";
    EXPECT_EQ(segment_.reap(dead), 0u);
}

TEST(RobustLocks, AreTakenOverFromTheDead) {
    RobustLock lock;
    const auto nobody = [](uint32_t) { return false; };
    EXPECT_FALSE(lock.lock(1, nobody));
    EXPECT_TRUE(lock.lock(2, [](uint32_t token) { return token == 1; })) << "repair it";
    lock.unlock();
    EXPECT_FALSE(lock.lock(3, nobody));
    lock.unlock();
}

}  // namespace
}  // namespace softhca::test
