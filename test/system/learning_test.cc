// SPDX-License-Identifier: BSD-3-Clause

// UCX_COSTS=learn over the emulated adapter, in modelled time: figures that are wrong are found
// out.

#include <algorithm>
#include <vector>

#include "system/soft_world.h"
#include "ucp/endpoint/endpoint.h"

namespace ucp::test {
namespace {

using select::LearnedCosts;
using select::Load;
using select::Operation;
using HowSent = select::Way;

constexpr size_t kLength = 256 << 10;

HowSent other_than(HowSent way) {
    return way == HowSent::kEager ? HowSent::kRendezvous : HowSent::kEager;
}

// Two workers that send each other windows of messages in turn, whose receives are posted.
class Exchange {
  public:
    Exchange(const Config& config, unsigned window, Operation operation = Operation::kTag)
        : world_(options(config)),
          operation_(operation),
          buffers_(2 * window, std::vector<uint8_t>(kLength)) {
        for (const size_t from : {0, 1}) {
            cluster().endpoint(from, 1 - from);
            ends_[from] = {cluster().worker(from), buffers_.front().data()};
            ucp_am_handler_param_t handler{};
            handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                                 UCP_AM_HANDLER_PARAM_FIELD_ARG;
            handler.id = 1;
            handler.cb = arrived;
            handler.arg = &ends_[from];
            EXPECT_EQ(ucp_worker_set_am_recv_handler(cluster().worker(from), &handler), UCS_OK);
        }
        turn();
    }

    // Both ways once. @return its time
    ucs::Duration turn() {
        const ucs::Time begin = cluster().clock.now();
        for (const size_t from : {0, 1}) {
            const size_t window = buffers_.size() / 2;
            std::vector<ucs_status_ptr_t> all;
            if (operation_ == Operation::kActiveMessage) {
                const size_t before = ends_[1 - from].received;
                for (size_t i = 0; i < window; ++i) {
                    all.push_back(ucp_am_send_nbx(cluster().endpoint(from, 1 - from), 1, nullptr, 0,
                                                  buffers_[window + i].data(), kLength, &kNothing));
                }
                for (const ucs_status_ptr_t each : all) EXPECT_EQ(cluster().finish(each), UCS_OK);
                while (ends_[1 - from].received != before + window) cluster().step();
                continue;
            }
            for (size_t i = 0; i < window; ++i) {
                all.push_back(ucp_tag_recv_nbx(cluster().worker(1 - from), buffers_[i].data(),
                                               kLength, 1, ~ucp_tag_t{0}, &kNothing));
            }
            for (size_t i = 0; i < window; ++i) {
                all.push_back(ucp_tag_send_nbx(cluster().endpoint(from, 1 - from),
                                               buffers_[window + i].data(), kLength, 1, &kNothing));
            }
            for (const ucs_status_ptr_t each : all) EXPECT_EQ(cluster().finish(each), UCS_OK);
        }
        return cluster().clock.now() - begin;
    }
    // One message each way, whose receive is posted when it has long been there.
    void late_turn() {
        for (const size_t from : {0, 1}) {
            const ucs_status_ptr_t send = ucp_tag_send_nbx(
                cluster().endpoint(from, 1 - from), buffers_.back().data(), kLength, 1, &kNothing);
            const ucs::Time begin = cluster().clock.now();
            while (cluster().clock.now() - begin < kLate) cluster().step();
            const ucs_status_ptr_t receive =
                ucp_tag_recv_nbx(cluster().worker(1 - from), buffers_.front().data(), kLength, 1,
                                 ~ucp_tag_t{0}, &kNothing);
            EXPECT_EQ(cluster().finish(receive), UCS_OK);
            EXPECT_EQ(cluster().finish(send), UCS_OK);
        }
    }
    static constexpr ucs::Duration kLate = std::chrono::milliseconds(1);

    ucs::Duration turns(unsigned count) {
        ucs::Duration sum{};
        for (unsigned i = 0; i < count; ++i) sum += turn();
        return sum / count;
    }
    const LearnedLane& learned(size_t from) {
        return *unwrap(cluster().endpoint(from, 1 - from)).learned(operation_);
    }
    Cluster& cluster() { return world_.cluster; }

  private:
    static SoftWorld::Options options(const Config& config) {
        SoftWorld::Options options;
        options.traffic.workers = 2;
        options.config = config;
        options.tick = std::chrono::nanoseconds(200);
        return options;
    }

    // Where active messages come.
    struct End {
        ucp_worker_h worker = nullptr;
        void* buffer = nullptr;
        size_t received = 0;
    };
    static ucs_status_t arrived(void* arg, const void*, size_t, void* data, size_t length,
                                const ucp_am_recv_param_t* param) {
        End& end = *static_cast<End*>(arg);
        if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) {
            ++end.received;
            return UCS_OK;
        }
        ucp_request_param_t params{};
        params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
        params.user_data = &end;
        params.cb.recv_am = [](void* request, ucs_status_t status, size_t, void* user) {
            EXPECT_EQ(status, UCS_OK);
            ++static_cast<End*>(user)->received;
            ucp_request_free(request);
        };
        EXPECT_TRUE(
            UCS_PTR_IS_PTR(ucp_am_recv_data_nbx(end.worker, data, end.buffer, length, &params)));
        return UCS_OK;
    }

