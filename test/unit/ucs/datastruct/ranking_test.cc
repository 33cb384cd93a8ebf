// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/datastruct/ranking.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

namespace ucs::test {
namespace {

using Ranks = Ranking<int>;
using Role = Ranks::Role;

struct Named : Ranks::Member {};

// Writes down what it is told, and does it.
class RankingTest : public ::testing::Test, public Ranks::Callbacks {
  protected:
    void start(const Ranks::Options& options) {
        ranking_.reset();  // lets go of the members
        members_.clear();
        ranking_ = std::make_unique<Ranks>(options);
        events_.clear();
    }
    ~RankingTest() override { ranking_.reset(); }

    Ranks::Member& put(int id, Ranks::Score score, Role role = Role::kCandidate) {
        Named& member = members_[id];
        if (!member.is_linked()) member.standing.rank.id = id;
        ranking_->place(member, score, role);
        return member;
    }
    bool may_promote(const Ranks::Member& member) override {
        return !not_now_.contains(member.standing.rank.id);
    }
    void promote(Ranks::Member& member, const Ranks::Rank& floor) override {
        floor_ = floor;
        if (ranking_->free_places() == 0) demote(*ranking_->worst_incumbent());
        events_.push_back(member.standing.rank.id);
        ranking_->place(member, member.standing.rank.score, Role::kIncumbent);
    }
    void demote(Ranks::Member& member) override {
        events_.push_back(-member.standing.rank.id);
        ranking_->place(member, member.standing.rank.score, Role::kCandidate);
    }
    // What was promoted (id) and demoted (-id).
    std::vector<int> rank() {
        events_.clear();
        ranking_->demote_cold(*this, SIZE_MAX);
        while (ranking_->promote_best(*this)) continue;
        return events_;
    }

