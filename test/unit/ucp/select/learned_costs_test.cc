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

using namespace std::chrono_literals;

// A machine whose ways take other times than is assumed, and what disturbs them.
struct Machine {
    const Ways& ways;
    std::array<double, 2> times{1, 1};  // of messages
    double held_up = 0.001;             // part of the messages that are held up,
    double held_up_by = 50;             // so many times
    double away = 0;  // part of the messages whose peer computes meanwhile: a millisecond

    double seconds(Way way, size_t length) const {
        return ways.assumed(way).at(length) * times[static_cast<size_t>(way)];
    }
    double least(size_t length) const {
        return std::min(seconds(Way::kEager, length), seconds(Way::kRendezvous, length));
    }
    Way best(size_t length) const {
        return seconds(Way::kEager, length) < seconds(Way::kRendezvous, length) ? Way::kEager
                                                                                : Way::kRendezvous;
    }
    // Alone, what goes at once keeps both ends at work at the same time.
    MessageTime time(Load load, Way way, size_t length, ucs::Random& random) const {
        double plain = seconds(way, length) * (0.9 + 0.2 * random.uniform());
        if (random.uniform() < held_up) plain *= held_up_by;
        const ucs::Duration cost = ucs::from_seconds(plain);
        MessageTime time{.sending = way == Way::kEager ? cost : 0ns,
                         .receiving = cost,
                         .before = cost / 4,
                         .took = cost - cost / 4,
                         .wires = {}};
        if (load == Load::kBothWays && way == Way::kEager) {
            time.sending = cost / 2;
            time.receiving = cost - cost / 2;
        }
        if (random.uniform() < away) (random.uniform() < 0.5 ? time.before : time.took) += 1ms;
        return time;
    }
};

constexpr Ways kWithinHost{9 << 10, 64 << 20, {{{0.3e-6, 1 / 20e9}, {2e-6, 1 / 28e9}}}};
constexpr Ways kSlowCopies{9 << 10, 64 << 20, {{{1e-6, 1 / 8e9}, {6e-6, 1 / 24e9}}}};
constexpr Ways kBoth[] = {kWithinHost, kSlowCopies};
constexpr Load kAllLoads[] = {Load::kAlone, Load::kOneWay, Load::kBothWays};

LearnedCosts::Class class_of(size_t length, Load load = Load::kAlone) {
    return LearnedCosts::class_of(load, length);
}

struct Traffic {
    double spent = 0, least = 0;  // seconds
    unsigned messages = 0, timed = 0;
};

// So many seconds of messages of a length.
Traffic run(LearnedCosts& costs, const Machine& machine, Load load, size_t length, double seconds,
            ucs::Random& random) {
    Traffic traffic;
    const auto which = class_of(length, load);
    const Way usual = Machine{machine.ways}.best(length);
    while (traffic.spent < seconds) {
        const auto [way, is_timed] = costs.choose(which, machine.ways, length, usual);
        traffic.spent += machine.seconds(way, length);
        traffic.least += machine.least(length);
        ++traffic.messages;
        if (!is_timed) continue;
        ++traffic.timed;
        costs.observe(which, way, machine.ways.assumed(way).at(length),
                      machine.time(load, way, length, random));
    }
    return traffic;
}

// What is learned is right, or as good as that.
void expect_right(const LearnedCosts& costs, const Machine& machine, Load load, size_t length) {
    const Way usual = Machine{machine.ways}.best(length);
    const Way best = costs.best(class_of(length, load), machine.ways, length, usual);
    EXPECT_LE(machine.seconds(best, length), 1.15 * machine.least(length))
        << length << " " << static_cast<int>(load) << " " << machine.times[0] << " "
        << machine.times[1];
}

template <typename Check>
void for_each_machine(Check check) {
    for (const Ways& ways : kBoth) {
        for (const Load load : kAllLoads) {
            for (const double at_once : {0.25, 1.0, 4.0}) {
                for (const double announced : {0.25, 1.0, 4.0})
                    check(Machine{.ways = ways, .times = {at_once, announced}}, load);
            }
        }
    }
}

