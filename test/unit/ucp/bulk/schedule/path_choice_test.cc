// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/schedule/path_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <vector>

namespace ucp::bulk::test {
namespace {

using namespace std::chrono_literals;

constexpr size_t kSlice = 65536;
constexpr ScheduleRules kRules{.slice = kSlice, .window = 4 << 20, .chain = 64};

// A path that gets done what it is given, in order, at its own rate.
struct Link {
    explicit Link(double believed, double real) : meter(believed), rate(real) {}

    Meter meter;
    double rate;
    ucs::Time free{};
    struct Chain {
        ucs::Time done;
        size_t bytes;
    };
    std::deque<Chain> chains;
    uint64_t carried = 0;

    void post(size_t bytes, ucs::Time now) {
        free = std::max(free, now) + ucs::from_seconds(static_cast<double>(bytes) / rate);
        chains.push_back({free, bytes});
        meter.posted(bytes, now);
    }
    void complete(ucs::Time now) {
        while (!chains.empty() && chains.front().done <= now) {
            meter.completed(chains.front().bytes, chains.front().done);
            carried += chains.front().bytes;
            chains.pop_front();
        }
    }
};

// @return when `length` bytes are done
ucs::Duration carry(std::vector<Link>& links, uint64_t length, ucs::Time& now,
                    const ScheduleRules& rules = kRules) {
    const ucs::Time start = now;
    uint64_t waiting = length;
    std::vector<const Meter*> meters;
    for (Link& link : links) meters.push_back(&link.meter);
    for (;;) {
        while (waiting != 0) {
            const size_t slice = std::min<uint64_t>(waiting, kSlice);
            const Choice choice = choose(meters, slice, waiting, now, rules);
            if (choice.path < 0) break;
            const uint64_t bytes = std::min<uint64_t>(
                {waiting, std::max(slice, choice.bytes / kSlice * kSlice), rules.chain * kSlice});
            links[static_cast<size_t>(choice.path)].post(bytes, now);
            waiting -= bytes;
        }
        ucs::Time next = ucs::kNever;
        for (Link& link : links) {
            if (!link.chains.empty()) next = std::min(next, link.chains.front().done);
        }
        if (next == ucs::kNever) return now - start;
        now = next;
        for (Link& link : links) link.complete(now);
    }
}

// The same if each path asks for itself when it has room, in the order of their numbers.
ucs::Duration carry_by_pull(std::vector<Link>& links, uint64_t length, ucs::Time& now) {
    const ucs::Time start = now;
    uint64_t waiting = length;
    std::vector<const Meter*> meters;
    for (Link& link : links) meters.push_back(&link.meter);
    for (;;) {
        for (Link& link : links) {
            while (waiting != 0) {
                const size_t slice = std::min<uint64_t>(waiting, kSlice);
                const size_t given = pull(link.meter, meters, slice, waiting, now, kRules);
                if (given == 0) break;
                const uint64_t bytes = std::min<uint64_t>(
                    {waiting, std::max(slice, given / kSlice * kSlice), 64 * kSlice});
                link.post(bytes, now);
                waiting -= bytes;
            }
        }
        ucs::Time next = ucs::kNever;
        for (Link& link : links) {
            if (!link.chains.empty()) next = std::min(next, link.chains.front().done);
        }
        if (next == ucs::kNever) {
            EXPECT_EQ(waiting, 0u);
            return now - start;
        }
        now = next;
        for (Link& link : links) link.complete(now);
    }
}

double part_of_ideal(std::vector<Link>& links, uint64_t length, ucs::Duration took) {
    double rates = 0;
    for (const Link& link : links) rates += link.rate;
    return static_cast<double>(length) / rates / ucs::seconds(took);
}

TEST(PathChoice, EqualPathsGetEqualShares) {
    std::vector<Link> links(4, Link(1e9, 1e9));
    ucs::Time now{1s};
    const uint64_t length = 1 << 30;
    EXPECT_GT(part_of_ideal(links, length, carry(links, length, now)), 0.99);
    for (const Link& link : links) {
        EXPECT_NEAR(static_cast<double>(link.carried), length / 4.0, length * 0.01);
    }
}

TEST(PathChoice, UnequalPathsGiveTheSumOfTheirRates) {
    // 1 Gbit/s and 250 Mbit/s, believed to be alike at first.
    std::vector<Link> links{Link(125e6, 125e6), Link(125e6, 31.25e6)};
    ucs::Time now{1s};
    const uint64_t length = 1 << 30;
    EXPECT_GT(part_of_ideal(links, length, carry(links, length, now)), 0.98);
    EXPECT_NEAR(links[1].meter.rate(), 31.25e6, 3e6);
    // And, the rates known, for a message of some megabytes.
    EXPECT_GT(part_of_ideal(links, 16 << 20, carry(links, 16 << 20, now)), 0.95);
}

TEST(PathChoice, OfDevicesThatAreNotMeasuredYetTheNearerGetsMore) {
    constexpr double kBandwidth = 50e9, kWay = 300e-9;
    EXPECT_DOUBLE_EQ(expected_rate(kBandwidth, 0, kSlice), kBandwidth);
    const double there = expected_rate(kBandwidth, kWay, kSlice);
    EXPECT_DOUBLE_EQ(kSlice / there, kSlice / kBandwidth + kWay);
    // A device of another speed class is not outdone by one that is near.
    EXPECT_GT(there, expected_rate(kBandwidth / 2, 0, kSlice));
    for (const size_t near : {0, 1}) {
        std::vector<Meter> meters(2, Meter(there));
        meters[near] = Meter(kBandwidth);
        const Meter* const paths[] = {&meters[0], &meters[1]};
        size_t posted[2] = {};
        const ucs::Time now{1s};
        for (uint64_t waiting = 64; waiting != 0; --waiting) {
            const Choice choice = choose(paths, kSlice, waiting * kSlice, now, kRules);
            if (choice.path < 0) break;
            const auto path = static_cast<size_t>(choice.path);
            meters[path].posted(kSlice, now);
            ++posted[path];
        }
        EXPECT_GT(posted[near], posted[1 - near]);
        EXPECT_GT(posted[1 - near], 0u);
    }
}

TEST(PathChoice, PathsThatAskForThemselvesGiveTheSumOfTheirRatesToo) {
    std::vector<Link> links{Link(125e6, 31.25e6), Link(125e6, 125e6)};
    ucs::Time now{1s};
    const uint64_t length = 1 << 30;
    EXPECT_GT(part_of_ideal(links, length, carry_by_pull(links, length, now)), 0.98);
    EXPECT_GT(part_of_ideal(links, 16 << 20, carry_by_pull(links, 16 << 20, now)), 0.95);
    std::vector<Link> slow{Link(1e6, 1e6), Link(1e9, 1e9)};
    for (Link& link : slow) {
        link.meter.posted(1, now - 1ms);
        link.meter.completed(1, now);
    }
    carry_by_pull(slow, 1 << 20, now);
    EXPECT_EQ(slow[0].carried, 0u);
}

TEST(PathChoice, WhatWasNotPostedLeavesRoom) {
    Meter meter(1e9);
    meter.posted(3 * kSlice, ucs::Time{1s});
    meter.withdrawn(2 * kSlice);
    EXPECT_EQ(meter.under_way(), kSlice);
}

TEST(PathChoice, FewSlicesAreSharedEvenlyThoughOnePathSeemsALittleFaster) {
    std::vector<Link> links{Link(1e9, 1e9), Link(1.05e9, 1e9)};
    ucs::Time now{1s};
    for (Link& link : links) {
        link.meter.posted(1, now - 1ms);
        link.meter.completed(1, now);
    }
    carry(links, 4 * kSlice, now);
    EXPECT_EQ(links[0].carried, 2 * kSlice);
    EXPECT_EQ(links[1].carried, 2 * kSlice);
}

// As over a token bucket: what it has saved passes at once, and is paid for with a wait.
TEST(PathChoice, ABurstIsNotTakenForTheRate) {
    constexpr double kRate = 125e6;
    Meter meter(kRate);
    ucs::Time now{1s};
    for (int i = 0; i < 200; ++i) {
        const auto burst = ucs::from_seconds(kSlice / (20 * kRate));
        const auto wait = ucs::from_seconds(2 * kSlice / kRate) - burst;
        for (const ucs::Duration took : {burst, wait}) {
            meter.posted(kSlice, now);
            now += took;
            meter.completed(kSlice, now);
        }
    }
    EXPECT_NEAR(meter.rate(), kRate, 0.1 * kRate);
}

TEST(PathChoice, TheEndOfAMessageIsNotLeftToTheSlow) {
    std::vector<Link> links{Link(1e9, 1e9), Link(1e6, 1e6)};
    ucs::Time now{1s};
    const ucs::Duration alone = ucs::from_seconds((1 << 20) / 1e9);
    links[0].meter.posted(1, now - 1ms);
    links[0].meter.completed(1, now);
    links[1].meter.posted(1, now - 1ms);
    links[1].meter.completed(1, now);
    EXPECT_LE(carry(links, 1 << 20, now), alone + 1us);
    EXPECT_EQ(links[1].carried, 0u);
}

TEST(PathChoice, ARateThatChangedIsFound) {
    std::vector<Link> links{Link(1e9, 1e9), Link(1e9, 1e9)};
    ucs::Time now{1s};
    carry(links, 256 << 20, now);
    links[1].rate = 1e8;
    carry(links, 256 << 20, now);
    EXPECT_NEAR(links[1].meter.rate(), 1e8, 2e7);
    links[1].rate = 1e9;
    carry(links, 512 << 20, now);
    const uint64_t length = 256 << 20;
    EXPECT_GT(part_of_ideal(links, length, carry(links, length, now)), 0.95);
}

TEST(PathChoice, AnIdlePathOfOldRateGetsASliceOfALargeMessage) {
    Meter fast(1e9), forgotten(1e3);
    const Meter* const meters[] = {&fast, &forgotten};
    ucs::Time now{10s};
    fast.posted(kSlice, now - 1ms);
    fast.completed(kSlice, now);
    Choice choice = choose(meters, kSlice, 64 * kSlice, now, kRules);
    EXPECT_EQ(choice.path, 1);
    EXPECT_EQ(choice.bytes, kSlice);
    choice = choose(meters, kSlice, 2 * kSlice, now, kRules);
    EXPECT_EQ(choice.path, 0);
}

TEST(PathChoice, ChainsGrowUntilTheLinkIsBusyWhileTheNextIsWritten) {
    constexpr size_t kPage = 4096;
    Meter meter(50e9);
    const Meter* const meters[] = {&meter};
    const ucs::Time now{1s};
    uint64_t waiting = 1000 * kPage;
    std::vector<size_t> chains;
    while (chains.size() < 5) {
        const Choice choice = choose(meters, kPage, waiting, now, kRules);
        const size_t pages = std::min<size_t>(choice.bytes / kPage, 64);
        meter.posted(pages * kPage, now);
        waiting -= pages * kPage;
        chains.push_back(pages);
    }
    EXPECT_EQ(chains, (std::vector<size_t>{1, 2, 6, 18, 64}));
    // A few are posted at once; a large slice is busy for so long that the next chain is whole.
    Meter idle(50e9);
    const Meter* const idle_meters[] = {&idle};
    EXPECT_GE(choose(idle_meters, kPage, 8 * kPage, now, kRules).bytes, 8 * kPage);
    Meter large(50e9);
    const Meter* const large_meters[] = {&large};
    EXPECT_EQ(choose(large_meters, kSlice, 256 * kSlice, now, kRules).bytes, kSlice);
    large.posted(kSlice, now);
    EXPECT_EQ(choose(large_meters, kSlice, 255 * kSlice, now, kRules).bytes, 32 * kSlice);
}

TEST(PathChoice, WhatIsOneOperationGoesAtOnceIfThereIsRoom) {
    ScheduleRules rules = kRules;
    rules.is_joined = true;
    Meter meter(50e9);
    const Meter* const meters[] = {&meter};
    const ucs::Time now{1s};
    EXPECT_EQ(choose(meters, kSlice, 64 * kSlice, now, rules).bytes, 64 * kSlice);
    // Of more than the window one half is under way while the other's end is handled.
    EXPECT_EQ(choose(meters, kSlice, 65 * kSlice, now, rules).bytes, 32 * kSlice);
    meter.posted(32 * kSlice, now);
    EXPECT_EQ(choose(meters, kSlice, 33 * kSlice, now, rules).bytes, 32 * kSlice);
}

TEST(PathChoice, APathThatIsAlmostThroughIsDoneFirst) {
    Meter before(1e9), after(1e9);
    const Meter* const meters[] = {&before, &after};
    const ucs::Time start{1s};
    before.posted(10 * kSlice, start);
    const ucs::Time now = start + ucs::from_seconds(4 * kSlice / 1e9);
    after.posted(8 * kSlice, now);
    EXPECT_NEAR(before.left(now), 6.0 * kSlice, 100);
    EXPECT_EQ(after.left(now), 8.0 * kSlice);
    EXPECT_EQ(choose(meters, kSlice, 2 * kSlice, now, kRules).path, 0);
    // A chain that should long be done may be lost.
    EXPECT_EQ(before.left(now + 1s), 5.0 * kSlice);
    EXPECT_EQ(before.under_way(), 10 * kSlice);
}

TEST(PathChoice, AWindowHoldsNoMoreThanItsSize) {
    const ScheduleRules rules{.slice = kSlice, .window = 8 * kSlice, .chain = 64};
    Meter meter(1e12);
    const Meter* const meters[] = {&meter};
    const ucs::Time now{1s};
    size_t posted = 0;
    for (;;) {
        const Choice choice = choose(meters, kSlice, 1 << 30, now, rules);
        if (choice.path < 0) break;
        EXPECT_LE(choice.bytes, rules.window / 2);
        meter.posted(choice.bytes, now);
        posted += choice.bytes;
    }
    EXPECT_EQ(posted, rules.window);
}

TEST(PathChoice, ASlowPathHoldsWhatItGetsDoneSoon) {
    const Meter meter(100e6);
    EXPECT_EQ(meter.window(kRules), static_cast<size_t>(100e6 * 0.020));
    const Meter crawling(1e3);
    EXPECT_EQ(crawling.window(kRules), Meter::kMinWindowSlices * kSlice);
}

TEST(PathChoice, APathThatWasGivenUpIsOnProbation) {
    Meter meter(1e9);
    const ucs::Time now{1s};
    meter.posted(kSlice, now);
    EXPECT_EQ(meter.silent_since(), now);
    meter.give_up();
    EXPECT_EQ(meter.silent_since(), ucs::kNever);
    EXPECT_EQ(meter.window(kRules), kSlice);
    meter.posted(kSlice, now);
    EXPECT_FALSE(meter.has_room(kSlice, kRules));
    meter.completed(kSlice, now + 1ms);
    EXPECT_GT(meter.window(kRules), kSlice);
}

}  // namespace
}  // namespace ucp::bulk::test
