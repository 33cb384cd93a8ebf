// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/schedule/turns.h"

#include <gtest/gtest.h>

#include <deque>
#include <vector>

#include "ucp/bulk/schedule/path_choice.h"

namespace ucp::bulk::test {
namespace {

constexpr size_t kSliceBytes = 64 << 10;
constexpr ucs::Time kStart = ucs::Time(std::chrono::seconds(1));

// What transfers that never end have posted after so many posts, each of chunks of its own.
std::vector<uint64_t> share(const std::vector<size_t>& chunks, bool is_mixed, unsigned posts) {
    std::vector<Turn> turns(chunks.size());
    std::vector<uint64_t> posted(chunks.size());
    std::deque<size_t> order;
    for (size_t i = 0; i < chunks.size(); ++i) order.push_back(i);
    for (unsigned post = 0; post < posts; ++post) {
        const size_t next = order.front();
        posted[next] += chunks[next];
        if (!turns[next].posted(chunks[next], Turn::bytes(is_mixed, kSliceBytes))) continue;
        order.pop_front();
        order.push_back(next);
    }
    return posted;
}

TEST(Turns, BytesAreSharedAlikeWhateverTheChainsAre) {
    for (const bool is_mixed : {true, false}) {
        const auto posted = share({kSliceBytes, 2 * kSliceBytes, 4096, 100000}, is_mixed, 40000);
        const size_t turn = Turn::bytes(is_mixed, kSliceBytes);
        for (const uint64_t bytes : posted) {
            EXPECT_LE(bytes, posted[0] + 2 * turn);
            EXPECT_GE(bytes + 2 * turn, posted[0]);
        }
    }
}

TEST(Turns, OfTransfersAlikeTheFirstIsDoneFirst) {
    EXPECT_GE(Turn::bytes(false, kSliceBytes), 16 * kSliceBytes);
    EXPECT_LE(Turn::bytes(true, kSliceBytes), 2 * kSliceBytes);
}

TEST(Turns, WhatWasPostedInALongTurnIsNotHeldAgainstShortOnes) {
    Turn turn;
    EXPECT_FALSE(turn.posted(3 << 20, Turn::kLong));
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
