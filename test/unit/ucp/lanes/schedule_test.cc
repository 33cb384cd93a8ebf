// SPDX-License-Identifier: BSD-3-Clause
// Schedules at random: what lanes_seeds is made of.
#include "unit/ucp/lanes/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lanes_test {
namespace {

TEST(LanesSchedules, EachHasFaultsAndSwitchesAndBreaksNothing) {
    std::uint64_t switches = 0;
    std::size_t faults = 0;
    const std::uint64_t seeds = part_of(200);
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
        const Outcome outcome = play(seed, schedule_of(seed), 20);
        ASSERT_EQ("", outcome.error) << "seed " << seed;
        switches += outcome.switches;
        faults += outcome.faults;
    }
    EXPECT_GE(switches, 20 * seeds);
    EXPECT_GE(faults, 4 * seeds);
}

// A link was parked for a lane that was to be made, and that waited for the next call, since this
// one had done enough: for that time more lanes lay beside the slots than may.
TEST(LanesSchedules, WhoIsParkedMakesRoomForALaneThatIsMadeAtOnce) {
    EXPECT_EQ("", play(3439, schedule_of(3439), 20).error);
}

TEST(LanesSchedules, HaveTailsAndSkewedClocksByHalves) {
    unsigned tails = 0, skew = 0, both = 0;
    for (std::uint64_t seed = 0; seed < 1000; ++seed) {
        const Weather weather = weather_of(seed);
        tails += weather.has_tails;
        skew += weather.has_skew;
        both += weather.has_tails && weather.has_skew;
    }
    EXPECT_NEAR(tails, 500, 60);
    EXPECT_NEAR(skew, 500, 60);
    EXPECT_NEAR(both, 250, 60);
}

TEST(LanesSchedules, AClockSaysWhenItShowsATime) {
    for (const std::int64_t fast : {-200, 0, 1, 200}) {
        const Node::Clock clock{3'000'000'007, fast};
        for (Time shown = 3'000'000'000; shown < 9'000'000'000; shown += 12'345'679) {
            const Time when = clock.when(shown);
            EXPECT_GE(clock.at(when), shown);
            if (when != 0) {
                EXPECT_LT(clock.at(when - 1), shown);
            }
        }
        EXPECT_EQ(clock.at(10'000'000'000) - clock.at(0),
                  10'000'000'000 + static_cast<Time>(fast * 10'000));
    }
}

TEST(LanesSchedules, ATailIsAsLongAsATimerOrShortOrAnythingBetween) {
    constexpr Time kTimer = 20'000'000, kOften = 50'000;
    Cluster cluster(2, config_of_tests(), 1);
    cluster.tails = {kTimer};
    unsigned usual = 0, near = 0, between = 0;
    for (std::uint64_t message = 1; message <= 3200; ++message) {
        const Time sent = cluster.now();
        cluster[0].send_data(1, 1);
        while (cluster[1].endpoints[0].delivered < message) cluster.run(cluster.now() + kOften);
        const Time took = cluster.now() - sent;
        ASSERT_LT(took, kTimer * 9 / 8 + 2 * kOften);
        (took <= kOften ? usual : took < kTimer * 7 / 8 ? between : near) += 1;
    }
    EXPECT_GT(usual, 3000u);
    EXPECT_NEAR(near, 50, 20);
    EXPECT_GT(between, 3u);
}

TEST(LanesSchedules, AreFunctionsOfTheirSeed) {
    const Outcome one = play(5, schedule_of(5)), same = play(5, schedule_of(5));
    EXPECT_EQ(one.switches, same.switches);
    EXPECT_EQ(one.faults, same.faults);
    EXPECT_NE(one.switches, play(6, schedule_of(6)).switches);
}

// As if whatever happens 3 ms after the beginning failed if somebody slept before.
TEST(LanesSchedules, ShrinkToWhatFails) {
    const auto is_sleep = [](const Step& step) { return step.action == Action::kSleep; };
    const auto fails = [&](const std::vector<Step>& schedule) {
        Time now = 0;
        bool has_slept = false;
        for (const Step& step : schedule) {
            now += step.after;
            if (has_slept && now > 3'000'000) return true;
            has_slept |= is_sleep(step);
        }
        return false;
    };
    const std::vector<Step> schedule = schedule_of(1);
    ASSERT_TRUE(fails(schedule));
    const std::vector<Step> shrunk = shrink(schedule, fails);
    ASSERT_EQ(2u, shrunk.size());
    EXPECT_TRUE(is_sleep(shrunk[0]));
    EXPECT_GT(shrunk[0].after + shrunk[1].after, 3'000'000u);
}

TEST(LanesSchedules, AreWrittenAsTests) {
    EXPECT_EQ(as_test(7, {{10, Action::kSlow, 1, 2, 500}}),
              "TEST(LanesSchedules, Seed7) {\n"
              "    EXPECT_EQ(\"\", play(7, {\n"
              "        {10, Action::kSlow, 1, 2, 500},\n"
              "    }).error);\n"
              "}\n");
}

}  // namespace
}  // namespace lanes_test
