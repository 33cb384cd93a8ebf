// SPDX-License-Identifier: BSD-3-Clause

// UCX_COSTS=learn of puts and gets over the emulated adapter, in modelled time: figures that are
// wrong are found out, and what fences order stays in order whatever way each put goes.

#include <cstring>
#include <vector>

#include "system/soft_world.h"
#include "ucp/endpoint/endpoint.h"
#include "ucs/sys/random.h"
#include "unit/ucp/region.h"

namespace ucp::test {
namespace {

using select::LearnedCosts;
using select::Load;
using OneSidedWay = select::Way;
constexpr auto kPutOperation = select::Operation::kPut;
constexpr auto kGetOperation = select::Operation::kGet;

SoftWorld::Options quiet_one_sided_world(const Config& config,
                                         const softhca::FaultPlan& faults = {}) {
    SoftWorld::Options options;
    options.traffic.workers = 2;
    options.config = config;
    options.faults = faults;
    options.tick = std::chrono::nanoseconds(100);
    return options;
}

const LearnedLane* learned_of(ucp_ep_h endpoint, select::Operation operation) {
    Endpoint& inner = unwrap(endpoint);
    return inner.learned(inner.one_sided_lane(), operation);
}

// What a program does, and what makes one of its ways the better one.
struct Habit {
    const char* name;
    select::Operation operation;
    unsigned window;
    size_t length;
    double request_gap;  // ns of the adapter for a work request
    unsigned devices;    // of each worker
};

// A worker that puts into another one's memory, or gets from it, in windows.
class Windows {
  public:
    Windows(const Config& config, const Habit& habit)
        : world_(world_of(config, habit)),
          habit_(habit),
          local_(cluster().context(0), habit.window * habit.length),
          remote_(cluster().context(1), habit.window * habit.length) {
        remote_.open(endpoint());
        turn();
    }
    ~Windows() { remote_.close(); }

    // A window, and its flush. @return its time
    ucs::Duration turn() {
        const ucs::Time begin = cluster().clock.now();
        std::vector<ucs_status_ptr_t> all;
        for (unsigned i = 0; i < habit_.window; ++i) all.push_back(start(i * habit_.length));
        for (const ucs_status_ptr_t each : all) EXPECT_EQ(cluster().finish(each), UCS_OK);
        EXPECT_EQ(cluster().finish(ucp_ep_flush_nbx(endpoint(), &kNothing)), UCS_OK);
        return cluster().clock.now() - begin;
    }
    ucs::Duration turns(unsigned count) {
        ucs::Duration sum{};
        for (unsigned i = 0; i < count; ++i) sum += turn();
        return sum / count;
    }
    const LearnedLane& learned() { return *learned_of(endpoint(), habit_.operation); }
    ucp_ep_h endpoint() { return cluster().endpoint(0, 1); }
    Cluster& cluster() { return world_.cluster; }

  private:
    static SoftWorld::Options world_of(const Config& config, const Habit& habit) {
        SoftWorld::Options options = quiet_one_sided_world(config);
        softhca::Model& model = options.model;
        if (habit.request_gap != 0) model.nic_gap_dc = model.nic_gap_rc = habit.request_gap;
        options.devices = habit.devices;
        return options;
    }
    ucs_status_ptr_t start(size_t offset) {
        uint8_t* const here = local_.bytes.data() + offset;
        const uint64_t there = remote_.address(offset);
        return habit_.operation == kPutOperation
                   ? ucp_put_nbx(endpoint(), here, habit_.length, there, remote_.key, &kNothing)
                   : ucp_get_nbx(endpoint(), here, habit_.length, there, remote_.key, &kNothing);
    }

    SoftWorld world_;
    const Habit& habit_;
    Region local_, remote_;
};

Config one_sided_set_to(OneSidedWay way) {
    Config config = quiet_config();
    config.zcopy_threshold = ucs::config::MemorySize{way == OneSidedWay::kCopy ? SIZE_MAX : 0};
    config.bulk_threshold = ucs::config::MemorySize{way == OneSidedWay::kBulk ? 0 : SIZE_MAX};
    return config;
}

class OneSidedLearning : public testing::TestWithParam<Habit> {
  protected:
    void SetUp() override {
        const ucs::Duration one = time_of(first()), other = time_of(second());
        least = std::min(one, other);
        good = one < other ? first() : second();
        ASSERT_GT(std::max(one, other), least + least / 10) << "the test says nothing";
    }
    ucs::Duration time_of(OneSidedWay way) const {
        return Windows(one_sided_set_to(way), GetParam()).turns(8);
    }
    OneSidedWay first() { return ways().first(GetParam().length); }
    OneSidedWay second() { return ways().second(GetParam().length); }
    OneSidedWay bad() { return ways().other_than(good, GetParam().length); }
    const select::Ways& ways() { return *windows.learned().ways_of(load(), GetParam().length); }
    Load load() const { return GetParam().window == 1 ? Load::kAlone : Load::kOneWay; }
    LearnedCosts::Class which() const { return LearnedCosts::class_of(load(), GetParam().length); }
    bool is_right() {
        return windows.learned().costs->best(which(), ways(), GetParam().length, bad()) == good;
    }
    void restore(OneSidedWay way, double times) {
        windows.learned().costs->restore(which(), way, static_cast<float>(times), 1000);
    }

