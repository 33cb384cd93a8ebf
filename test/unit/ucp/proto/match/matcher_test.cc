// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/proto/match/matcher.h"

#include <gtest/gtest.h>

#include <list>
#include <random>
#include <vector>

namespace {

using ucp::ExpectedReceive;
using ucp::kFullTagMask;
using ucp::Matcher;
using ucp::Tag;
using ucp::UnexpectedMessage;

struct Receive : ExpectedReceive {
    Receive(Tag wanted, Tag wanted_mask, int number) : id(number) {
        tag = wanted;
        mask = wanted_mask;
    }
    int id;
};

struct Message : UnexpectedMessage {
    Message(Tag message_tag, int number) : id(number) { tag = message_tag; }
    int id;
};

TEST(Matcher, EarlierPostingWinsBetweenExactAndWildcard) {
    Matcher matcher;
    Receive wildcard(0x5, 0xf, 1), exact(0x15, kFullTagMask, 2), later(0, 0, 3);
    matcher.post(wildcard);
    matcher.post(exact);
    matcher.post(later);
    EXPECT_EQ(matcher.take_expected(0x15), &wildcard);
    EXPECT_EQ(matcher.take_expected(0x15), &exact);
    EXPECT_EQ(matcher.take_expected(0x15), &later);
    EXPECT_EQ(matcher.take_expected(0x15), nullptr);
    EXPECT_FALSE(matcher.has_expected());
}

TEST(Matcher, WithdrawnReceiveNoLongerMatches) {
    Matcher matcher;
    Receive first(7, kFullTagMask, 1), second(7, kFullTagMask, 2);
    matcher.post(first);
    matcher.post(second);
    EXPECT_TRUE(first.is_posted());
    matcher.withdraw(first);
    EXPECT_FALSE(first.is_posted());
    EXPECT_EQ(matcher.take_expected(7), &second);
}

TEST(Matcher, DrainHandsOverEverything) {
    Matcher matcher;
    std::list<Receive> receives;
    for (int i = 0; i < 1000; ++i) {
        receives.emplace_back(i, i % 3 ? kFullTagMask : 0xff, i);
        matcher.post(receives.back());
    }
    int count = 0;
    matcher.drain_expected([&](ExpectedReceive&) { ++count; });
    EXPECT_EQ(count, 1000);
    EXPECT_FALSE(matcher.has_expected());
}

// As those of OpenSHMEM for questions of its peers, beside the messages of a collective.
TEST(Matcher, ReceivesThatStandAreNotAwaited) {
    Matcher matcher;
    Receive standing(0x100, 0xf00, 1), again(0x100, 0xf00, 2);
    Receive first(7, kFullTagMask, 3), second(7, kFullTagMask, 4), third(7, kFullTagMask, 5);
    matcher.post(first);
    matcher.post(standing);
    EXPECT_EQ(matcher.awaited(), 2u);
    EXPECT_EQ(matcher.take_expected(7), &first);
    EXPECT_EQ(matcher.awaited(), 1u) << "it was posted behind the one that was taken";
    matcher.post(second);
    matcher.post(third);
    EXPECT_EQ(matcher.awaited(), 3u);
    EXPECT_EQ(matcher.take_expected(7), &second);
    EXPECT_EQ(matcher.awaited(), 1u) << "the third";
    EXPECT_EQ(matcher.take_expected(7), &third);
    EXPECT_EQ(matcher.awaited(), 0u);
    EXPECT_TRUE(matcher.has_expected());
    matcher.post(again);
    EXPECT_EQ(matcher.awaited(), 2u) << "the program receives from anybody";
    EXPECT_EQ(matcher.take_expected(0x107), &standing);
    EXPECT_EQ(matcher.awaited(), 1u);
    EXPECT_EQ(matcher.take_expected(0x107), &again);
    EXPECT_EQ(matcher.awaited(), 0u);
}

// The rules of matching in their plainest form: two lists in order, searched from the front.
class Reference {
  public:
    struct Posted {
        Tag tag, mask;
        int id;
    };
    struct Arrived {
        Tag tag;
        int id;
    };