TEST(LearnedCosts, BeforeObservationsTheTableDecides) {
    const auto costs = std::make_unique<LearnedCosts>();
    for (const size_t length : {size_t{30} << 10, size_t{100} << 20}) {
        for (const Way usual : {Way::kEager, Way::kRendezvous}) {
            EXPECT_EQ(costs->best(class_of(length), kSlowCopies, length, usual), usual);
            for (int i = 0; i < 100; ++i)
                EXPECT_EQ(costs->choose(class_of(length), kSlowCopies, length, usual).way, usual);
        }
    }
}

TEST(LearnedCosts, CostsThatAreWrongByFourTimesAreRightAfterASecond) {
    ucs::Random random(1);
    for_each_machine([&](const Machine& machine, Load load) {
        for (const size_t length : {size_t{32} << 10, size_t{256} << 10, size_t{4} << 20}) {
            const auto costs = std::make_unique<LearnedCosts>();
            run(*costs, machine, load, length, 1, random);
            expect_right(*costs, machine, load, length);
        }
    });
}

TEST(LearnedCosts, FiguresOfAnotherMachineAreRightAfterASecond) {
    ucs::Random random(2);
    for_each_machine([&](const Machine& machine, Load load) {
        const size_t length = 128 << 10;
        for (const float wrong : {0.25F, 4.0F}) {
            const auto costs = std::make_unique<LearnedCosts>();
            for (const Way way : {Way::kEager, Way::kRendezvous}) {
                const bool is_best = way == machine.best(length);
                costs->restore(class_of(length, load), way, is_best ? wrong : 1 / wrong, 1000);
            }
            run(*costs, machine, load, length, 1, random);
            expect_right(*costs, machine, load, length);
        }
    });
}

// Whichever way is the better one, of every class: figures of others by which the better one takes
// 4 times as long as it does, and the other one a quarter.
TEST(LearnedCosts, FiguresThatAreWrongByFourTimesAreRightAfterSomeMessages) {
    constexpr unsigned kMessages = 48;  // 4 of the worse way, 32 up to the trial, and its run
    ucs::Random random(10);
    for_each_machine([&](const Machine& machine, Load load) {
        for (size_t size = 0; size < LearnedCosts::kSizes; ++size) {
            const size_t length = 3 * LearnedCosts::least_of_size(size) / 2;
            const double ratio =
                machine.seconds(Way::kEager, length) / machine.seconds(Way::kRendezvous, length);
            if (!machine.ways.admits(length) || std::abs(std::log(ratio)) < std::log(1.3)) continue;
            const Way good = machine.best(length);
            const auto which = class_of(length, load);
            const auto costs = std::make_unique<LearnedCosts>();
            for (const Way way : {Way::kEager, Way::kRendezvous}) {
                const double factor = machine.times[static_cast<size_t>(way)];
                costs->restore(which, way,
                               static_cast<float>(way == good ? 4 * factor : factor / 4), 1000);
            }
            const Way usual = Machine{machine.ways}.best(length);
            double spent = 0;
            unsigned messages = 0;
            for (; costs->best(which, machine.ways, length, usual) != good; ++messages) {
                ASSERT_LT(messages, kMessages) << length << " " << static_cast<int>(load) << " "
                                               << machine.times[0] << " " << machine.times[1];
                const auto [way, is_timed] = costs->choose(which, machine.ways, length, usual);
                spent += machine.seconds(way, length);
                if (!is_timed) continue;
                costs->observe(which, way, machine.ways.assumed(way).at(length),
                               machine.time(load, way, length, random));
            }
            EXPECT_LT(spent, 1);
            // A way that is worse by up to 16 times need not have looked better.
            if (ratio < 16 && ratio > 1 / 16.0) {
                EXPECT_GT(messages, 0U);
            }
        }
    });
}