    SoftWorld world_;
    const Operation operation_;
    std::vector<std::vector<uint8_t>> buffers_;
    End ends_[2];
};

Config set_to(HowSent way) {
    Config config = quiet_config();
    config.rndv_threshold = ucs::config::MemorySize{way == HowSent::kEager ? SIZE_MAX : 0};
    return config;
}

// The average time of a turn if all messages go that way.
ucs::Duration time_of(HowSent way, Operation operation) {
    return Exchange(set_to(way), 1, operation).turns(8);
}

LearnedCosts::Class alone() {
    return LearnedCosts::class_of(Load::kAlone, kLength);
}

class Learning : public testing::TestWithParam<Operation> {
  protected:
    void SetUp() override {
        const ucs::Duration at_once = time_of(HowSent::kEager, GetParam());
        const ucs::Duration announced = time_of(HowSent::kRendezvous, GetParam());
        least = std::min(at_once, announced);
        good = at_once < announced ? HowSent::kEager : HowSent::kRendezvous;
        ASSERT_GT(std::max(at_once, announced), least + least / 5) << "the test says nothing";
    }
    HowSent choice(size_t from) {
        const LearnedLane& learned = exchange.learned(from);
        return learned.costs->best(which, *ways(from), kLength, bad());
    }
    const select::Ways* ways(size_t from) {
        return exchange.learned(from).ways_of(Load::kAlone, kLength);
    }
    void restore(HowSent way, double times) {
        for (const size_t from : {0, 1})
            exchange.learned(from).costs->restore(which, way, static_cast<float>(times), 1000);
    }
    HowSent bad() const { return other_than(good); }
    bool is_right() { return choice(0) == good && choice(1) == good; }

    const LearnedCosts::Class which = alone();
    ucs::Duration least{};
    HowSent good = HowSent::kEager;
    Exchange exchange{learning_config(), 1, GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Operations, Learning,
                         testing::Values(Operation::kTag, Operation::kActiveMessage),
                         [](const auto& info) {
                             return info.param == Operation::kTag ? "Tags" : "ActiveMessages";
                         });

TEST_P(Learning, CostsThatAreWrongByFourTimesAreRightWithinASecond) {
    // The good one seems to take four times what the other does, or more.
    const double ratio = ways(0)->assumed(bad()).at(kLength) / ways(0)->assumed(good).at(kLength);
    restore(good, 4 * std::max(ratio, 1.0));
    restore(bad(), 1);
    for (const size_t from : {0, 1}) ASSERT_EQ(choice(from), bad());
    const ucs::Time begin = exchange.cluster().clock.now();
    while (!is_right() && exchange.cluster().clock.now() - begin < std::chrono::seconds(1))
        exchange.turn();
    const ucs::Duration took = exchange.cluster().clock.now() - begin;
    RecordProperty("converged_us", static_cast<int>(took.count() / 1000));
    EXPECT_TRUE(is_right());
    // And it stays so.
    exchange.turns(64);
    EXPECT_TRUE(is_right());
}

// Handlers of active messages are there.
using LearningOfReceives = Learning;
INSTANTIATE_TEST_SUITE_P(Tags, LearningOfReceives, testing::Values(Operation::kTag));

TEST_P(LearningOfReceives, AReceiveThatIsLateTeachesNothingWrong) {
    restore(HowSent::kEager, 0.01);
    restore(HowSent::kRendezvous, 1);
    for (unsigned i = 0; i < 8; ++i) exchange.late_turn();
    const LearnedCosts& costs = *exchange.learned(0).costs;
    EXPECT_GE(costs.learned(which, HowSent::kEager), 4U);
    const double took = ways(0)->assumed(HowSent::kEager).at(kLength) *
                        static_cast<double>(costs.factor(which, HowSent::kEager));
    EXPECT_LT(took, ucs::seconds(Exchange::kLate) / 4);
}

TEST_P(Learning, TrialsCostLittle) {
    // What the model's processors copy takes no time there, so the good way takes less than
    // assumed.
    restore(good, 0.1);
    restore(bad(), 1);
    ASSERT_TRUE(is_right());
    exchange.turns(256);
    EXPECT_LE(exchange.turns(512), least + least / 50);
}

TEST_P(Learning, IsAFunctionOfTheSeed) {
    const auto factors = [] {
        Exchange exchange(learning_config(), 1, GetParam());
        exchange.turns(200);
        const LearnedCosts& costs = *exchange.learned(0).costs;
        return std::pair(costs.factor(alone(), HowSent::kEager),
                         costs.factor(alone(), HowSent::kRendezvous));
    };
    const auto once = factors();
    EXPECT_EQ(once, factors());
    EXPECT_NE(once.first + once.second, 0);
}

TEST(LearningAmongOthers, IsLeftToTheTableOverANetwork) {
    Exchange exchange(learning_config(), 16);
    exchange.turns(20);
    for (const Load load : {Load::kOneWay, Load::kBothWays})
        EXPECT_EQ(exchange.learned(0).ways_of(load, kLength), nullptr);
}

TEST(NoLearning, IsTheDefaultOnAVirtualClock) {
    Exchange exchange(quiet_config(), 1);
    EXPECT_EQ(unwrap(exchange.cluster().endpoint(0, 1)).learned(), nullptr);
}

}  // namespace
}  // namespace ucp::test
