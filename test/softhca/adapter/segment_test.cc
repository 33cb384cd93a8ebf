// SPDX-License-Identifier: BSD-3-Clause
#include "softhca/adapter/segment.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

namespace {

// Calls that a signal interrupts.
unsigned interruptions = 0;

}  // namespace

// In place of the C library's.
extern "C" int posix_fallocate(int file, off_t offset, off_t length) {
    using Function = int(int, off_t, off_t);
    static auto* const real = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, "posix_fallocate"));
    if (interruptions == 0) return real(file, offset, length);
    --interruptions;
    return EINTR;
}

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

TEST(SegmentsOfFiles, AnInterruptionFailsNoAllocation) {
    const int file = memfd_create("segment", MFD_CLOEXEC);
    ASSERT_EQ(ftruncate(file, static_cast<off_t>(Segment::bytes(kSmall))), 0);
    {
        interruptions = 1;
        Segment segment;
        ASSERT_TRUE(segment.map_file(file, kSmall, true));
        segment.set_self({0, 1});
        interruptions = 1;
        EXPECT_NE(segment.allocate_qp(), nullptr);
        interruptions = 2;
        EXPECT_NE(segment.allocate_block(5000), 0u);
        EXPECT_EQ(interruptions, 0u);
    }
    close(file);
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