TEST(LearnedCosts, WhatOthersFoundOutIsTriedSoon) {
    const size_t length = 128 << 10;
    const auto which = class_of(length);
    for (const double wrong : {4.0, 40.0}) {
        const auto costs = std::make_unique<LearnedCosts>();
        costs->restore(which, Way::kEager, static_cast<float>(wrong), 1000);
        costs->restore(which, Way::kRendezvous, 1, 1000);
        ucs::Random random(9);
        const Machine machine{.ways = kWithinHost, .times = {1, 2}, .held_up = 0};
        unsigned messages = 0;
        while (costs->best(which, kWithinHost, length, Way::kEager) == Way::kRendezvous) {
            const auto [way, is_timed] = costs->choose(which, kWithinHost, length, Way::kEager);
            ++messages;
            if (is_timed) {
                costs->observe(which, way, kWithinHost.assumed(way).at(length),
                               machine.time(Load::kAlone, way, length, random));
            }
        }
        EXPECT_EQ(messages < 40, wrong == 4) << messages;
    }
}

TEST(LearnedCosts, TrialsCostLessThanAHundredth) {
    ucs::Random random(3);
    for_each_machine([&](const Machine& machine, Load load) {
        for (const size_t length : {size_t{64} << 10, size_t{4} << 20}) {
            const auto costs = std::make_unique<LearnedCosts>();
            run(*costs, machine, load, length, 0.5, random);
            const Traffic traffic = run(*costs, machine, load, length, 1, random);
            EXPECT_LE(traffic.spent, 1.01 * traffic.least)
                << length << " " << machine.times[0] << " " << machine.times[1] << " "
                << static_cast<int>(load);
        }
    });
}

TEST(LearnedCosts, ShortMessagesAreSeldomTimed) {
    ucs::Random random(4);
    for (const size_t length : {size_t{16} << 10, size_t{64} << 10}) {
        const Machine machine{.ways = kWithinHost, .times = {1, 4}};
        const auto costs = std::make_unique<LearnedCosts>();
        run(*costs, machine, Load::kOneWay, length, 0.1, random);
        const Traffic traffic = run(*costs, machine, Load::kOneWay, length, 1, random);
        EXPECT_LE(traffic.timed, traffic.messages / 12) << length;
        EXPECT_GE(traffic.timed, 100U);
    }
}

TEST(LearnedCosts, NoiseOfTwoKindsDoesNotMislead) {
    ucs::Random random(5);
    // A fifth of the messages takes five times as long: the table's way is still the better one.
    for (const Load load : kAllLoads) {
        for (const auto& times : {std::array{1.0, 1.5}, std::array{1.5, 0.5}}) {
            const size_t length = 256 << 10;
            const Machine machine{
                .ways = kWithinHost, .times = times, .held_up = 0.2, .held_up_by = 5};
            const auto costs = std::make_unique<LearnedCosts>();
            run(*costs, machine, load, length, 1, random);
            unsigned wrong = 0;
            for (int i = 0; i < 100; ++i) {
                run(*costs, machine, load, length, 0.01, random);
                const Way best = costs->best(class_of(length, load), kWithinHost, length,
                                             Machine{kWithinHost}.best(length));
                wrong += best == machine.best(length) ? 0 : 1;
            }
            EXPECT_LE(wrong, 5U) << static_cast<int>(load) << " " << times[0];
        }
    }
}

TEST(LearnedCosts, APeerThatComputesTeachesNothing) {
    ucs::Random random(6);
    const size_t length = 256 << 10;
    for (const Load load : kAllLoads) {
        const Machine machine{.ways = kWithinHost, .times = {1, 2}, .away = 0.7};
        const auto costs = std::make_unique<LearnedCosts>();
        run(*costs, machine, load, length, 1, random);
        for (const Way way : {Way::kEager, Way::kRendezvous}) {
            EXPECT_NEAR(costs->factor(class_of(length, load), way),
                        machine.times[static_cast<size_t>(way)],
                        0.15 * machine.times[static_cast<size_t>(way)])
                << static_cast<int>(load);
        }
    }
}

