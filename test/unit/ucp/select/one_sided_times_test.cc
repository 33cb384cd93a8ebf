// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/select/one_sided_times.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "ucp/select/report.h"
#include "ucs/sys/random.h"

namespace ucp::select {
namespace {

using namespace std::chrono_literals;

constexpr size_t kBulk = 64 << 10;
// A wire of 10 GB/s and 2 us; copies take as long again.
constexpr Ways kAlone{
    1024, (1 << 20) - 1, {{{2e-6, 2e-10}, {4e-6, 1e-10}, {5e-6, 1e-10}}}, kBulk, true};
constexpr Ways kAmongOthers{
    1024, (1 << 20) - 1, {{{0.2e-6, 1.2e-10}, {2e-6, 1e-10}, {1e-6, 1e-10}}}, kBulk, true};

// A program that puts or gets over a lane whose ways take other times than is assumed.
class Program {
  public:
    explicit Program(std::array<double, kWays> times, bool is_put = true)
        : times_taken_(times), is_put_(is_put) {}

    double seconds(Load load, Way way, size_t length) const {
        return ways_[static_cast<size_t>(load)]->assumed(way).at(length) *
               times_taken_[place_of(way)];
    }
    Way best(Load load, size_t length) const {
        const Ways& ways = *ways_[static_cast<size_t>(load)];
        const Way first = ways.first(length), second = ways.second(length);
        return seconds(load, first, length) <= seconds(load, second, length) ? first : second;
    }
    Way learned(Load load, size_t length) const {
        return costs.best(LearnedCosts::class_of(load, length), *ways_[static_cast<size_t>(load)],
                          length, usual);
    }

    // One operation. @return its way
    Way put(size_t length, uint64_t endpoint = 1) {
        const auto route = times.begin({.costs = costs,
                                        .ways = ways_,
                                        .endpoint = endpoint,
                                        .flushes = flushes_,
                                        .length = length,
                                        .usual = usual,
                                        .is_put = is_put_});
        ways_taken.push_back(route.way);
        // What is copied has no request for long.
        if (!is_put_ || route.way != Way::kCopy) {
            times.request_begins();
            ++requests_;
        }
        lengths_.push_back(length);
        if (route.ends_window) ends_.push_back(lengths_.size());
        return route.way;
    }
    // Waits for all of them, flushes, and computes.
    void wait(ucs::Duration computes = 0ns) {
        const Load load = lengths_.size() <= 1 ? Load::kAlone : Load::kOneWay;
        size_t first = ways_taken.size() - lengths_.size();
        for (size_t at = 0; at < lengths_.size(); ++at) {
            clock.advance(ucs::from_seconds(seconds(load, ways_taken[first + at], lengths_[at]) *
                                            (0.9 + 0.2 * random_.uniform())));
            if (std::ranges::count(ends_, at + 1) == 0) continue;
            times.end_window(true);
            ++windows;
        }
        for (; requests_ != 0; --requests_) times.request_ends();
        ++flushes_;
        lengths_.clear();
        ends_.clear();
        clock.advance(computes);
    }
    void window(unsigned operations, size_t length) {
        for (unsigned i = 0; i < operations; ++i) put(length);
        wait();
    }
    // The part of the time that was more than it had to be.
    double lost(Load load, size_t length, size_t from) const {
        double spent = 0, least = 0;
        for (size_t at = from; at < ways_taken.size(); ++at) {
            spent += seconds(load, ways_taken[at], length);
            least += seconds(load, best(load, length), length);
        }
        return spent / least - 1;
    }

    ucs::VirtualClock clock;
    LearnedCosts costs;
    OneSidedTimes times{clock};
    Way usual = Way::kZeroCopy;
    std::vector<Way> ways_taken;
    unsigned windows = 0;  // that were timed