    Windows windows{learning_config(), GetParam()};
    ucs::Duration least{};
    OneSidedWay good{};
};

constexpr Habit kHabits[] = {
    {"GetAlone", kGetOperation, 1, 48 << 10, 0, 1},
    {"GetWindow", kGetOperation, 16, 12 << 10, 0, 1},
    {"GetWindowOfSlices", kGetOperation, 6, 256 << 10, 0, 2},
    {"PutAlone", kPutOperation, 1, 48 << 10, 2000, 1},
    {"PutWindow", kPutOperation, 16, 48 << 10, 2000, 1},
    {"PutOfSlicesAlone", kPutOperation, 1, 512 << 10, 0, 2},
    {"PutWindowOfSlices", kPutOperation, 6, 256 << 10, 0, 2},
};
INSTANTIATE_TEST_SUITE_P(Habits, OneSidedLearning, testing::ValuesIn(kHabits),
                         [](const auto& info) { return info.param.name; });

TEST_P(OneSidedLearning, CostsThatAreWrongByFourTimesAreRightWithinASecond) {
    // The good one seems to take four times what the other does, or more.
    const size_t length = GetParam().length;
    const double ratio = ways().assumed(bad()).at(length) / ways().assumed(good).at(length);
    restore(good, 4 * std::max(ratio, 1.0));
    restore(bad(), 1);
    ASSERT_FALSE(is_right());
    const ucs::Time begin = windows.cluster().clock.now();
    while (!is_right() && windows.cluster().clock.now() - begin < std::chrono::seconds(1))
        windows.turn();
    RecordProperty("converged_us",
                   static_cast<int>((windows.cluster().clock.now() - begin).count() / 1000));
    EXPECT_TRUE(is_right());
    // And it stays so.
    windows.turns(64);
    EXPECT_TRUE(is_right());
}

TEST_P(OneSidedLearning, TrialsCostLittle) {
    windows.turns(300);
    ASSERT_TRUE(is_right());
    EXPECT_LE(windows.turns(300), least + least / 50);
}

TEST_P(OneSidedLearning, IsAFunctionOfTheSeed) {
    const auto factors = [&] {
        Windows again(learning_config(), GetParam());
        again.turns(100);
        const LearnedCosts& costs = *again.learned().costs;
        return std::pair(costs.factor(which(), first()), costs.factor(which(), second()));
    };
    const auto once = factors();
    EXPECT_EQ(once, factors());
    EXPECT_NE(once.first + once.second, 0);
}

TEST(NoOneSidedLearning, IsTheDefaultOnAVirtualClock) {
    for (const CostSource source : {CostSource::kAdapted, CostSource::kFixed}) {
        Config config = quiet_config();
        config.costs = source;
        Windows windows(config, kHabits[0]);
        for (const auto operation : {kPutOperation, kGetOperation})
            EXPECT_EQ(learned_of(windows.endpoint(), operation), nullptr);
    }
}

// Packets are lost and delayed.
SoftWorld::Options lossy_world(uint64_t seed) {
    softhca::FaultPlan faults;
    faults.drop = 0.01;
    faults.delay = 0.2;
    faults.delay_ns = 30000;
    faults.seed = seed;
    return quiet_one_sided_world(learning_config(), faults);
}

// Puts to the same place with fences between them, each by a way of its own, on a fabric that loses
// and delays packets, while the lane changes. Nothing of an earlier one may be seen behind what a
// later one has written.
class OrderOfWays : public testing::TestWithParam<unsigned> {};

TEST_P(OrderOfWays, FencesHoldWhateverWayEachPutGoes) {
    SoftWorld world(lossy_world(GetParam()));
    Cluster& cluster = world.cluster;
    ucs::Random random(GetParam());
    constexpr size_t kMost = 200 << 10;
    const ucp_ep_h endpoint = cluster.endpoint(0, 1);
    Region remote(cluster.context(1), kMost + sizeof(uint64_t));
    remote.open(endpoint);
    const auto flag = [&] {
        uint64_t value = 0;
        std::memcpy(&value, remote.bytes.data() + kMost, sizeof(value));
        return value;
    };
    unsigned by_way[select::kWays] = {};
    // Makes the next puts of that length go that way, on either lane.
    const auto send_by = [&](OneSidedWay way, size_t length) {
        const LearnedLane& learned = *learned_of(endpoint, kPutOperation);
        learned.costs->pin();
        for (const Load load : {Load::kAlone, Load::kOneWay}) {
            const select::Ways& ways = *learned.ways_of(load, length);
            const auto which = LearnedCosts::class_of(load, length);
            learned.costs->restore(which, way, 0.01F, 1);
            learned.costs->restore(which, ways.other_than(way, length), 100, 1);
        }
        ++by_way[select::place_of(way)];
    };
    uint64_t number = 0;
    for (unsigned round = 0; round < 30; ++round) {
        const auto policy =
            random.uniform() < 0.5 ? UCPX_LANE_POLICY_DEDICATED : UCPX_LANE_POLICY_SCALABLE;
        ASSERT_EQ(ucpx_ep_lanes_request(endpoint, policy), UCS_OK);
        std::vector<std::vector<uint8_t>> contents;
        std::vector<uint64_t> numbers(4);
        std::vector<ucs_status_ptr_t> all;
        const uint64_t before = number;
        for (uint64_t& each : numbers) {
            each = ++number;
            const size_t length = 2048 + random.below(kMost - 2048);
            contents.push_back(pattern(length, number));
            const select::Ways& ways =
                *learned_of(endpoint, kPutOperation)->ways_of(Load::kAlone, length);
            send_by(random.uniform() < 0.5 ? ways.first(length) : ways.second(length), length);
            all.push_back(ucp_put_nbx(endpoint, contents.back().data(), length, remote.address(),
                                      remote.key, &kNothing));
            ASSERT_EQ(ucp_worker_fence(cluster.worker(0)), UCS_OK);
            all.push_back(ucp_put_nbx(endpoint, &each, sizeof(each), remote.address(kMost),
                                      remote.key, &kNothing));
            ASSERT_EQ(ucp_worker_fence(cluster.worker(0)), UCS_OK);
        }
        const auto check = [&] {
            // Behind its flag a put is there, until the next one begins to write.
            const uint64_t seen = flag();
            if (seen == before) return;
            ASSERT_GT(seen, before);
            const auto& content = contents[seen - before - 1];
            const bool is_whole =
                std::memcmp(remote.bytes.data(), content.data(), content.size()) == 0;
            if (seen == number) {
                ASSERT_TRUE(is_whole) << seen;
                return;
            }
            // Whatever the next one has not written yet is of this one, or longer ones before.
            const auto& next = contents[seen - before];
            for (size_t at = 0; at < content.size(); at += 997) {
                const bool is_next = at < next.size() && remote.bytes[at] == next[at];
                ASSERT_TRUE(remote.bytes[at] == content[at] || is_next) << seen << " at " << at;
            }
        };
        while (flag() != number && !HasFailure()) {
            cluster.step();
            check();
        }
        for (const ucs_status_ptr_t each : all) ASSERT_EQ(cluster.finish(each), UCS_OK);
        // What is flushed is there.
        ASSERT_EQ(cluster.finish(ucp_ep_flush_nbx(endpoint, &kNothing)), UCS_OK);
        check();
    }
    for (const unsigned puts : by_way) EXPECT_GT(puts, 3U);
    remote.close();
}

// A flush alone, without a fence: the copy, the registered buffer and the slices are all there.
TEST_P(OrderOfWays, FlushesWaitForEveryWay) {
    SoftWorld world(lossy_world(GetParam()));
    Cluster& cluster = world.cluster;
    const ucp_ep_h endpoint = cluster.endpoint(0, 1);
    constexpr size_t kLengths[] = {3000, 20000, 60000, 90000, 250000};
    ucs::Random random(GetParam());
    for (unsigned round = 0; round < 100; ++round) {
        const size_t length = kLengths[random.below(std::size(kLengths))];
        constexpr size_t kCount = 5;
        Region local(cluster.context(0), kCount * length),
            remote(cluster.context(1), kCount * length);
        remote.open(endpoint);
        local.fill(round);
        std::vector<ucs_status_ptr_t> all;
        for (size_t at = 0; at < kCount * length; at += length) {
            all.push_back(ucp_put_nbx(endpoint, local.bytes.data() + at, length, remote.address(at),
                                      remote.key, &kNothing));
        }
        ASSERT_EQ(cluster.finish(ucp_ep_flush_nbx(endpoint, &kNothing)), UCS_OK);
        ASSERT_EQ(local.bytes, remote.bytes) << round;
        for (const ucs_status_ptr_t each : all) ASSERT_EQ(cluster.finish(each), UCS_OK);
        remote.close();
    }
    // Trials were among them.
    unsigned known = 0;
    const LearnedCosts& costs = *learned_of(endpoint, kPutOperation)->costs;
    for (size_t size = 0; size < LearnedCosts::kSizes; ++size) {
        for (const OneSidedWay way : select::all_ways(kPutOperation)) {
            const auto which = LearnedCosts::class_of_size(Load::kOneWay, size);
            known += costs.learned(which, way) != 0 ? 1 : 0;
        }
    }
    EXPECT_GT(known, 3U);
}

INSTANTIATE_TEST_SUITE_P(Seeds, OrderOfWays, testing::Range(1U, 9U));

}  // namespace
}  // namespace ucp::test