TEST(LearnedCosts, APeerThatIsAlwaysAwayLeavesTheTablesChoice) {
    ucs::Random random(7);
    const size_t length = 64 << 10;
    const Machine machine{.ways = kWithinHost, .times = {4, 1}, .held_up = 0, .away = 1};
    const auto costs = std::make_unique<LearnedCosts>();
    const Traffic traffic = run(*costs, machine, Load::kAlone, length, 0.1, random);
    EXPECT_GT(traffic.timed, 0U);
    EXPECT_EQ(costs->learned(class_of(length), Way::kEager), 0U);
    EXPECT_EQ(costs->best(class_of(length), kWithinHost, length, Way::kEager), Way::kEager);
}

TEST(LearnedCosts, WhatLoadsCost) {
    const size_t length = 64 << 10;
    const MessageTime time{.sending = 3us, .receiving = 2us, .before = 1us, .took = 4us};
    const auto cost = [&](Load load) {
        const auto costs = std::make_unique<LearnedCosts>();
        EXPECT_TRUE(costs->observe(class_of(length, load), Way::kEager, 1e-6, time));
        return costs->factor(class_of(length, load), Way::kEager);
    };
    EXPECT_FLOAT_EQ(cost(Load::kAlone), 5);
    EXPECT_FLOAT_EQ(cost(Load::kOneWay), 3);
    EXPECT_FLOAT_EQ(cost(Load::kBothWays), 5);
}

TEST(LearnedCosts, WorkThatIsNotSeen) {
    const size_t length = 64 << 10;
    MessageTime time{.sending = 0us, .receiving = ucs::kForever, .before = 1us, .took = 4us};
    const auto costs = std::make_unique<LearnedCosts>();
    const auto observe = [&](Load load) {
        return costs->observe(class_of(length, load), Way::kRendezvous, 1e-6, time);
    };
    EXPECT_TRUE(observe(Load::kAlone));
    EXPECT_FALSE(observe(Load::kOneWay));
    EXPECT_FALSE(observe(Load::kBothWays));
    time.took = 50us;
    EXPECT_FALSE(observe(Load::kAlone));
    time.took = 4us;
    time.before = 50us;
    EXPECT_FALSE(observe(Load::kAlone));
}

// Memory of queues that is touched for the first time takes many times as long, and the first
// messages of either way are all that is known of it at first.
TEST(LearnedCosts, WhatTheFirstMessagesPaidForIsSoonForgotten) {
    constexpr size_t kLength = 64 << 10;
    constexpr unsigned kCold = 4, kEnough = 250;
    LearnedCosts costs;
    ucs::Random random(5);
    const Machine warm{kWithinHost}, cold{kWithinHost, {6, 1}};
    ASSERT_EQ(warm.best(kLength), Way::kEager);
    unsigned eager = 0;
    for (unsigned message = 0; message < kEnough; ++message) {
        const auto which = class_of(kLength);
        const auto [way, is_timed] = costs.choose(which, kWithinHost, kLength, Way::kEager);
        if (way == Way::kEager) ++eager;
        if (!is_timed) continue;
        const Machine& machine = eager <= kCold ? cold : warm;
        costs.observe(which, way, kWithinHost.assumed(way).at(kLength),
                      machine.time(Load::kAlone, way, kLength, random));
    }
    EXPECT_EQ(costs.best(class_of(kLength), kWithinHost, kLength, Way::kEager), Way::kEager);
}

