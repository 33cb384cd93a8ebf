// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/schedule/slice_queue.h"

#include <gtest/gtest.h>

#include <vector>

namespace ucp::bulk::test {
namespace {

constexpr SliceRules kSliceRules{.slice = 65536, .fragment = 4096};

Piece piece(uint64_t length) {
    return {nullptr, 0, length, nullptr, nullptr};
}

// All slices that are left, without taking them.
std::vector<Slice> slices(const SliceQueue& queue) {
    std::vector<Slice> found;
    for (auto cursor = queue.cursor(); !cursor.is_end();) {
        found.push_back(cursor.slice());
        cursor.advance(found.back());
    }
    return found;
}

Run take(SliceQueue& queue, uint32_t count) {
    auto cursor = queue.cursor();
    for (uint32_t index = 0; index < count; ++index) cursor.advance(cursor.slice());
    return queue.take(cursor, count);
}

TEST(SliceQueue, HasEqualSlicesAndAShortTailJoinsTheLast) {
    const struct {
        uint64_t length;
        std::vector<size_t> expected;
    } cases[] = {
        {1, {1}},
        {65536, {65536}},
        {65536 + 4096, {69632}},
        {65536 + 4097, {65536, 4097}},
        {2 * 65536 + 1, {65536, 65537}},
        {3 * 65536, {65536, 65536, 65536}},
    };
    for (const auto& [length, expected] : cases) {
        const Piece only = piece(length);
        const SliceQueue queue({&only, 1}, kSliceRules);
        std::vector<size_t> lengths;
        uint64_t offset = 0;
        for (const Slice& slice : slices(queue)) {
            EXPECT_EQ(slice.offset, offset);
            offset += slice.length;
            lengths.push_back(slice.length);
        }
        EXPECT_EQ(lengths, expected) << length;
        EXPECT_EQ(offset, length);
    }
}

TEST(SliceQueue, MayBeLargerThanFourGigabytes) {
    const uint64_t length = (uint64_t{9} << 30) + 5;
    const Piece only = piece(length);
    SliceQueue queue({&only, 1}, kSliceRules);
    uint64_t bytes = 0;
    while (queue.has_next()) {
        const auto run = take(queue, 1);
        EXPECT_EQ(run.offset, bytes);
        bytes += run.bytes;
        queue.completed(run);
    }
    EXPECT_EQ(bytes, length);
    EXPECT_TRUE(queue.is_over());
}

TEST(SliceQueue, GoesThroughPiecesAndSkipsEmptyOnes) {
    const std::vector<Piece> pieces{piece(0), piece(100), piece(0), piece(70000), piece(0)};
    SliceQueue queue(pieces, kSliceRules);
    const auto all = slices(queue);
    ASSERT_EQ(all.size(), 3u);
    EXPECT_EQ(all[0].piece, 1u);
    EXPECT_EQ(all[1].piece, 3u);
    EXPECT_EQ(all[2].offset, 65536u);
    const auto run = take(queue, 3);
    EXPECT_EQ(run.bytes, 70100u);
    EXPECT_FALSE(queue.has_next());
    EXPECT_FALSE(queue.is_over());
    queue.completed(run);
    EXPECT_TRUE(queue.is_over());
}

TEST(SliceQueue, PostsFailedSlicesAgainAndNoOthers) {
    const std::vector<Piece> pieces{piece(3 * 65536), piece(2 * 65536 + 10)};
    SliceQueue queue(pieces, kSliceRules);
    const auto first = take(queue, 1);
    const auto second = take(queue, 3);
    queue.completed(first);
    queue.failed(second);
    EXPECT_EQ(queue.failures(), 1u);
    EXPECT_EQ(queue.bytes_waiting(), 4 * 65536u + 10);

    // The failed ones first, in parts, across the end of a piece.
    const auto again = take(queue, 2);
    EXPECT_EQ(again.piece, 0u);
    EXPECT_EQ(again.offset, 65536u);
    EXPECT_EQ(again.bytes, 2 * 65536u);
    const auto rest = take(queue, 1);
    EXPECT_EQ(rest.piece, 1u);
    EXPECT_EQ(rest.offset, 0u);
    EXPECT_EQ(rest.failures, 1u);
    const auto last = take(queue, 1);
    EXPECT_EQ(last.offset, 65536u);
    EXPECT_EQ(last.bytes, 65546u);
    EXPECT_EQ(last.failures, 0u);
    EXPECT_FALSE(queue.has_next());
    for (const auto& run : {again, rest, last}) queue.completed(run);
    EXPECT_TRUE(queue.is_over());
}

TEST(SliceQueue, WhatWaitsIsHandedOverAndWhatIsLeftOfItComesBack) {
    const std::vector<Piece> pieces{piece(3 * 65536), piece(2 * 65536)};
    SliceQueue queue(pieces, kSliceRules);
    const auto first = take(queue, 1);
    const auto second = take(queue, 1);
    queue.failed(first);
    SliceQueue other(pieces, kSliceRules);
    queue.hand_over(other);
    EXPECT_FALSE(queue.has_next());
    EXPECT_EQ(other.bytes_waiting(), 4 * 65536u);
    EXPECT_EQ(other.failures(), 1u);
    queue.completed(second);
    EXPECT_FALSE(queue.is_over());

    // The failed one, and one that was not posted after all.
    const auto again = take(other, 1);
    EXPECT_EQ(again.offset, 0u);
    const auto third = take(other, 1);
    EXPECT_EQ(third.offset, 2 * 65536u);
    other.returned(third);
    other.completed(again);
    EXPECT_EQ(other.failures(), 0u);
    EXPECT_EQ(queue.take_back(other), 3 * 65536u);
    EXPECT_TRUE(other.is_over());
    const auto left = slices(queue);
    ASSERT_EQ(left.size(), 1u);
    EXPECT_EQ(left[0].offset, 2 * 65536u);
    queue.completed(take(queue, 1));
    const auto rest = take(queue, 2);
    EXPECT_EQ(rest.piece, 1u);
    EXPECT_EQ(rest.offset, 0u);
    queue.completed(rest);
    EXPECT_FALSE(queue.has_next());
    // What was done by the other.
    queue.completed(again);
    EXPECT_TRUE(queue.is_over());

    SliceQueue failed(pieces, kSliceRules);
    SliceQueue to(pieces, kSliceRules);
    failed.hand_over(to);
    failed.fail(UCS_ERR_CANCELED);
    EXPECT_EQ(failed.take_back(to), 5 * 65536u);
    EXPECT_FALSE(failed.has_next());
    EXPECT_TRUE(failed.is_over());
}

TEST(SliceQueue, SomeOfWhatIsHandedOverComesBack) {
    const Piece only = piece(5 * 65536);
    SliceQueue queue({&only, 1}, kSliceRules);
    SliceQueue other({&only, 1}, kSliceRules);
    queue.hand_over(other);
    EXPECT_EQ(queue.take_back(other, 3 * 65536 - 1, 64), 2 * 65536u);
    EXPECT_EQ(queue.bytes_waiting(), 2 * 65536u);
    EXPECT_EQ(other.bytes_waiting(), 3 * 65536u);
    const auto own = take(queue, 2);
    EXPECT_EQ(own.offset, 0u);
    EXPECT_EQ(own.bytes, 2 * 65536u);
    queue.completed(own);
    // One at least, and no more than a chain has.
    EXPECT_EQ(queue.take_back(other, 1, 64), 65536u);
    EXPECT_EQ(queue.take_back(other, SIZE_MAX, 1), 65536u);
    const auto last = take(other, 1);
    EXPECT_EQ(last.offset, 4 * 65536u);
    other.completed(last);
    EXPECT_TRUE(other.is_over());
    EXPECT_EQ(queue.bytes_waiting(), 2 * 65536u);
    queue.completed(take(queue, 1));
    queue.completed(take(queue, 1));
    EXPECT_FALSE(queue.is_over());
    queue.completed(last);
    EXPECT_TRUE(queue.is_over());
}

TEST(SliceQueue, EndsWithItsFirstErrorWhenNothingIsUnderWay) {
    const Piece only = piece(4 * 65536);
    SliceQueue queue({&only, 1}, kSliceRules);
    const auto first = take(queue, 1);
    const auto second = take(queue, 1);
    queue.fail(UCS_ERR_TIMED_OUT);
    queue.fail(UCS_ERR_CANCELED);
    EXPECT_EQ(queue.status(), UCS_ERR_TIMED_OUT);
    EXPECT_FALSE(queue.has_next());
    queue.failed(first);
    EXPECT_FALSE(queue.has_next());
    EXPECT_FALSE(queue.is_over());
    queue.completed(second);
    EXPECT_TRUE(queue.is_over());
}

}  // namespace
}  // namespace ucp::bulk::test
