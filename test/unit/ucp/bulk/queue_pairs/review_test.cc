// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/queue_pairs/review.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace ucp::bulk {
namespace {

using Kind = ReviewStep::Kind;

Claim open(double worth, unsigned held, bool is_settled = true) {
    return {Claim::State::kOpen, worth, held, 4, is_settled, true};
}
Claim closed(double worth, bool is_settled = true) {
    return {Claim::State::kClosed, worth, 0, 4, is_settled, true};
}

TEST(QueuePairReview, SharesAreInProportionToWhatTransfersBringAndNeverMoreThanFull) {
    EXPECT_EQ(share_out(std::vector{closed(300), closed(100)}, 4), (std::vector{3u, 1u}));
    EXPECT_EQ(share_out(std::vector{closed(900), closed(100)}, 4), (std::vector{4u, 0u}));
    EXPECT_EQ(share_out(std::vector{closed(900), closed(100)}, 6), (std::vector{4u, 2u}));
    EXPECT_EQ(share_out(std::vector{closed(1), closed(1)}, 100), (std::vector{4u, 4u}));
    // Who brings nothing yet has what nobody else needs; of equals, who has it already keeps it.
    EXPECT_EQ(share_out(std::vector{closed(0), closed(0), closed(9)}, 6),
              (std::vector{1u, 1u, 4u}));
    EXPECT_EQ(share_out(std::vector{closed(5), open(5, 1)}, 1), (std::vector{0u, 1u}));
    EXPECT_TRUE(share_out({}, 5).empty());
}

TEST(QueuePairReview, WhoBringsMoreOpensBeforeWhoBringsLess) {
    const ReviewStep step = next_step(std::vector{closed(1), closed(2), closed(3)}, 2);
    EXPECT_EQ(step.kind, Kind::kOpen);
    EXPECT_EQ(step.claim, 2u);
    // Nothing is due to the first.
    EXPECT_EQ(next_step(std::vector{closed(1), open(30, 2)}, 2).kind, Kind::kNone);
}

TEST(QueuePairReview, OneThatBringsMoreThanTwiceAsMuchTakesTheLeastOnes) {
    const auto step = next_step(std::vector{open(10, 1), open(4, 1), closed(9)}, 2);
    EXPECT_EQ(step.kind, Kind::kGiveUp);
    EXPECT_EQ(step.claim, 1u);
    EXPECT_EQ(next_step(std::vector{open(10, 1), open(5, 1), closed(9)}, 2).kind, Kind::kNone);
}

TEST(QueuePairReview, OfSeveralThatHaveTooManyTheOneLosesThatBringsLeast) {
    for (const size_t least : {0u, 1u}) {
        std::vector claims{open(2, 2), open(2, 2), closed(100)};
        claims[least].worth = 1;
        const ReviewStep step = next_step(claims, 4);
        EXPECT_EQ(step.kind, Kind::kGiveUp);
        EXPECT_EQ(step.claim, least);
    }
}

TEST(QueuePairReview, NothingHappensBesideAnotherStepOrBeforeTheLastCouldShow) {
    Claim moving = open(1, 1);
    moving.state = Claim::State::kMoving;
    EXPECT_EQ(next_step(std::vector{moving, closed(9)}, 2).kind, Kind::kNone);
    EXPECT_EQ(next_step(std::vector{open(1, 1, false), closed(9)}, 1).kind, Kind::kNone);
    EXPECT_EQ(next_step(std::vector{open(1, 1), closed(9, false)}, 1).kind, Kind::kNone);
}

TEST(QueuePairReview, WhoWouldGetNoMoreIsNotAsked) {
    Claim lacking = open(5, 1), waiting = closed(3);
    EXPECT_EQ(next_step(std::vector{lacking}, 4).kind, Kind::kGiveUp);
    EXPECT_EQ(next_step(std::vector{waiting}, 4).kind, Kind::kOpen);
    lacking.can_grow = waiting.can_grow = false;
    EXPECT_EQ(next_step(std::vector{lacking}, 4).kind, Kind::kNone);
    EXPECT_EQ(next_step(std::vector{waiting}, 4).kind, Kind::kNone);
    // Another device has some.
    const auto step = next_step(std::vector{lacking, waiting, closed(1)}, 8);
    EXPECT_EQ(step.kind, Kind::kOpen);
    EXPECT_EQ(step.claim, 2u);
    // Where all are in use, what one gives up is there for another.
    waiting.worth = 11;
    EXPECT_EQ(next_step(std::vector{lacking, waiting}, 1).kind, Kind::kGiveUp);
}

// From any beginning, whatever the worth, steps come to an end, with all in use.
TEST(QueuePairReview, ComesToRestWithNothingLeftOver) {
    constexpr unsigned kTotal = 7;
    for (unsigned seed = 0; seed < 500; ++seed) {
        std::vector<Claim> claims;
        unsigned left = kTotal, random = seed;
        for (unsigned index = 0; index < 5; ++index) {
            random = random * 1103515245 + 12345;
            const unsigned held = std::min(left, (random >> 16) % 4);
            left -= held;
            const double worth = (random >> 20) % 50;
            claims.push_back(held == 0 ? closed(worth) : open(worth, held));
        }
        unsigned steps = 0;
        for (;; ++steps) {
            ASSERT_LT(steps, 50u) << seed;
            const ReviewStep step = next_step(claims, kTotal);
            if (step.kind == Kind::kNone) break;
            Claim& claim = claims[step.claim];
            if (step.kind == Kind::kGiveUp) {
                ASSERT_EQ(claim.state, Claim::State::kOpen);
                claim.state = Claim::State::kClosed;
                claim.held = 0;
                continue;
            }
            ASSERT_EQ(claim.state, Claim::State::kClosed);
            unsigned held = 0;
            for (const Claim& each : claims) held += each.held;
            const unsigned due = share_out(claims, kTotal)[step.claim];
            claim.held = std::min(due, kTotal - held);
            ASSERT_GT(claim.held, 0u);
            claim.state = Claim::State::kOpen;
        }
        unsigned held = 0;
        for (const Claim& each : claims) held += each.held;
        EXPECT_EQ(held, kTotal) << seed;
    }
}

}  // namespace
}  // namespace ucp::bulk