  private:
    const WaysByLoad ways_{kAlone, kAmongOthers, std::nullopt};
    const std::array<double, kWays> times_taken_;
    const bool is_put_;
    ucs::Random random_{1};
    uint32_t flushes_ = 1;
    unsigned requests_ = 0;
    std::vector<size_t> lengths_, ends_;
};

LearnedCosts::Class class_of_load(size_t length, Load load) {
    return LearnedCosts::class_of(load, length);
}

TEST(OneSidedTimes, FiguresThatAreWrongByFourTimesAreRightAfterSomeOperations) {
    for (const bool is_put : {true, false}) {
        for (const unsigned window : {1U, 16U, 64U}) {
            const Load load = window == 1 ? Load::kAlone : Load::kOneWay;
            for (const size_t length : {size_t{1500}, size_t{6} << 10, size_t{24} << 10,
                                        size_t{48} << 10, size_t{96} << 10, size_t{700} << 10}) {
                for (const double one : {0.25, 1.0, 4.0}) {
                    Program program({one, 1.5, 1 / one}, is_put);
                    const Way good = program.best(load, length);
                    const Ways& ways = load == Load::kAlone ? kAlone : kAmongOthers;
                    const Way bad = ways.other_than(good, length);
                    program.usual = bad;
                    const double ratio =
                        program.seconds(load, bad, length) / program.seconds(load, good, length);
                    if (ratio < 1.3) continue;
                    const auto restore = [&](Way way, double times) {
                        const double factor =
                            program.seconds(load, way, length) / ways.assumed(way).at(length);
                        program.costs.restore(class_of_load(length, load), way,
                                              static_cast<float>(factor * times), 1000);
                    };
                    restore(good, 4);
                    restore(bad, 0.25);
                    for (unsigned done = 0; done < 400; done += window)
                        program.window(window, length);
                    EXPECT_EQ(program.learned(load, length), good)
                        << length << " " << window << " " << one << " " << is_put;
                }
            }
        }
    }
}

TEST(OneSidedTimes, TrialsCostLessThanAHundredth) {
    for (const unsigned window : {1U, 16U}) {
        const Load load = window == 1 ? Load::kAlone : Load::kOneWay;
        for (const size_t length : {size_t{6} << 10, size_t{48} << 10, size_t{256} << 10}) {
            for (const double one : {0.5, 3.0}) {
                Program program({one, 1, 2});
                for (unsigned done = 0; done < 5000; done += window) program.window(window, length);
                const size_t from = program.ways_taken.size();
                for (unsigned done = 0; done < 20000; done += window)
                    program.window(window, length);
                EXPECT_LE(program.lost(load, length, from), 0.01) << length << " " << window;
                EXPECT_GT(program.windows, 10U);
            }
        }
    }
}

TEST(OneSidedTimes, WhatWaitsForEachIsAlone) {
    Program program({1, 1, 1});
    for (int i = 0; i < 40; ++i) program.window(1, 16 << 10);
    EXPECT_GE(program.costs.learned(class_of_load(16 << 10, Load::kAlone), Way::kZeroCopy), 4U);
    EXPECT_EQ(program.costs.learned(class_of_load(16 << 10, Load::kOneWay), Way::kZeroCopy), 0U);
    for (int i = 0; i < 40; ++i) program.window(5, 16 << 10);
    EXPECT_GE(program.costs.learned(class_of_load(16 << 10, Load::kOneWay), Way::kZeroCopy), 4U);
}

// All of a window go the same way, and it is as long as those of the program, up to a limit.
TEST(OneSidedTimes, AWindowGoesOneWay) {
    for (const unsigned window : {3U, 16U, 50U}) {
        Program program({2, 1, 1});
        const unsigned timed = std::min(window, OneSidedTimes::kMostOperations);
        for (int i = 0; i < 2000; ++i) {
            const size_t before = program.ways_taken.size();
            program.window(window, 8 << 10);
            // The first window is taken for one that is alone.
            if (i < 2) continue;
            for (unsigned at = 1; at < timed; ++at)
                ASSERT_EQ(program.ways_taken[before + at], program.ways_taken[before]) << i;
        }
        EXPECT_GT(std::ranges::count(program.ways_taken, Way::kCopy), timed);
    }
}

// An estimate of a window that the program cuts short would count the time until it goes on.
TEST(OneSidedTimes, AWindowThatIsCutShortSaysNothing) {
    Program program({1, 1, 1});
    const auto which = class_of_load(16 << 10, Load::kOneWay);
    for (int i = 0; i < 20; ++i) program.window(8, 16 << 10);
    const uint32_t learned = program.costs.learned(which, Way::kZeroCopy);
    ASSERT_GE(learned, 4U);
    const float factor = program.costs.factor(which, Way::kZeroCopy);
    for (int i = 0; i < 300; ++i) {
        for (const unsigned operations : {8U, 2U}) {
            for (unsigned at = 0; at < operations; ++at) program.put(16 << 10);
            program.wait(1ms);
        }
    }
    EXPECT_NEAR(program.costs.factor(which, Way::kZeroCopy), factor, 0.15 * factor);
}

TEST(OneSidedTimes, OtherEndpointsAndClassesEndAWindow) {
    Program program({1, 1, 1});
    for (int i = 0; i < 200; ++i) {
        for (int at = 0; at < 16; ++at) program.put(16 << 10, 1 + at % 2);
        program.wait();
    }
    EXPECT_EQ(program.windows, 0U);
    for (int i = 0; i < 200; ++i) {
        for (int at = 0; at < 16; ++at) program.put(at % 2 == 0 ? 16 << 10 : 40 << 10);
        program.wait();
    }
    // But for the first operation, which is taken for one that is alone.
    EXPECT_LE(program.windows, 1U);
}

// Copies end at once, which says nothing of when they are there.
TEST(OneSidedTimes, CopiesThatAreNotFlushedAreNotTimed) {
    ucs::VirtualClock clock;
    LearnedCosts costs;
    OneSidedTimes times(clock);
    const WaysByLoad ways{kAlone, kAmongOthers, std::nullopt};
    const auto timed = [&](bool flushes) {
        unsigned count = 0;
        for (uint32_t i = 0; i < 100; ++i) {
            const auto route = times.begin({.costs = costs,
                                            .ways = ways,
                                            .endpoint = 1,
                                            .flushes = flushes ? i : 0,
                                            .length = 2048,
                                            .usual = Way::kCopy,
                                            .is_put = true});
            clock.advance(1us);
            if (!route.ends_window) continue;
            times.end_window(true);
            ++count;
        }
        return count;
    };
    EXPECT_LE(timed(false), 1U);
    EXPECT_GE(timed(true), 4U);
}

TEST(OneSidedTimes, AWindowThatFailsTeachesNothing) {
    ucs::VirtualClock clock;
    LearnedCosts costs;
    OneSidedTimes times(clock);
    const WaysByLoad ways{kAlone, kAmongOthers, std::nullopt};
    for (uint32_t i = 0; i < 20; ++i) {
        const auto route = times.begin({costs, ways, 1, i, 2048, Way::kCopy, true});
        clock.advance(1us);
        if (route.ends_window) times.end_window(false);
    }
    EXPECT_EQ(costs.learned(class_of_load(2048, Load::kAlone), Way::kCopy), 0U);
}

// A program that waits at first and then no more is left with the way that is known.
TEST(OneSidedTimes, AWayThatWasNeverTimedIsNotBelievedToBeBetter) {
    LearnedCosts costs;
    const size_t length = 100 << 10;
    const auto which = class_of_load(length, Load::kOneWay);
    const double assumed = kAmongOthers.assumed(Way::kBulk).at(length);
    for (int i = 0; i < 8; ++i)
        costs.observe_window(which, Way::kBulk, assumed, ucs::from_seconds(5 * assumed));
    EXPECT_EQ(costs.best(which, kAmongOthers, length, Way::kBulk), Way::kBulk);
    for (int i = 0; i < 4; ++i)
        costs.observe_window(which, Way::kZeroCopy, assumed, ucs::from_seconds(4 * assumed));
    EXPECT_EQ(costs.best(which, kAmongOthers, length, Way::kBulk), Way::kZeroCopy);
}

LaneFigures adapter() {
    LaneFigures lanes;
    lanes.capabilities = uct::kPutShort | uct::kPutBcopy | uct::kPutZcopy | uct::kGetBcopy |
                         uct::kGetZcopy | uct::kPutChain | uct::kGetChain;
    lanes.put = {.max_short = 72, .max_bcopy = 8192, .max_zcopy = size_t{1} << 30};
    lanes.get = {.max_bcopy = 8192, .max_zcopy = size_t{1} << 30};
    lanes.latency = 1e-6;
    lanes.overhead = 1e-7;
    lanes.bandwidth = lanes.together = 12e9;
    return lanes;
}

std::optional<Ways> ways_of(const LaneFigures& lanes, Operation operation,
                            const Thresholds& thresholds = {}) {
    return ways(lanes, CostModel::fixed(), thresholds, operation, Situation::kAlone);
}

TEST(OneSidedWays, AreTwoAtEachLength) {
    const auto found = ways_of(adapter(), Operation::kPut);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->least, kLeastOneSided);
    EXPECT_EQ(found->most, (size_t{1} << 20) - 1);
    EXPECT_EQ(found->bulk, 64U << 10);
    EXPECT_EQ(found->other_than(Way::kCopy, 1024), Way::kZeroCopy);
    EXPECT_EQ(found->other_than(Way::kZeroCopy, 1024), Way::kCopy);
    EXPECT_EQ(found->other_than(Way::kBulk, 1 << 18), Way::kZeroCopy);
    EXPECT_EQ(found->other_than(Way::kZeroCopy, 1 << 18), Way::kBulk);
    // What the table assumes is what is assumed here.
    for (const Alternative& each : alternatives(adapter(), CostModel::fixed(), {}, Operation::kPut,
                                                BufferClass::kContiguous, RemoteClass::kHost)) {
        const auto way = one_sided_way(each.protocol);
        if (!way) continue;
        EXPECT_EQ(found->assumed(*way).at(100000), each.cost.at(100000)) << name(*way);
        EXPECT_EQ(protocol_of(*way), each.protocol);
    }
}

TEST(OneSidedWays, TheUsersWordIsNoChoice) {
    Thresholds thresholds;
    thresholds.zero_copy = 4096;
    EXPECT_EQ(ways_of(adapter(), Operation::kPut, thresholds)->least, 64U << 10);
    thresholds.bulk = 100000;
    EXPECT_FALSE(ways_of(adapter(), Operation::kPut, thresholds));
    thresholds.zero_copy = {};
    EXPECT_EQ(ways_of(adapter(), Operation::kPut, thresholds)->most, (64U << 10) - 1);
    thresholds.bulk = 5000;
    EXPECT_EQ(ways_of(adapter(), Operation::kPut, thresholds)->most, 4999U);
    thresholds.bulk = 0;
    EXPECT_FALSE(ways_of(adapter(), Operation::kGet, thresholds));
}

TEST(OneSidedWays, WhatIsShortOrHasOneWayIsNoChoice) {
    LaneFigures lanes = adapter();
    lanes.put.max_short = 8192;
    EXPECT_EQ(ways_of(lanes, Operation::kPut)->least, 8193U);
    EXPECT_EQ(ways_of(lanes, Operation::kGet)->least, kLeastOneSided);
    lanes.capabilities &= ~uint32_t{uct::kGetChain | uct::kGetBcopy};
    EXPECT_FALSE(ways_of(lanes, Operation::kGet));
    lanes = adapter();
    lanes.capabilities &= ~uint32_t{uct::kPutZcopy};
    EXPECT_FALSE(ways_of(lanes, Operation::kPut));
    // Within a host a put is one call of the system whatever it is called.
    lanes = adapter();
    lanes.device_type = uct::DeviceType::kSharedMemory;
    lanes.capabilities &= ~uint32_t{uct::kPutChain | uct::kGetChain};
    EXPECT_FALSE(ways_of(lanes, Operation::kPut));
    const auto gets = ways_of(lanes, Operation::kGet);
    EXPECT_EQ(gets->least, lanes.get.max_bcopy + 1);
    EXPECT_EQ(gets->most, (64U << 10) - 1);
}

TEST(OneSidedWays, WhatIsKnownOfThemIsShown) {
    LearnedCosts costs;
    const WaysByLoad both{
        ways_of(adapter(), Operation::kPut),
        ways(adapter(), CostModel::fixed(), {}, Operation::kPut, Situation::kAmongOthers),
        std::nullopt};
    const ProtocolTable table(adapter(), CostModel::fixed(), {});
    const auto text = [&] { return describe_learned(costs, Operation::kPut, both, table, "# "); };
    EXPECT_EQ(text(), "");
    costs.observe_window(class_of_load(3 << 12, Load::kAlone), Way::kZeroCopy,
                         both[0]->assumed(Way::kZeroCopy).at(3 << 12), 3us);
    costs.restore(class_of_load(3 << 17, Load::kOneWay), Way::kBulk, 1, 77);
    EXPECT_EQ(text(),
              "# learned            bytes   copy     figure   zero copy  figure     bulk      "
              "figure   goes\n"
              "# put                12288   3.66 us  assumed  3.00 us    learned 1  -         -   "
              "     copy\n"
              "# put, among others  393216  -        -        34.92 us   assumed    33.07 us  "
              "kept 77  bulk\n");
}

}  // namespace
}  // namespace ucp::select