    int arrive(Tag tag, int id) {
        for (auto it = posted.begin(); it != posted.end(); ++it) {
            if ((tag & it->mask) != (it->tag & it->mask)) continue;
            int match = it->id;
            posted.erase(it);
            return match;
        }
        arrived.push_back({tag, id});
        return -1;
    }
    int find(Tag tag, Tag mask, bool remove) {
        for (auto it = arrived.begin(); it != arrived.end(); ++it) {
            if ((it->tag & mask) != (tag & mask)) continue;
            int match = it->id;
            if (remove) arrived.erase(it);
            return match;
        }
        return -1;
    }
    int post(Tag tag, Tag mask, int id) {
        int match = find(tag, mask, true);
        if (match < 0) posted.push_back({tag, mask, id});
        return match;
    }

    std::vector<Posted> posted;
    std::vector<Arrived> arrived;
};

class MatcherModel : public testing::TestWithParam<unsigned> {};

TEST_P(MatcherModel, AgreesWithReferenceOnRandomOperations) {
    std::mt19937_64 random(GetParam());
    Matcher matcher;
    Reference reference;
    std::list<Receive> receives;
    std::list<Message> messages;
    std::vector<Receive*> receive_by_id;
    // Few tags make every receive compete; many tags make the tables grow.
    const Tag tags = GetParam() % 2 ? 6 : 3000;
    const Tag exact = GetParam() % 3 ? kFullTagMask : ~Tag{6};
    const Tag masks[] = {exact, exact, 0, 1, 3, ~Tag{1}, 0xff00};
    const unsigned bias = 2 + GetParam() % 5;

    for (int step = 0; step < 4000; ++step) {
        Tag tag = random() % tags;
        Tag mask = masks[random() % std::size(masks)];
        unsigned choice = random() % 10;
        if (choice < bias) {
            messages.emplace_back(tag, step);
            ExpectedReceive* match = matcher.take_expected(tag);
            if (!match) matcher.keep(messages.back());
            ASSERT_EQ(match ? static_cast<Receive*>(match)->id : -1, reference.arrive(tag, step));
            ASSERT_FALSE(match && match->is_posted());
        } else if (choice < 7) {
            receives.emplace_back(tag, mask, step);
            UnexpectedMessage* match = matcher.find_unexpected(tag, mask);
            if (match) {
                matcher.remove(*match);
            } else {
                matcher.post(receives.back());
            }
            ASSERT_EQ(match ? static_cast<Message*>(match)->id : -1,
                      reference.post(tag, mask, step));
        } else if (choice < 9) {
            UnexpectedMessage* match = matcher.find_unexpected(tag, mask);
            bool remove = choice == 8;
            if (match && remove) matcher.remove(*match);
            ASSERT_EQ(match ? static_cast<Message*>(match)->id : -1,
                      reference.find(tag, mask, remove));
        } else if (!reference.posted.empty()) {
            size_t victim = random() % reference.posted.size();
            int id = reference.posted[victim].id;
            reference.posted.erase(reference.posted.begin() + victim);
            for (Receive& receive : receives) {
                if (receive.id != id) continue;
                ASSERT_TRUE(receive.is_posted());
                matcher.withdraw(receive);
            }
        }
        ASSERT_EQ(matcher.unexpected_count(), reference.arrived.size());
        ASSERT_EQ(matcher.has_expected(), !reference.posted.empty());
    }
    matcher.drain_expected([](ExpectedReceive&) {});
    matcher.remove_unexpected_if([](UnexpectedMessage&) { return true; },
                                 [](UnexpectedMessage&) {});
    EXPECT_EQ(matcher.unexpected_count(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, MatcherModel, testing::Range(1u, 33u));

}  // namespace
