// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/datastruct/usage_tracker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "unit/ucs/datastruct/usage_tracker_fixture.h"

namespace ucs::test {
namespace {

using Id = TrackedTraffic::Id;

TEST(UsageTracker, PromotesTheBusiest) {
    TrackedTraffic traffic({.places = 2});
    traffic.run_rounds(5, {{1, 2000}, {2, 50000}, {3, 4000}, {4, 30000}});
    EXPECT_EQ(traffic.promoted, (std::set<Id>{2, 4}));
    EXPECT_EQ(traffic.order(), (std::vector<Id>{2, 4, 3, 1}));
    EXPECT_EQ(traffic.ranking.taken(), 2u);
}

TEST(UsageTracker, RanksWithinAFractionOfASecond) {
    TrackedTraffic traffic({.places = 1});
    traffic.run(300ms, {{1, 5000}, {2, 50000}});
    EXPECT_EQ(traffic.promoted, std::set<Id>{2});
}

// A mere list of recent users would see one message and a thousand alike.
TEST(UsageTracker, CountsMessagesNotPresence) {
    TrackedTraffic traffic({.places = 1, .min_score = 0});
    traffic.progress();
    while (traffic.tracker->rounds() == 0) {
        const bool was_armed = traffic.tracker->armed();
        traffic.clock.advance_to(traffic.tracker->next_event());
        traffic.progress();
        if (was_armed || !traffic.tracker->armed()) continue;
        for (unsigned message = 0; message < 1000; ++message) traffic.send(7);
        traffic.send(1);  // the last: first in the order of recent use
    }
    EXPECT_EQ(traffic.order(), (std::vector<Id>{7, 1}));
    EXPECT_DOUBLE_EQ(traffic.rate_of(7), 1000 * traffic.rate_of(1));
}

// All of whom may be promoted: nobody has to wait for the rest of the interval.
TEST(UsageTracker, AFewWhoBeginToSendAreKnownAfterAWindow) {
    const std::map<Id, double> two{{1, 50000}, {2, 20000}};
    TrackedTraffic traffic({.places = 2, .tracker = {.few = 2}});
    traffic.run(40ms, two);
    EXPECT_EQ(traffic.tracker->rounds(), 1u);
    EXPECT_EQ(traffic.promoted, (std::set<Id>{1, 2}));
    // From then on intervals are whole.
    traffic.run(400ms, two);
    EXPECT_LE(traffic.tracker->rounds(), 5u);
    // And anew after a silence in which they were forgotten.
    while (!traffic.tracker->is_idle()) traffic.run(100ms, {});
    traffic.run_rounds(1, {});
    const uint64_t rounds = traffic.tracker->rounds();
    traffic.run(40ms, two);
    EXPECT_EQ(traffic.tracker->rounds(), rounds + 1);
    EXPECT_GT(traffic.rate_of(1), traffic.rate_of(2));
}

// Where new ones are expected, those with places of their own are known after a few messages,
// however many they are and whatever else is going on; who competes waits for the interval.
TEST(UsageTracker, ExpectedNewcomersWithPlacesOfTheirOwnAreKnownAtOnce) {
    std::map<Id, double> rates{{1, 50000}, {2, 20000}, {3, 20000}};
    TrackedTraffic traffic({.places = 50, .tracker = {.few = 2}});
    traffic.run_rounds(3, rates);
    const uint64_t rounds = traffic.tracker->rounds();
    traffic.tracker->expect_newcomers(traffic.clock.now());
    for (Id id = 10; id < 40; ++id) {
        rates[id] = 20000;
        traffic.hooks[id].competes = false;
    }
    rates[50] = 20000;
    traffic.run(3ms, rates);
    EXPECT_EQ(traffic.tracker->rounds(), rounds + 1);
    for (Id id = 10; id < 40; ++id) EXPECT_TRUE(traffic.promoted.contains(id)) << id;
    // What was known before is as good as unchanged by so short an interval.
    EXPECT_NEAR(traffic.rate_of(1), 0.488 * 50000, 5000);
    // Nobody is expected any more: windows have their share of time again.
    traffic.run(100ms, rates);
    unsigned armed = 0;
    for (unsigned step = 0; step < 1000; ++step) {
        traffic.run(100us, rates);
        armed += traffic.tracker->armed();
    }
    EXPECT_LT(armed, 200u);
}

TEST(UsageTracker, AmongManyWhoBeginToSendItTakesAnInterval) {
    TrackedTraffic traffic({.places = 2, .tracker = {.few = 2}});
    traffic.run(90ms, {{1, 50000}, {2, 20000}, {3, 20000}});
    EXPECT_EQ(traffic.tracker->rounds(), 0u);
    traffic.run(20ms, {{1, 50000}, {2, 20000}, {3, 20000}});
    EXPECT_EQ(traffic.tracker->rounds(), 1u);
}

// Then a worker that sleeps need not wake for windows.
TEST(UsageTracker, IsIdleUntilSomethingIsCountedAndOnceScoresAreForgotten) {
    TrackedTraffic traffic({.places = 1});
    traffic.run_rounds(2, {});
    EXPECT_TRUE(traffic.tracker->is_idle());
    traffic.tracker->arm(traffic.clock.now());
    EXPECT_TRUE(traffic.tracker->is_idle());
    traffic.send(1);
    EXPECT_FALSE(traffic.tracker->is_idle()) << "a message that was counted is to be ranked";
    traffic.run_rounds(5, {{1, 50000}});
    EXPECT_FALSE(traffic.tracker->is_idle());
    traffic.run_rounds(60, {});
    EXPECT_TRUE(traffic.tracker->is_idle());
}

TEST(UsageTracker, WeighsBytes) {
    TrackedTraffic traffic({.places = 1, .min_score = 0, .value = {.per_byte = 1e-3}});
    traffic.tracker->arm(traffic.clock.now());
    for (unsigned message = 0; message < 10; ++message) traffic.send(1, 0);
    traffic.send(2, 20000);
    traffic.run_rounds(1, {});
    EXPECT_EQ(traffic.order(), (std::vector<Id>{2, 1}));
    EXPECT_NEAR(traffic.rate_of(2) / traffic.rate_of(1), 21.0 / 10, 1e-9);
}

TEST(UsageTracker, ScoreTendsToTheAbsoluteRate) {
    TrackedTraffic traffic({});
    traffic.run_rounds(60, {{1, 20000}, {2, 1000}});
    EXPECT_NEAR(traffic.rate_of(1), 20000, 1500);
    EXPECT_NEAR(traffic.rate_of(2), 1000, 250);
}

TEST(UsageTracker, ScoreFollowsTheEquation) {
    TrackedTraffic traffic({.min_score = 0, .tracker = {.windows = 1, .duty = 1, .decay = 0.75}});
    traffic.progress();
    ASSERT_TRUE(traffic.tracker->armed());
    for (unsigned message = 0; message < 800; ++message) traffic.send(1);
    traffic.clock.advance(100ms);
    traffic.progress();
    EXPECT_DOUBLE_EQ(traffic.rate_of(1), 0.25 * 8000);
    for (unsigned message = 0; message < 400; ++message) traffic.send(1);
    traffic.clock.advance(100ms);
    traffic.progress();
    EXPECT_DOUBLE_EQ(traffic.rate_of(1), 0.75 * 0.25 * 8000 + 0.25 * 4000);
}

// Of the first interval there is only what chance would make of its count.
TEST(UsageTracker, DeviationIsThatOfTheIntervals) {
    TrackedTraffic traffic({.min_score = 0, .tracker = {.windows = 1, .duty = 1, .decay = 0.75}});
    traffic.progress();
    for (unsigned message = 0; message < 900; ++message) traffic.send(1);
    traffic.clock.advance(100ms);
    traffic.progress();
    EXPECT_NEAR(traffic.tracker->usage_of(traffic.hooks[1]).deviation, 0.25 * 30 / 0.1, 1e-6);
    for (unsigned message = 0; message < 400; ++message) traffic.send(1);
    traffic.clock.advance(100ms);
    traffic.progress();
    const double noise = 0.75 * 900 / 0.01 + 0.25 * 5000 * 5000;
    const double weights = 0.25 / 1.75 * (1 - std::pow(0.75, 4));
    EXPECT_NEAR(traffic.tracker->usage_of(traffic.hooks[1]).deviation, std::sqrt(noise * weights),
                1e-6);
}

// Messages that come at a steady pace are no less sure for being few.
TEST(UsageTracker, DeviationFollowsWhatWasSeen) {
    TrackedTraffic steady({.min_score = 0, .tracker = {.windows = 1, .duty = 1}});
    TrackedTraffic bursts({.min_score = 0, .tracker = {.windows = 1, .duty = 1}});
    steady.progress();
    bursts.progress();
    for (unsigned interval = 0; interval < 40; ++interval) {
        for (unsigned message = 0; message < 4; ++message) steady.send(1);
        for (unsigned message = 0; interval % 4 == 0 && message < 16; ++message) bursts.send(1);
        for (TrackedTraffic* traffic : {&steady, &bursts}) {
            traffic->clock.advance(100ms);
            traffic->progress();
        }
    }
    EXPECT_LT(steady.tracker->usage_of(steady.hooks[1]).deviation, 0.01 * steady.rate_of(1));
    EXPECT_GT(bursts.tracker->usage_of(bursts.hooks[1]).deviation, 0.3 * bursts.rate_of(1));
}

// Sends in each interval what is given, all of which is seen. @return the rate afterwards
double rate_after(const std::vector<unsigned>& intervals, unsigned trend,
                  double* deviation = nullptr) {
    TrackedTraffic traffic(
        {.min_score = 0, .tracker = {.windows = 1, .duty = 1, .decay = 0.8, .trend = trend}});
    traffic.progress();
    for (const unsigned messages : intervals) {
        for (unsigned message = 0; message < messages; ++message) traffic.send(1);
        traffic.clock.advance(100ms);
        traffic.progress();
    }
    if (deviation != nullptr) *deviation = traffic.tracker->usage_of(traffic.hooks[1]).deviation;
    return traffic.rate_of(1);
}

// An interval that progress has lengthened counts as what it is, in parts of one as well.
TEST(UsageTracker, ALongIntervalCountsAsSoMany) {
    for (const int milliseconds : {100, 110, 137, 150, 175, 199}) {
        TrackedTraffic traffic(
            {.min_score = 0, .tracker = {.windows = 1, .duty = 1, .decay = 0.8, .trend = 1}});
        traffic.progress();
        for (int message = 0; message < 1000; ++message) traffic.send(1);
        traffic.clock.advance(100ms);
        traffic.progress();
        const double before = traffic.rate_of(1);
        traffic.clock.advance(std::chrono::milliseconds(milliseconds));
        traffic.progress();
        const double intervals = milliseconds / 100.0;
        EXPECT_NEAR(traffic.rate_of(1), before * std::pow(0.8, intervals), 1e-5 * before)
            << milliseconds;
    }
}

// What follows a trend counts as two intervals, three, four.
TEST(UsageTracker, ARateThatHasMovedIsFollowedFasterAndFaster) {
    std::vector<unsigned> intervals(40, 1000);
    const double before = rate_after(intervals, 4);
    ASSERT_NEAR(before, 10000, 10);
    intervals.insert(intervals.end(), {0, 0, 0, 0, 0});
    EXPECT_NEAR(rate_after(intervals, 4), before * std::pow(0.8, 1 + 2 + 3 + 4 + 4), 1e-6);
    EXPECT_NEAR(rate_after(intervals, 1), before * std::pow(0.8, 5), 1e-6);
    // And so it is upwards, as long as an interval sees more than twice the mean; a move is no
    // noise.
    std::vector<unsigned> rising(40, 100);
    const double low = rate_after(rising, 4);
    rising.insert(rising.end(), {1000, 1000, 1000});
    double moved = 0, noisy = 0;
    rate_after(rising, 1, &noisy);
    EXPECT_NEAR(rate_after(rising, 4, &moved), 10000 - (10000 - low) * std::pow(0.8, 1 + 2 + 1),
                1e-6);
    EXPECT_LT(moved, 0.9 * noisy);
    // Back at the mean the trend is over, and its end is as good as any other interval.
    const double risen = rate_after(rising, 4);
    rising.push_back(static_cast<unsigned>(risen / 10));
    EXPECT_NEAR(rate_after(rising, 4), risen, 1);
}

// Bursts and chance are no trend: what they send on average is their rate, whatever a trend may
// count.
TEST(UsageTracker, NoiseIsNoTrend) {
    std::vector<unsigned> bursts, chance;
    ucs::Random random(5);
    for (unsigned interval = 0; interval < 200; ++interval) {
        bursts.push_back(interval % 5 < 2 ? 500 : 0);
        unsigned sent = 0;
        for (unsigned message = 0; message < 200; ++message)
            sent += random.uniform() < 0.03 ? 1 : 0;
        chance.push_back(sent);
    }
    // The first intervals of all have not shown any noise yet.
    EXPECT_NEAR(rate_after(bursts, 4), rate_after(bursts, 1), 1e-3 * rate_after(bursts, 1));
    EXPECT_DOUBLE_EQ(rate_after(chance, 4), rate_after(chance, 1));
}

// A few large messages a second: windows alone would see one in ten seconds.
TEST(UsageTracker, CountsEveryLargeMessage) {
    TrackedTraffic traffic({.min_score = 0, .value = {.per_message = 0, .per_byte = 1}});
    unsigned sent = 0;
    for (unsigned step = 0; step < 10000; ++step) {
        traffic.progress();
        if (step % 333 == 0) {
            traffic.tracker->count(traffic.hooks[1], 1, 1 << 30);
            ++sent;
        }
        traffic.clock.advance(1ms);
    }
    EXPECT_GE(traffic.tracker->samples() + 1, sent) << "the last may be of an open interval";
    EXPECT_NEAR(traffic.rate_of(1), 3.0 * (1 << 30), 1.5 * (1 << 30));
}

// A window that was open when the program began to compute is no longer for that.
TEST(UsageTracker, TimeWithoutProgressIsNotObserved) {
    for (unsigned start = 0; start < 100; start += 7) {
        TrackedTraffic traffic({.places = 1});
        traffic.run_rounds(20, {{1, 100000}});
        traffic.run(start * 1ms, {{1, 100000}});
        const double before = traffic.rate_of(1);
        traffic.clock.advance(10s);
        traffic.run_rounds(3, {{1, 100000}});
        EXPECT_NEAR(traffic.rate_of(1), before, 0.25 * before) << start;
        EXPECT_EQ(traffic.promoted, std::set<Id>{1}) << start;
    }
}

// Nobody sends while all wait for one that computes.
TEST(UsageTracker, RatesStandStillForAWhileWhileNobodySends) {
    TrackedTraffic traffic({.places = 1, .tracker = {.hold = 60s}});
    traffic.run_rounds(20, {{1, 100000}});
    const double before = traffic.rate_of(1);
    traffic.run(50s, {}, 10ms);
    EXPECT_NEAR(traffic.rate_of(1), before, 0.25 * before);
    EXPECT_TRUE(traffic.tracker->is_idle()) << "nothing to wake for";
    traffic.run(30s, {}, 10ms);
    EXPECT_EQ(traffic.rate_of(1), 0);
    EXPECT_TRUE(traffic.promoted.empty());
}

TEST(UsageTracker, AnOwnerThatIsSilentWhileOthersSendSinks) {
    TrackedTraffic traffic({.places = 1, .tracker = {.hold = 60s}});
    traffic.run_rounds(20, {{1, 100000}, {2, 50000}});
    traffic.run_rounds(20, {{2, 50000}});
    EXPECT_EQ(traffic.promoted, std::set<Id>{2});
}

TEST(UsageTracker, WhatIsWorthNothingIsNotTracked) {
    TrackedTraffic traffic({.min_score = 0, .value = {0, 0}});
    traffic.run_rounds(3, {{1, 100000}});
    EXPECT_EQ(traffic.rate_of(1), 0);
    EXPECT_TRUE(traffic.order().empty());
}

TEST(UsageTracker, ANewValueCountsFromNowOn) {
    double worth = 1;
    UsageTracker::Hook hook;
    UsageTracker tracker({.windows = 1, .duty = 1, .min_score = 0}, [&](Id) {
        return UsageTracker::Value{worth, 0};
    });
    VirtualClock clock{Time(1s)};
    const auto interval = [&] {
        tracker.progress(clock.now());
        for (unsigned message = 0; message < 100; ++message) tracker.touch(hook, 1, 0);
        clock.advance(100ms);
        tracker.progress(clock.now());
    };
    interval();
    const double before = tracker.usage_of(hook).rate;
    worth = 3;
    tracker.revalue(hook);
    EXPECT_DOUBLE_EQ(tracker.usage_of(hook).rate, 3 * before);
    for (unsigned i = 0; i < 50; ++i) interval();
    EXPECT_NEAR(tracker.usage_of(hook).rate, 3000, 30);
    tracker.remove(hook);
}

TEST(UsageTracker, ABusierNewcomerTakesAnEntryFromOneWhoIsLessBusy) {
    TrackedTraffic traffic({.tracker = {.capacity = 4, .windows = 1, .duty = 1}});
    const auto interval = [&traffic](unsigned messages_of_newcomer) {
        traffic.progress();
        for (Id id = 1; id <= 4; ++id) {
            for (unsigned message = 0; message < 100; ++message) traffic.send(id);
        }
        for (unsigned message = 0; message < messages_of_newcomer; ++message) traffic.send(5);
        traffic.clock.advance(100ms);
        traffic.progress();
    };
    for (unsigned i = 0; i < 20; ++i) interval(0);
    // Its rate is a fifth of what was seen of it at first: less than that of the others.
    for (unsigned i = 0; i < 20; ++i) interval(400);
    EXPECT_NEAR(traffic.rate_of(5), 4000, 100);
}

TEST(UsageTracker, EqualsKeepTheirEntries) {
    constexpr Id kOwners = 200;
    TrackedTraffic traffic(
        {.min_score = 0, .tracker = {.capacity = 40, .windows = 1, .duty = 1, .decay = 0.8}});
    Random random(1);
    const auto entries = [&] {
        std::set<Id> ids;
        traffic.tracker->for_each([&](const UsageTracker::Usage& usage) { ids.insert(usage.id); });
        return ids;
    };
    std::set<Id> before;
    size_t replaced = 0;
    for (unsigned interval = 0; interval < 200; ++interval) {
        traffic.progress();
        // By chance, 10 messages each.
        for (Id i = 0; i < 10 * kOwners; ++i) traffic.send(random.below(kOwners));
        // All are seen, whatever the order.
        traffic.clock.advance(100ms);
        traffic.progress();
        const std::set<Id> now = entries();
        for (const Id id : before) replaced += !now.contains(id);
        before = now;
    }
    EXPECT_EQ(before.size(), 40u);
    EXPECT_LE(replaced, 20u);
}

// More owners than one step looks at, and than there is room for.
TEST(UsageTracker, AnIntervalClosedInStepsComesToTheSame) {
    constexpr size_t kOwners = 3 * UsageTracker::kStep;
    struct Run {
        explicit Run(bool in_steps)
            : tracker({.capacity = kOwners - 5, .windows = 1, .duty = 1, .in_steps = in_steps}) {}
        UsageTracker tracker;
        std::array<UsageTracker::Hook, kOwners> hooks{};
        unsigned most_calls = 0;

        void progress(Time now) {
            unsigned calls = 0;
            do {
                tracker.progress(now);
                ++calls;
            } while (tracker.next_event() <= now);
            most_calls = std::max(most_calls, calls);
        }
    };
    Run whole(false), steps(true);
    VirtualClock clock;
    for (size_t round = 0; round < 2000; ++round) {
        for (Run* run : {&whole, &steps}) {
            run->progress(clock.now());
            for (size_t i = 0; run->tracker.armed() && i < kOwners; ++i) {
                for (size_t count = 0; count < (i * 7 + round / 500) % 11; ++count) {
                    run->tracker.touch(run->hooks[i], i, 8);
                }
            }
        }
        clock.advance(1ms);
    }
    EXPECT_EQ(whole.tracker.rounds(), steps.tracker.rounds());
    EXPECT_EQ(whole.tracker.samples(), steps.tracker.samples());
    for (size_t i = 0; i < kOwners; ++i) {
        EXPECT_DOUBLE_EQ(whole.tracker.usage_of(whole.hooks[i]).rate,
                         steps.tracker.usage_of(steps.hooks[i]).rate);
    }
    EXPECT_EQ(whole.most_calls, 1u);
    EXPECT_GE(steps.most_calls, 4u);
    for (Run* run : {&whole, &steps}) {
        for (auto& hook : run->hooks) run->tracker.remove(hook);
    }
}

TEST(UsageTracker, AnOwnerMayGoWhileAnIntervalIsClosed) {
    UsageTracker tracker(
        {.capacity = 4, .windows = 1, .duty = 1, .min_score = 0, .in_steps = true});
    std::array<UsageTracker::Hook, 2> hooks{};
    VirtualClock clock;
    tracker.progress(clock.now());
    for (size_t i = 0; i < hooks.size(); ++i) tracker.touch(hooks[i], i, 8);
    while (!tracker.is_closing()) {
        clock.advance_to(tracker.next_event());
        tracker.progress(clock.now());
    }
    tracker.remove(hooks[0]);
    while (tracker.is_closing()) tracker.progress(clock.now());
    EXPECT_FALSE(hooks[0].tracked());
    EXPECT_TRUE(hooks[1].tracked());
    tracker.remove(hooks[1]);
}

TEST(UsageTracker, SeesNothingWhileDisarmed) {
    TrackedTraffic traffic({.places = 1, .min_score = 0});
    unsigned disarmed = 0;
    while (traffic.tracker->rounds() < 3) {
        traffic.progress();
        if (!traffic.tracker->armed()) {
            traffic.send(1);
            ++disarmed;
        }
        traffic.clock.advance(100us);
    }
    EXPECT_GT(disarmed, 2000u);  // nine tenths of three intervals
    EXPECT_FALSE(traffic.hooks[1].tracked());
    EXPECT_TRUE(traffic.order().empty());
}

TEST(UsageTracker, IsArmedForItsShareOfTime) {
    TrackedTraffic traffic({.tracker = {.windows = 5, .duty = 0.2}});
    unsigned armed = 0, steps = 0, windows = 0;
    bool before = false;
    while (traffic.tracker->rounds() < 20) {
        traffic.progress();
        armed += traffic.tracker->armed();
        windows += traffic.tracker->armed() && !before;
        before = traffic.tracker->armed();
        ++steps;
        traffic.clock.advance(10us);
    }
    EXPECT_NEAR(static_cast<double>(armed) / steps, 0.2, 0.01);
    EXPECT_NEAR(windows, 100, 10);  // neighbours may touch
}

// Two owners send equally much, in bursts of opposite phase at the very pace of the intervals:
// windows at fixed places would see one of them only.
TEST(UsageTracker, PeriodicTrafficIsNotAliased) {
    TrackedTraffic traffic({.places = 1, .tracker = {.seed = 42}});
    while (traffic.tracker->rounds() < 300) {
        traffic.progress();
        const Duration phase = traffic.clock.now().time_since_epoch() % 25ms;
        traffic.send(phase < 12500us ? 1 : 2);
        traffic.clock.advance(50us);
    }
    const double first = traffic.rate_of(1);
    const double second = traffic.rate_of(2);
    EXPECT_NEAR(first, 10000, 4000);
    EXPECT_NEAR(second, 10000, 4000);
}

TEST(UsageTracker, WindowsAreAFunctionOfTheSeed) {
    auto windows = [](uint64_t seed) {
        UsageTracker tracker({.seed = seed});
        std::vector<Time> events;
        Time now(0s);
        tracker.progress(now);
        for (unsigned event = 0; event < 100; ++event) {
            now = tracker.next_event();
            events.push_back(now);
            tracker.progress(now);
        }
        return events;
    };
    EXPECT_EQ(windows(1), windows(1));
    EXPECT_NE(windows(1), windows(2));
}

TEST(UsageTracker, NearTiesDoNotSwitch) {
    TrackedTraffic traffic({.places = 1, .margin_permille = 200});
    traffic.run_rounds(10, {{1, 20000}});
    traffic.run_rounds(50, {{1, 20000}, {2, 21500}});
    EXPECT_EQ(traffic.events, (std::vector<TrackedTraffic::Event>{{true, 1}}));
    traffic.run_rounds(50, {{1, 20000}, {2, 40000}});
    EXPECT_EQ(traffic.events,
              (std::vector<TrackedTraffic::Event>{{true, 1}, {false, 1}, {true, 2}}));
}

TEST(UsageTracker, IdleOwnersAreDemotedWhileNothingIsSent) {
    TrackedTraffic traffic({.places = 2});
    traffic.run_rounds(10, {{1, 20000}, {2, 10000}});
    ASSERT_EQ(traffic.promoted, (std::set<Id>{1, 2}));
    traffic.run_rounds(40, {});
    EXPECT_TRUE(traffic.promoted.empty());
    // Nothing of them is left but their place in the order of recent use.
    traffic.run_rounds(40, {});
    EXPECT_TRUE(traffic.order().empty());
}

TEST(UsageTracker, NewHotOwnersTakeOver) {
    TrackedTraffic traffic({.places = 2});
    traffic.run_rounds(20, {{1, 20000}, {2, 20000}});
    ASSERT_EQ(traffic.promoted, (std::set<Id>{1, 2}));
    traffic.run_rounds(8, {{3, 20000}, {4, 20000}});
    EXPECT_EQ(traffic.promoted, (std::set<Id>{3, 4}));
}

TEST(UsageTracker, ALittleTrafficIsNotWorthAPromotion) {
    TrackedTraffic traffic({.places = 4, .min_score = 1000});
    traffic.run_rounds(20, {{1, 300}, {2, 20000}});
    EXPECT_EQ(traffic.promoted, std::set<Id>{2});
}

TEST(UsageTracker, TiesAreBrokenById) {
    TrackedTraffic traffic({.places = 3, .min_score = 0, .tracker = {.windows = 1, .duty = 1}});
    traffic.progress();
    for (const Id id : {5, 3, 9, 1, 7}) traffic.send(id);
    traffic.clock.advance(100ms);
    traffic.progress();
    EXPECT_EQ(traffic.order(), (std::vector<Id>{9, 7, 5, 3, 1}));
    EXPECT_EQ(traffic.promoted, (std::set<Id>{5, 7, 9}));
}

TEST(UsageTracker, CapZeroPromotesNobodyButRanks) {
    TrackedTraffic traffic({.places = 0});
    traffic.run_rounds(5, {{1, 1000}, {2, 5000}});
    EXPECT_TRUE(traffic.events.empty());
    EXPECT_EQ(traffic.order(), (std::vector<Id>{2, 1}));
}

TEST(UsageTracker, TheCapIsNeverExceeded) {
    for (const size_t cap : {1u, 3u, 40u}) {
        TrackedTraffic traffic({.places = cap});
        Random random(cap);
        traffic.on_promote = [&](Id) { EXPECT_LE(traffic.promoted.size(), cap); };
        for (unsigned change = 0; change < 3; ++change) {
            std::map<Id, double> rates;
            for (Id id = 0; id < 60; ++id) rates[id] = 1000.0 * random.below(100);
            traffic.run_rounds(2, rates);
            EXPECT_LE(traffic.promoted.size(), cap);
            EXPECT_EQ(traffic.ranking.taken(), traffic.promoted.size());
        }
        EXPECT_EQ(traffic.promoted.size(), cap);
    }
}

// Far more owners than entries, each sending a little between the messages of the hot ones.
TEST(UsageTracker, FindsTheHotAmongManyCold) {
    TrackedTraffic traffic({.places = 2});
    const size_t bytes = traffic.tracker->memory_bytes();
    Id cold = 1000;
    while (traffic.tracker->rounds() < 10) {
        traffic.progress();
        traffic.send(1);
        traffic.send(2);
        traffic.send(cold);
        cold = cold == 100000 ? 1000 : cold + 1;
        traffic.clock.advance(20us);
    }
    EXPECT_EQ(traffic.promoted, (std::set<Id>{1, 2}));
    EXPECT_EQ(traffic.tracker->memory_bytes(), bytes);
}

// What is behind a rate: messages and bytes of a second, whatever they are worth.
TEST(UsageTracker, TellsMessagesAndBytesOfASecond) {
    TrackedTraffic traffic({.value = {.per_message = 7, .per_byte = 3}});
    while (traffic.tracker->rounds() < 3) {
        traffic.progress();
        traffic.send(1, 100);
        traffic.clock.advance(20us);
    }
    unsigned count = 0;
    traffic.tracker->for_each([&](const UsageTracker::Usage& usage) {
        ++count;
        EXPECT_NEAR(usage.messages, 50000, 500);
        EXPECT_NEAR(usage.bytes, 5e6, 5e4);
    });
    EXPECT_EQ(count, 1u);
}

TEST(UsageTracker, MemoryDoesNotGrowWithOwners) {
    EXPECT_LE(sizeof(UsageTracker::Hook), 4u);
    auto bytes_with = [](Id owners) {
        TrackedTraffic traffic({});
        std::vector<UsageTracker::Hook> hooks(owners);
        for (unsigned round = 0; round < 3; ++round) {
            traffic.tracker->arm(traffic.clock.now());
            for (Id id = 0; id < owners; ++id) traffic.tracker->touch(hooks[id], id, 8);
            traffic.run_rounds(1, {});
        }
        for (auto& hook : hooks) traffic.tracker->remove(hook);
        return traffic.tracker->memory_bytes();
    };
    EXPECT_EQ(bytes_with(10), bytes_with(100000));
    EXPECT_LT(bytes_with(10), 20000u);
}

TEST(UsageTracker, ARemovedOwnerLeavesNoTrace) {
    TrackedTraffic traffic({.places = 2});
    traffic.run_rounds(5, {{1, 20000}, {2, 10000}});
    ASSERT_EQ(traffic.promoted, (std::set<Id>{1, 2}));
    EXPECT_TRUE(traffic.hooks[1].tracked());
    traffic.remove(1);
    EXPECT_EQ(traffic.order(), std::vector<Id>{2});
    EXPECT_EQ(traffic.ranking.taken(), 1u);
    traffic.run_rounds(5, {{2, 10000}, {3, 10000}});
    EXPECT_EQ(traffic.ranking.taken(), 2u);
    EXPECT_EQ(traffic.order(), (std::vector<Id>{2, 3}));
}

TEST(UsageTracker, RemovalWhileArmedFreesTheNewestEntry) {
    TrackedTraffic traffic({});
    traffic.tracker->arm(traffic.clock.now());
    traffic.send(1);
    traffic.send(2);
    traffic.tracker->remove(traffic.hooks[2]);
    traffic.send(1);
    traffic.tracker->remove(traffic.hooks[1]);
    traffic.send(3);
    traffic.run_rounds(1, {});
    EXPECT_EQ(traffic.order(), std::vector<Id>{3});
}

TEST(UsageTracker, OwnersMayGoWhileSomebodyIsPromoted) {
    TrackedTraffic traffic({.places = 3});
    traffic.on_promote = [&](Id id) {
        if (id != 1) return;
        traffic.remove(2);
        traffic.remove(1);
    };
    traffic.run_rounds(1, {{1, 30000}, {2, 20000}, {3, 10000}});
    EXPECT_EQ(traffic.events, (std::vector<TrackedTraffic::Event>{{true, 1}, {true, 3}}));
    EXPECT_EQ(traffic.ranking.taken(), 1u);
    EXPECT_EQ(traffic.order(), std::vector<Id>{3});
}

TEST(UsageTracker, OwnersMayOutliveTheTracker) {
    UsageTracker::Hook hook;
    {
        UsageTracker tracker({});
        tracker.progress(Time(0s));
        tracker.arm(Time(0s));
        tracker.touch(hook, 1, 8);
        tracker.progress(Time(200ms));
        EXPECT_TRUE(hook.tracked());
    }
    EXPECT_FALSE(hook.tracked());
}

TEST(UsageTracker, ThePeersScoreCounts) {
    TrackedTraffic traffic({.places = 1});
    traffic.run_rounds(10, {{1, 5000}, {2, 10000}});
    ASSERT_EQ(traffic.promoted, std::set<Id>{2});
    traffic.remote[1] = 20000;
    traffic.run_rounds(1, {{1, 5000}, {2, 10000}});
    EXPECT_EQ(traffic.promoted, std::set<Id>{1});
    traffic.remote.clear();
    traffic.run_rounds(20, {{1, 5000}, {2, 10000}});
    EXPECT_EQ(traffic.promoted, std::set<Id>{2});
}

// One-way traffic: the receiver never sends, and still holds the link in its ranking.
TEST(UsageTracker, ThePeersScoreAloneMayPromote) {
    TrackedTraffic traffic({.places = 1});
    traffic.remote[1] = 5000;
    traffic.run_rounds(5, {});
    EXPECT_EQ(traffic.promoted, std::set<Id>{1});
    EXPECT_FALSE(traffic.hooks[1].tracked());
}

TEST(UsageTracker, AFullTableMakesRoomForABetterOnly) {
    TrackedTraffic traffic({.places = 1, .tracker = {.capacity = 2}});
    traffic.run_rounds(3, {{1, 30000}, {2, 20000}});
    traffic.run_rounds(1, {{1, 30000}, {5, 100000}});
    EXPECT_TRUE(traffic.hooks[1].tracked());
    EXPECT_TRUE(traffic.hooks[5].tracked());
    EXPECT_EQ(traffic.rate_of(2), 0);
    traffic.run_rounds(1, {{5, 100000}, {6, 1000}});
    EXPECT_EQ(traffic.rate_of(6), 0);
    EXPECT_GT(traffic.rate_of(1), 0);
}

TEST(UsageTracker, ProgressMayBeSeldom) {
    TrackedTraffic traffic({.places = 1});
    for (unsigned step = 0; step < 100; ++step) {
        traffic.progress();
        for (unsigned message = 0; message < 700; ++message) traffic.send(1);
        traffic.clock.advance(70ms);
    }
    EXPECT_GT(traffic.tracker->rounds(), 20u);
    EXPECT_NEAR(traffic.rate_of(1), 10000, 1500);
    EXPECT_EQ(traffic.promoted, std::set<Id>{1});
}

TEST(UsageTracker, AnIntervalLastsUntilItHadAWindow) {
    TrackedTraffic traffic({.tracker = {.windows = 1, .duty = 1}});
    traffic.progress();
    ASSERT_TRUE(traffic.tracker->armed());
    traffic.tracker->disarm(traffic.clock.now());  // at once: nothing was observed
    traffic.clock.advance(100ms);
    traffic.progress();
    EXPECT_EQ(traffic.tracker->rounds(), 0u);
    EXPECT_TRUE(traffic.tracker->armed());
    traffic.clock.advance(100ms);
    traffic.progress();
    EXPECT_EQ(traffic.tracker->rounds(), 1u);
}

// An hour without progress says nothing about the hour's traffic.
TEST(UsageTracker, AnUnobservedTimeDoesNotWipeTheScores) {
    TrackedTraffic traffic({.places = 1});
    traffic.run_rounds(30, {{1, 1000000}});
    if (traffic.tracker->armed()) traffic.tracker->disarm(traffic.clock.now());
    traffic.clock.advance(1h);
    traffic.run_rounds(1, {});
    EXPECT_EQ(traffic.promoted, std::set<Id>{1});
    EXPECT_GT(traffic.rate_of(1), 10000);
}

TEST(UsageTracker, AnEndlessIntervalNeverArms) {
    UsageTracker tracker({.interval = kForever});
    tracker.progress(Time(0s));
    EXPECT_FALSE(tracker.armed());
    EXPECT_EQ(tracker.next_event(), kNever);
    tracker.progress(Time(1000h));
    EXPECT_FALSE(tracker.armed());
    EXPECT_EQ(tracker.rounds(), 0u);
}

TEST(UsageTracker, OptionsAtTheirLimitsWork) {
    TrackedTraffic traffic({.places = SIZE_MAX,
                            .tracker = {.capacity = UsageTracker::kMaxCapacity,
                                        .interval = 1us,
                                        .windows = 1,
                                        .duty = 1,
                                        .decay = 0}});
    traffic.run(10ms, {{1, 10000}, {2, 100}});
    EXPECT_GT(traffic.tracker->rounds(), 10u);
}

}  // namespace
}  // namespace ucs::test
