// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/schedule/turns.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <vector>

#include "ucp/bulk/schedule/path_choice.h"

namespace ucp::bulk::test {
namespace {

constexpr size_t kSliceBytes = 64 << 10;
constexpr uint64_t kEndless = uint64_t{1} << 60;
constexpr ucs::Time kStart = ucs::Time(std::chrono::seconds(1));

// What transfers that never end have posted after so many posts, each of chunks of its own.
std::vector<uint64_t> share(const std::vector<size_t>& chunks, bool is_mixed, unsigned posts) {
    std::vector<Turn> turns(chunks.size(), Turn(kEndless));
    std::vector<uint64_t> posted(chunks.size());
    std::deque<size_t> order;
    for (size_t i = 0; i < chunks.size(); ++i) order.push_back(i);
    for (unsigned post = 0; post < posts; ++post) {
        const size_t next = order.front();
        posted[next] += chunks[next];
        const size_t turn = turns[next].length(is_mixed, kSliceBytes);
        if (!turns[next].posted(chunks[next], turn)) continue;
        order.pop_front();
        order.push_back(next);
    }
    return posted;
}

// Transfers of so many MiB that start together and post 1 MiB at a time.
// @return how many MiB all have posted when each is done
std::vector<unsigned> ends(std::vector<unsigned> waiting) {
    constexpr uint64_t kChunk = 1 << 20;
    std::vector<Turn> turns;
    for (const unsigned length : waiting) turns.emplace_back(length * kChunk);
    std::vector<unsigned> ends(waiting.size());
    std::deque<size_t> order;
    for (size_t i = 0; i < waiting.size(); ++i) order.push_back(i);
    for (unsigned posted = 1; !order.empty(); ++posted) {
        const size_t next = order.front();
        const size_t turn = turns[next].length(false, kSliceBytes);
        --waiting[next];
        const bool is_done = waiting[next] == 0;
        if (is_done) ends[next] = posted;
        if (!is_done && !turns[next].posted(kChunk, turn)) continue;
        order.pop_front();
        if (!is_done) order.push_back(next);
    }
    return ends;
}

TEST(Turns, BytesAreSharedAlikeWhateverTheChainsAre) {
    for (const bool is_mixed : {true, false}) {
        const auto posted = share({kSliceBytes, 2 * kSliceBytes, 4096, 100000}, is_mixed, 40000);
        const size_t turn = Turn(kEndless).length(is_mixed, kSliceBytes);
        for (const uint64_t bytes : posted) {
            EXPECT_LE(bytes, posted[0] + 2 * turn);
            EXPECT_GE(bytes + 2 * turn, posted[0]);
        }
    }
}

TEST(Turns, OfTransfersAlikeTheFirstIsDoneFirst) {
    EXPECT_EQ(ends({16, 16, 16}), (std::vector<unsigned>{16, 32, 48}));
    EXPECT_EQ(ends({64, 64, 64}), (std::vector<unsigned>{188, 190, 192}));
}

TEST(Turns, BehindALongTransferOthersWaitForAPartOfIt) {
    EXPECT_EQ(ends({1024, 8})[1], 2U + 8);
    EXPECT_EQ(ends({1024, 16})[1], 2U + 16);
    EXPECT_EQ(ends({20, 8})[1], 2U + 8);
}

TEST(Turns, ATurnIsTwoSlicesAtLeast) {
    EXPECT_EQ(Turn(kEndless).length(true, kSliceBytes), 2 * kSliceBytes);
    EXPECT_EQ(Turn(kEndless).length(false, Turn::kWhole), 2 * Turn::kWhole);
}

TEST(Turns, WhatWasPostedInALongTurnIsNotHeldAgainstShortOnes) {
    Turn turn(Turn::kWhole);
    EXPECT_FALSE(turn.posted(3 << 20, Turn::kWhole));
    EXPECT_TRUE(turn.posted(kSliceBytes, 2 * kSliceBytes));
    EXPECT_TRUE(turn.posted(kSliceBytes, 2 * kSliceBytes));
    EXPECT_FALSE(turn.posted(0, 2 * kSliceBytes));
}

TEST(Mixture, IsSeenWhereShortOnesComeBehindMuchLongerOnes) {
    Mixture mixture;
    EXPECT_FALSE(mixture.is_mixed(kStart));
    mixture.started(kSliceBytes, 15 * kSliceBytes, kStart);
    EXPECT_FALSE(mixture.is_mixed(kStart));
    mixture.started(kSliceBytes, 0, kStart);
    EXPECT_FALSE(mixture.is_mixed(kStart));
    mixture.started(kSliceBytes, 16 * kSliceBytes, kStart);
    EXPECT_TRUE(mixture.is_mixed(kStart));
    EXPECT_TRUE(mixture.is_mixed(kStart + Mixture::kExpected / 2));
    EXPECT_FALSE(mixture.is_mixed(kStart + Mixture::kExpected));
    // As long as they keep coming it stays.
    mixture.started(kSliceBytes, uint64_t{10} << 30, kStart + Mixture::kExpected / 2);
    EXPECT_TRUE(mixture.is_mixed(kStart + Mixture::kExpected));
}

TEST(Mixture, PathsHoldLittleMeanwhile) {
    ScheduleRules rules{.slice = kSliceBytes, .window = 4 << 20, .chain = 64};
    for (const double rate : {1.25e9, 12.5e9, 50e9}) {
        const Meter meter(rate);
        rules.is_mixed = false;
        EXPECT_EQ(meter.window(rules), rules.window);
        rules.is_mixed = true;
        const double idle = 3e-6 + static_cast<double>(rules.slice) / rate;
        const double held = static_cast<double>(meter.window(rules)) / rate;
        EXPECT_LE(held, 2 * idle);
        EXPECT_GE(meter.window(rules), 2 * rules.slice);
        EXPECT_EQ(meter.window(rules), mixed_window(rate, rules));
    }
}

}  // namespace
}  // namespace ucp::bulk::test
