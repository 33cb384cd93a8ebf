// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/select/learned_costs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "ucp/select/learned_book.h"
#include "ucs/sys/random.h"

namespace ucp::select {
namespace {

/** A machine whose ways take other times than is assumed. */
struct Machine {
    const Ways& ways;
    std::array<double, kWays> times{1, 1};

    double seconds(Way way, size_t length) const {
        return ways.assumed(way).at(length) * times[static_cast<size_t>(way)];
    }
    double least(size_t length) const {
        return std::min(seconds(Way::kAtOnce, length), seconds(Way::kAnnounced, length));
    }
    Way best(size_t length) const {
        return seconds(Way::kAtOnce, length) < seconds(Way::kAnnounced, length) ? Way::kAtOnce
                                                                                : Way::kAnnounced;
    }
};

constexpr Ways kWithinHost{24 << 10, 64 << 20, {{{0.3e-6, 1 / 20e9}, {2e-6, 1 / 28e9}}}};
constexpr Ways kNetwork{8 << 10, 64 << 20, {{{1e-6, 1 / 8e9}, {6e-6, 1 / 24e9}}}};
constexpr Ways kBoth[] = {kWithinHost, kNetwork};

LearnedCosts::Class class_of(size_t length, Situation situation = Situation::kAlone) {
    return LearnedCosts::class_of(situation, length);
}

struct Traffic {
    double spent = 0, least = 0;  //!< seconds
};

/** So many seconds of messages of a length, with noise and now and then one that is held up. */
Traffic run(LearnedCosts& costs, const Machine& machine, Situation situation, size_t length,
            double seconds, ucs::Random& random) {
    Traffic traffic;
    const auto which = class_of(length, situation);
    const Way usual = Machine{machine.ways}.best(length);
    while (traffic.spent < seconds) {
        const Way way = costs.choose(which, machine.ways, length, usual);
        const double plain = machine.seconds(way, length);
        traffic.spent += plain;
        traffic.least += machine.least(length);
        double noisy = plain * (0.9 + 0.2 * random.uniform());
        if (random.uniform() < 0.001) noisy *= 50;
        costs.observe(which, machine.ways, way, length, ucs::from_seconds(noisy), 1);
    }
    return traffic;
}

TEST(LearnedCosts, BeforeObservationsTheTableDecides) {
    const auto costs = std::make_unique<LearnedCosts>();
    for (const size_t length : {size_t{30} << 10, size_t{100} << 20}) {
        for (const Way usual : {Way::kAtOnce, Way::kAnnounced}) {
            EXPECT_EQ(costs->best(class_of(length), kNetwork, length, usual), usual);
            for (int i = 0; i < 100; ++i)
                EXPECT_EQ(costs->choose(class_of(length), kNetwork, length, usual), usual);
        }
    }
}

TEST(LearnedCosts, CostsThatAreWrongByFourTimesAreRightAfterASecond) {
    ucs::Random random(1);
    for (const Ways& ways : kBoth) {
        for (const Situation situation : {Situation::kAlone, Situation::kAmongOthers}) {
            for (const size_t length : {size_t{256} << 10, size_t{4} << 20, size_t{16} << 20}) {
                // A run of such long messages costs more than may be lost in a second.
                if (length > 4 << 20 && situation == Situation::kAmongOthers) continue;
                for (const double at_once : {0.25, 1.0, 4.0}) {
                    for (const double announced : {0.25, 1.0, 4.0}) {
                        const Machine machine{ways, {at_once, announced}};
                        const auto costs = std::make_unique<LearnedCosts>();
                        run(*costs, machine, situation, length, 1, random);
                        const Way best = costs->best(class_of(length, situation), ways, length,
                                                     Machine{ways}.best(length));
                        EXPECT_LE(machine.seconds(best, length), 1.15 * machine.least(length))
                            << length << " " << at_once << " " << announced;
                    }
                }
            }
        }
    }
}

TEST(LearnedCosts, TrialsCostLessThanAHundredth) {
    ucs::Random random(2);
    for (const Ways& ways : kBoth) {
        for (const Situation situation : {Situation::kAlone, Situation::kAmongOthers}) {
            for (const size_t length : {size_t{128} << 10, size_t{4} << 20}) {
                for (const double wrong : {0.25, 1.0, 4.0}) {
                    const Machine machine{ways, {1, wrong}};
                    const auto costs = std::make_unique<LearnedCosts>();
                    run(*costs, machine, situation, length, 1, random);
                    const Traffic traffic = run(*costs, machine, situation, length, 2, random);
                    EXPECT_LE(traffic.spent, 1.01 * traffic.least) << length << " " << wrong;
                }
            }
        }
    }
}

TEST(LearnedCosts, AMachineThatChangesIsNoticed) {
    ucs::Random random(3);
    const size_t length = 256 << 10;
    Machine machine{kWithinHost, {1, 4}};
    const auto costs = std::make_unique<LearnedCosts>();
    run(*costs, machine, Situation::kAlone, length, 1, random);
    EXPECT_EQ(costs->best(class_of(length), kWithinHost, length, Way::kAtOnce), Way::kAtOnce);
    machine.times[1] = 0.5;
    run(*costs, machine, Situation::kAlone, length, 2, random);
    EXPECT_EQ(costs->best(class_of(length), kWithinHost, length, Way::kAtOnce), Way::kAnnounced);
}

TEST(LearnedCosts, AmongOthersATrialIsARun) {
    const size_t length = 256 << 10;
    const auto which = class_of(length, Situation::kAmongOthers);
    const auto costs = std::make_unique<LearnedCosts>();
    unsigned runs = 0, tried = 0;
    Way before = Way::kAtOnce;
    for (int i = 0; i < 2000; ++i) {
        const Way way = costs->choose(which, kWithinHost, length, Way::kAtOnce);
        costs->observe(which, kWithinHost, way, length,
                       std::chrono::microseconds(way == Way::kAtOnce ? 10 : 12), 1);
        tried += way == Way::kAnnounced ? 1 : 0;
        runs += way == Way::kAnnounced && before == Way::kAtOnce ? 1 : 0;
        before = way;
    }
    ASSERT_GT(runs, 1u);
    EXPECT_GE(tried, 8 * (runs - 1));
}

TEST(LearnedCosts, ClassesKnowNothingOfEachOther) {
    const auto costs = std::make_unique<LearnedCosts>();
    const auto one = class_of(64 << 10);
    costs->observe(one, kNetwork, Way::kAtOnce, 64 << 10, std::chrono::microseconds(50), 1);
    EXPECT_GT(costs->factor(one, Way::kAtOnce), 0);
    EXPECT_EQ(costs->factor(class_of(64 << 10), Way::kAtOnce),
              costs->factor(class_of(100 << 10), Way::kAtOnce));
    for (const auto other :
         {class_of(32 << 10), class_of(128 << 10), class_of(64 << 10, Situation::kAmongOthers)}) {
        EXPECT_NE(other.index, one.index);
        EXPECT_EQ(costs->factor(other, Way::kAtOnce), 0);
    }
    for (const size_t length : {size_t{0}, size_t{1}, SIZE_MAX})
        EXPECT_LT(class_of(length).index, LearnedCosts::kClasses);
}

TEST(LearnedCosts, WhatIsOutOfAllReasonIsNotRestored) {
    const auto costs = std::make_unique<LearnedCosts>();
    const auto which = class_of(64 << 10);
    for (const float factor : {0.0F, -1.0F, NAN, INFINITY, 1e9F, 1e-9F}) {
        costs->restore(which, Way::kAtOnce, factor);
        EXPECT_EQ(costs->factor(which, Way::kAtOnce), 0);
    }
    costs->restore(which, Way::kAtOnce, 8);
    EXPECT_EQ(costs->factor(which, Way::kAtOnce), 8);
    EXPECT_FALSE(costs->is_measured(which, Way::kAtOnce));
    EXPECT_EQ(costs->best(which, kWithinHost, 64 << 10, Way::kAtOnce), Way::kAnnounced);
}

TEST(LearnedBook, KeepsToWhatIsPinned) {
    LearnedBook book;
    const size_t length = 64 << 10;
    book.restore(std::vector<LearnedFigure>{
        {"lane", Situation::kAlone, LearnedCosts::size_of(length), Way::kAtOnce, 8}});
    book.pin();
    LearnedCosts& costs = book.of("lane");
    for (int i = 0; i < 1000; ++i) {
        EXPECT_EQ(costs.choose(class_of(length), kWithinHost, length, Way::kAtOnce),
                  Way::kAnnounced);
        costs.observe(class_of(length), kWithinHost, Way::kAnnounced, length,
                      std::chrono::seconds(1), 1);
    }
    EXPECT_TRUE(book.measured().empty());
}

TEST(LearnedBook, TellsWhatWasObserved) {
    LearnedBook book;
    const size_t length = 64 << 10;
    book.restore(std::vector<LearnedFigure>{{"old", Situation::kAlone, 3, Way::kAtOnce, 2}});
    book.of("lane").observe(class_of(length), kWithinHost, Way::kAnnounced, length,
                            std::chrono::microseconds(9), 1);
    const std::vector<LearnedFigure> figures = book.measured();
    ASSERT_EQ(figures.size(), 1u);
    EXPECT_EQ(figures[0].lane, "lane");
    EXPECT_EQ(figures[0].way, Way::kAnnounced);
    EXPECT_EQ(figures[0].size, LearnedCosts::size_of(length));
}

}  // namespace
}  // namespace ucp::select