TEST(LearnedCosts, AMachineThatChangesIsNoticed) {
    ucs::Random random(8);
    const size_t length = 256 << 10;
    Machine machine{.ways = kWithinHost, .times = {1, 4}};
    const auto costs = std::make_unique<LearnedCosts>();
    run(*costs, machine, Load::kAlone, length, 1, random);
    EXPECT_EQ(costs->best(class_of(length), kWithinHost, length, Way::kEager), Way::kEager);
    machine.times[1] = 0.5;
    run(*costs, machine, Load::kAlone, length, 2, random);
    EXPECT_EQ(costs->best(class_of(length), kWithinHost, length, Way::kEager), Way::kRendezvous);
}

TEST(LearnedCosts, AmongOthersATrialIsARun) {
    const size_t length = 256 << 10;
    const auto which = class_of(length, Load::kOneWay);
    const auto costs = std::make_unique<LearnedCosts>();
    unsigned runs = 0, tried = 0;
    Way before = Way::kEager;
    for (int i = 0; i < 5000; ++i) {
        const auto [way, is_timed] = costs->choose(which, kWithinHost, length, Way::kEager);
        const ucs::Duration work = way == Way::kEager ? 10us : 12us;
        if (is_timed) {
            costs->observe(which, way, kWithinHost.assumed(way).at(length),
                           {.sending = work, .receiving = work});
        }
        tried += way == Way::kRendezvous ? 1 : 0;
        runs += way == Way::kRendezvous && before == Way::kEager ? 1 : 0;
        before = way;
    }
    ASSERT_GT(runs, 1u);
    EXPECT_EQ(tried, 4 * runs);
}

TEST(LearnedCosts, ClassesKnowNothingOfEachOther) {
    const auto costs = std::make_unique<LearnedCosts>();
    const auto one = class_of(64 << 10);
    const MessageTime time{.sending = 25us, .receiving = 25us, .took = 50us};
    EXPECT_TRUE(costs->observe(one, Way::kEager, 1e-5, time));
    EXPECT_EQ(costs->learned(one, Way::kEager), 1u);
    EXPECT_EQ(costs->factor(class_of(64 << 10), Way::kEager),
              costs->factor(class_of(100 << 10), Way::kEager));
    for (const auto other :
         {class_of(32 << 10), class_of(128 << 10), class_of(64 << 10, Load::kOneWay),
          class_of(64 << 10, Load::kBothWays)}) {
        EXPECT_NE(other.index, one.index);
        EXPECT_EQ(costs->factor(other, Way::kEager), 0);
    }
    for (const size_t length : {size_t{0}, size_t{1}, SIZE_MAX})
        EXPECT_LT(class_of(length, Load::kBothWays).index, LearnedCosts::kClasses);
}

TEST(LearnedCosts, WhatIsOutOfAllReasonIsNotRestored) {
    const auto costs = std::make_unique<LearnedCosts>();
    const auto which = class_of(64 << 10);
    for (const float factor : {0.0F, -1.0F, NAN, INFINITY, 1e9F, 1e-9F}) {
        costs->restore(which, Way::kEager, factor, 5);
        EXPECT_EQ(costs->factor(which, Way::kEager), 0);
    }
    costs->restore(which, Way::kEager, 8, 5);
    EXPECT_EQ(costs->factor(which, Way::kEager), 8);
    EXPECT_EQ(costs->learned(which, Way::kEager), 0u);
    EXPECT_EQ(costs->kept(which, Way::kEager), 5u);
    EXPECT_EQ(costs->best(which, kWithinHost, 64 << 10, Way::kEager), Way::kRendezvous);
    // What this process has seen itself counts, whatever others say.
    const MessageTime time{.sending = 2us, .receiving = 2us, .took = 2us};
    EXPECT_TRUE(costs->observe(which, Way::kEager, 2e-6, time));
    EXPECT_FLOAT_EQ(costs->factor(which, Way::kEager), 1);
    costs->restore(which, Way::kEager, 8, 5);
    EXPECT_FLOAT_EQ(costs->factor(which, Way::kEager), 1);
}