    std::map<int, Named> members_;
    std::unique_ptr<Ranks> ranking_;
    std::set<int> not_now_;
    std::vector<int> events_;
    Ranks::Rank floor_;
};

TEST_F(RankingTest, BestFirstAndTheHigherIdAmongEquals) {
    start({.places = 3, .margin_permille = 0});
    put(1, 10);
    put(2, 30);
    put(3, 20);
    put(4, 20);
    EXPECT_EQ(rank(), (std::vector<int>{2, 4, 3}));
    EXPECT_EQ(ranking_->taken(), 3u);
    EXPECT_EQ(ranking_->free_places(), 0u);
    EXPECT_TRUE(rank().empty());
}

TEST_F(RankingTest, AnIncumbentIsOutrankedWithTheMarginOnly) {
    start({.places = 1, .margin_permille = 200});
    put(1, 1000);
    EXPECT_EQ(rank(), std::vector<int>{1});
    put(2, 1199);
    EXPECT_TRUE(rank().empty());
    put(2, 1200);  // with the margin it is an equal, and has the higher id
    EXPECT_EQ(rank(), (std::vector<int>{-1, 2}));
    EXPECT_EQ(floor_, (Ranks::Rank{1200, 1}));
    put(1, 1440);
    EXPECT_TRUE(rank().empty());
    put(1, 1441);
    EXPECT_EQ(rank(), (std::vector<int>{-2, 1}));
}

TEST_F(RankingTest, WhoEntersIsNotAskedToLeaveButCounts) {
    start({.places = 2, .margin_permille = 200});
    put(1, 100, Role::kEntering);
    put(2, 500, Role::kIncumbent);
    put(3, 550);
    EXPECT_TRUE(rank().empty());
    EXPECT_EQ(ranking_->worst_incumbent(), &members_[2]);
    EXPECT_EQ(ranking_->worst_holder(), &members_[1]);
    put(3, 700);
    EXPECT_EQ(rank(), (std::vector<int>{-2, 3}));
}

TEST_F(RankingTest, AReservedPlaceIsNobodysAndNotFree) {
    start({.places = 2, .margin_permille = 200});
    put(1, 100, Role::kReserving);
    EXPECT_EQ(ranking_->taken(), 0u);
    EXPECT_EQ(ranking_->free_places(), 1u);
    EXPECT_EQ(ranking_->reserving(), &members_[1]);
    put(2, 50);
    put(3, 40);
    EXPECT_EQ(rank(), std::vector<int>{2});
    // None is free, and the one that could go is worth more.
    EXPECT_EQ(ranking_->free_places(), 0u);
    put(1, 100);
    EXPECT_EQ(ranking_->reserving(), nullptr);
}

TEST_F(RankingTest, TheCallbacksPassOverWhoMayNot) {
    start({.places = 1, .margin_permille = 200});
    put(1, 100);
    put(2, 200);
    not_now_ = {2};
    EXPECT_EQ(rank(), std::vector<int>{1});
    not_now_ = {};
    EXPECT_EQ(rank(), (std::vector<int>{-1, 2}));
}

TEST_F(RankingTest, AFreePlaceIsNotForATrickle) {
    start({.places = 2, .margin_permille = 200, .min_score = 5, .trickle_ratio = 100});
    put(1, 10'000);
    put(2, 99);
    put(3, 100);
    EXPECT_EQ(ranking_->admission(), 100u);
    EXPECT_EQ(rank(), (std::vector<int>{1, 3}));
    // Whatever its role, the highest score sets the bound; one that was asked for does not.
    put(1, 20'000, Role::kNone);
    EXPECT_EQ(ranking_->admission(), 200u);
    ranking_->remove(members_[1]);
    EXPECT_EQ(ranking_->admission(), 5u);
    start({.places = 1,
           .margin_permille = 200,
           .min_score = 5,
           .trickle_ratio = 100,
           .pinned = 1'000'000});
    put(1, 1'000'000);
    put(2, 2'000);
    EXPECT_EQ(ranking_->admission(), 20u);
}

// A bound that follows from the best one is for places that are scarce; and those who have one keep
// it until there are many more.
TEST_F(RankingTest, WithPlacesForAllATrickleHasOne) {
    start({.places = 2, .margin_permille = 200, .min_score = 5, .trickle_ratio = 100});
    put(1, 10'000);
    put(2, 10);
    put(3, 4);  // not worth one anyhow
    EXPECT_EQ(ranking_->admission(), 5u);
    EXPECT_EQ(rank(), (std::vector<int>{1, 2}));
    put(3, 5);
    EXPECT_EQ(ranking_->admission(), 100u);
    put(4, 5);
    EXPECT_EQ(rank(), std::vector<int>{});
    put(5, 5);
    EXPECT_EQ(rank(), std::vector<int>{-2});
}

TEST_F(RankingTest, TheColdGoThoughNobodyWantsTheirPlaceWorstFirst) {
    start({.places = 3, .margin_permille = 200, .min_score = 100});
    put(1, 300);
    put(2, 200);
    put(3, 100);
    EXPECT_EQ(rank(), (std::vector<int>{1, 2, 3}));
    put(1, 50, Role::kIncumbent);  // half of what admits
    put(2, 49, Role::kIncumbent);
    put(3, 20, Role::kIncumbent);
    EXPECT_EQ(rank(), (std::vector<int>{-3, -2}));
}

TEST_F(RankingTest, OfTheColdGoAsManyAsAreAskedFor) {
    start({.places = 3, .min_score = 100});
    for (const int id : {1, 2, 3}) put(id, 10, Role::kIncumbent);
    EXPECT_FALSE(ranking_->demote_cold(*this, 0));
    EXPECT_FALSE(ranking_->demote_cold(*this, 2));
    EXPECT_EQ(events_, (std::vector<int>{-1, -2}));
    EXPECT_TRUE(ranking_->demote_cold(*this, 1));
    EXPECT_EQ(events_, (std::vector<int>{-1, -2, -3}));
    EXPECT_TRUE(ranking_->demote_cold(*this, 0));
}

TEST_F(RankingTest, AtRestNobodyBeatsAnybodyWhateverTheChanges) {
    std::mt19937 random(1);
    start({.places = 5, .margin_permille = 100, .min_score = 10});
    for (int change = 0; change < 2000; ++change) {
        const int id = 1 + static_cast<int>(random() % 30);
        if (random() % 10 == 0) {
            ranking_->remove(members_[id]);
            members_.erase(id);
        } else {
            const Role role = members_.contains(id) ? members_[id].standing.role : Role::kCandidate;
            put(id, random() % 1000, role == Role::kNone ? Role::kCandidate : role);
        }
        rank();
        ASSERT_LE(ranking_->taken(), 5u);
        const Ranks::Rank floor =
            ranking_->floor_of(ranking_->free_places() ? nullptr : ranking_->worst_incumbent());
        for (const auto& [other, member] : members_) {
            if (member.standing.role == Role::kIncumbent) {
                ASSERT_GE(member.standing.rank.score, 5u);
            } else if (member.is_linked()) {
                ASSERT_LE(member.standing.rank, floor);
            }
        }
    }
}

TEST_F(RankingTest, TheBestOfAllAreAmongTheBestOfEachRole) {
    start({.places = 4, .margin_permille = 200});
    for (int id = 1; id <= 20; ++id)
        put(id, 10 * static_cast<Ranks::Score>(id), id % 2 == 0 ? Role::kCandidate : Role::kNone);
    std::set<int> seen;
    ranking_->for_best(3, [&](const Ranks::Member& member) {
        EXPECT_TRUE(seen.insert(member.standing.rank.id).second);
    });
    EXPECT_EQ(seen, (std::set<int>{15, 16, 17, 18, 19, 20}));
}

}  // namespace
}  // namespace ucs::test