TEST(LearnedBook, KeepsToWhatIsPinned) {
    LearnedBook book;
    const size_t length = 64 << 10;
    book.restore(std::vector<LearnedFigure>{
        {"lane", Operation::kTag, Load::kAlone, LearnedCosts::size_of(length), Way::kEager, 8, 1}});
    book.pin();
    LearnedCosts& costs = book.of("lane", Operation::kTag);
    for (int i = 0; i < 1000; ++i) {
        const auto choice = costs.choose(class_of(length), kWithinHost, length, Way::kEager);
        EXPECT_EQ(choice.way, Way::kRendezvous);
        EXPECT_FALSE(choice.is_timed);
        EXPECT_FALSE(
            costs.observe(class_of(length), Way::kRendezvous, 1e-6, {.receiving = 1s, .took = 1s}));
    }
    EXPECT_TRUE(book.take_news().empty());
}

TEST(LearnedBook, OperationsKnowNothingOfEachOther) {
    LearnedBook book;
    const size_t length = 64 << 10;
    book.restore(std::vector<LearnedFigure>{
        {"lane", Operation::kActiveMessage, Load::kAlone, 3, Way::kEager, 2, 9}});
    const auto which = LearnedCosts::class_of_size(Load::kAlone, 3);
    EXPECT_EQ(book.of("lane", Operation::kActiveMessage).kept(which, Way::kEager), 9u);
    EXPECT_EQ(book.of("lane", Operation::kTag).kept(which, Way::kEager), 0u);
    book.of("lane", Operation::kActiveMessage)
        .observe(class_of(length, Load::kOneWay), Way::kRendezvous, 4e-6, {.receiving = 9us});
    const std::vector<LearnedFigure> figures = book.take_news();
    ASSERT_EQ(figures.size(), 1u);
    EXPECT_EQ(figures[0].operation, Operation::kActiveMessage);
    LearnedFigure other = figures[0];
    other.operation = Operation::kTag;
    EXPECT_FALSE(other.is_of(figures[0]));
}

TEST(LearnedBook, TellsWhatIsNew) {
    LearnedBook book;
    const size_t length = 64 << 10;
    book.restore(
        std::vector<LearnedFigure>{{"old", Operation::kTag, Load::kAlone, 3, Way::kEager, 2, 9}});
    const auto observe = [&] {
        book.of("lane", Operation::kTag)
            .observe(class_of(length, Load::kOneWay), Way::kRendezvous, 4e-6, {.receiving = 9us});
    };
    observe();
    observe();
    const std::vector<LearnedFigure> figures = book.take_news();
    ASSERT_EQ(figures.size(), 1u);
    EXPECT_EQ(figures[0].lane, "lane");
    EXPECT_EQ(figures[0].load, Load::kOneWay);
    EXPECT_EQ(figures[0].way, Way::kRendezvous);
    EXPECT_EQ(figures[0].size, LearnedCosts::size_of(length));
    EXPECT_EQ(figures[0].count, 2u);
    EXPECT_TRUE(book.take_news().empty());
    observe();
    ASSERT_EQ(book.take_news().size(), 1u);
}

TEST(LearnedBook, MeansAreByNumbersOfMessages) {
    const LearnedFigure one{"lane", Operation::kTag, Load::kAlone, 6, Way::kRendezvous, 2, 30};
    LearnedFigure same = one, other = one;
    same.factor = 4;
    same.count = 10;
    other.way = Way::kEager;
    const std::vector<LearnedFigure> merged = merge({one}, std::vector{same, other});
    ASSERT_EQ(merged.size(), 2u);
    EXPECT_FLOAT_EQ(merged[0].factor, 2.5F);
    EXPECT_EQ(merged[0].count, 40u);
    EXPECT_TRUE(merged[1].is_of(other));
    // However many have said something before, what comes anew counts.
    LearnedFigure many = one;
    many.count = UINT32_MAX;
    EXPECT_GT(merge({many}, std::vector{same})[0].factor, 2.05F);
}

}  // namespace
}  // namespace ucp::select
