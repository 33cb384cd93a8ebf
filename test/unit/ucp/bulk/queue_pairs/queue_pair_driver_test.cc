// SPDX-License-Identifier: BSD-3-Clause

// Queue pairs end to end: made at promotion, capped, used, given back, failing.

#include "ucp/bulk/queue_pairs/queue_pair_driver.h"
#include "ucp/worker/worker.h"
#include "ucs/log/log.h"
#include "unit/ucp/bulk/engine/two_rails.h"
#include "unit/ucs/log/log_capture.h"

namespace ucp::bulk::test {
namespace {

using namespace std::chrono_literals;
using Device = uct::mock::Fabric::Device;
using ucp::test::Cluster;
using ucp::test::pattern;

Cluster::Options with_queue_pairs(unsigned qps, unsigned devices = 2) {
    Cluster::Options options = BulkCluster::options(devices);
    options.config.bulk_qps = qps;
    options.config.bulk_stall_timeout = 400us;
    options.config.bulk_retry_interval = 100us;
    return options;
}

class Pair : public BulkCluster {
  public:
    explicit Pair(size_t length, const Cluster::Options& options) : BulkCluster(length, options) {}

    // Queue pairs with the role of bulk alone that ucpx_ep_query() names.
    unsigned listed(ucp_ep_h ep) {
        std::vector<ucpx_lane_t> lanes(64);
        ucpx_ep_attr_t attr{};
        attr.field_mask = UCPX_EP_ATTR_FIELD_LANES;
        attr.lanes.entry_size = sizeof(ucpx_lane_t);
        attr.lanes.num_entries = static_cast<unsigned>(lanes.size());
        attr.lanes.entries = lanes.data();
        EXPECT_EQ(ucpx_ep_query(ep, &attr), UCS_OK);
        unsigned count = 0;
        for (unsigned i = 0; i < attr.lanes.num_entries; ++i) {
            if (lanes[i].roles == UCPX_LANE_ROLE_BULK) ++count;
        }
        return count;
    }
    void promote() {
        EXPECT_EQ(ucpx_ep_lanes_request(endpoint, UCPX_LANE_POLICY_DEDICATED), UCS_OK);
    }
    void demote() { EXPECT_EQ(ucpx_ep_lanes_request(endpoint, UCPX_LANE_POLICY_SCALABLE), UCS_OK); }
    unsigned held(size_t index) { return cluster.inner(index).bulk_queue_pairs().held(); }
    // Both ends post on so many.
    bool has(unsigned count) {
        return cluster.until(
            [&] { return listed(endpoint) == count && listed(cluster.endpoint(1, 0)) == count; });
    }
    bool has_none() {
        return cluster.until([&] {
            return held(0) == 0 && held(1) == 0 && cluster.dedicated_endpoints(0) == 0 &&
                   cluster.dedicated_endpoints(1) == 0;
        });
    }
};

TEST(QueuePairDriver, APromotedEndpointHasThemOnEveryRailOnceThereIsBulk) {
    for (const unsigned qps : {1u, 3u, 8u}) {
        Pair pair(64 << 12, with_queue_pairs(qps));
        pair.promote();
        ASSERT_TRUE(pair.cluster.until(
            [&] { return pair.cluster.lane_state(pair.endpoint) == UCPX_LANE_STATE_ESTABLISHED; }));
        pair.cluster.steps(300);
        EXPECT_EQ(pair.held(0), 0u);
        pair.fill(qps);
        EXPECT_EQ(pair.put(), UCS_OK);
        ASSERT_TRUE(pair.has(2 * qps)) << qps;
        EXPECT_EQ(pair.cluster.dedicated_endpoints(0), 2 * qps + 1);
        const uint64_t before = pair.cluster.fabric.counters(uct::mock::Kind::kDedicated).chains;
        pair.fill(qps + 10);
        EXPECT_EQ(pair.put(), UCS_OK);
        EXPECT_TRUE(pair.there == pair.here);
        EXPECT_GE(pair.cluster.fabric.counters(uct::mock::Kind::kDedicated).chains, before + 2);
        pair.fill_there(qps);
        EXPECT_EQ(pair.get(), UCS_OK);
        EXPECT_TRUE(pair.there == pair.here);
        pair.demote();
        EXPECT_TRUE(pair.has_none());
        EXPECT_EQ(pair.put(), UCS_OK);
    }
}

// The peer answers nothing for a while, and in the middle of it this process is stopped. Whoever
// has the higher id asks: some of these.
TEST(QueuePairDriver, WhatAStoppedProcessDoesNotSeeIsNoSilenceOfThePeer) {
    const ucs::LogCapture log(ucs::LogLevel::kInfo);
    unsigned asked = 0;
    for (const uint64_t seed : {1, 2, 3, 4, 5, 6}) {
        Cluster::Options options = with_queue_pairs(2);
        options.seed = seed;
        Pair pair(64 << 12, options);
        pair.promote();
        ASSERT_TRUE(pair.cluster.until(
            [&] { return pair.cluster.lane_state(pair.endpoint) == UCPX_LANE_STATE_ESTABLISHED; }));
        pair.cluster.hold_still(1);
        const ucs_status_ptr_t put = pair.start_put();
        pair.cluster.steps(100);
        if (pair.held(0) != 0) ++asked;
        pair.cluster.clock.advance(options.config.bulk_cut_timeout / 10);
        pair.cluster.steps(10);
        pair.cluster.clock.advance(10 * options.config.bulk_cut_timeout);
        pair.cluster.steps(10);
        pair.cluster.hold_still(SIZE_MAX);
        EXPECT_TRUE(pair.has(4));
        EXPECT_EQ(pair.cluster.finish(put), UCS_OK);
    }
    EXPECT_NE(asked, 0u);
    EXPECT_FALSE(log.contains("given up"));
}

TEST(QueuePairDriver, TheOtherEndsBulkAsksForThem) {
    Pair pair(64 << 12, with_queue_pairs(2, 1));
    pair.promote();
    // The first call of each end in turn: one of them has the higher id and has to ask.
    EXPECT_EQ(pair.get(), UCS_OK);
    EXPECT_TRUE(pair.has(2));
}

TEST(QueuePairDriver, NoneWhereTheyAreTurnedOff) {
    Pair pair(64 << 12, with_queue_pairs(0));
    pair.promote();
    EXPECT_EQ(pair.put(), UCS_OK);
    pair.cluster.steps(500);
    EXPECT_EQ(pair.held(0) + pair.held(1), 0u);
}

TEST(QueuePairDriver, TheCapCountsLanesAndQueuePairsAtEveryInstant) {
    Cluster::Options options = with_queue_pairs(8);
    options.config.max_priority_endpoints = 2;
    options.config.max_dedicated_qps = 7;
    size_t most = 0;
    Pair pair(256 << 12, options);
    pair.cluster.fabric.observe([&](const uct::mock::PacketEvent&) {
        for (size_t index : {0, 1}) {
            most = std::max(most, pair.cluster.dedicated_endpoints(index));
        }
    });
    for (int round = 0; round < 3; ++round) {
        pair.promote();
        EXPECT_EQ(pair.put(), UCS_OK);
        // At first one is kept for the other lane that may come.
        EXPECT_TRUE(pair.has(round == 0 ? 4 : 5));
        EXPECT_EQ(pair.put(), UCS_OK);
        pair.demote();
        EXPECT_TRUE(pair.has_none());
    }
    EXPECT_LE(most, 7u);
    for (size_t index : {0, 1}) {
        EXPECT_LE(pair.cluster.inner(index).bulk_queue_pairs().peak_held(), 5u);
    }
    EXPECT_LE(pair.cluster.fabric.counters(uct::mock::Kind::kDedicated).peak_endpoints, 7u);
}

// Two contexts of a process, which share what an adapter has: one for bulk, one for a lane.
struct TwoContexts {
    TwoContexts(const Cluster::Options& chosen, unsigned adapter_qps)
        : cluster(4, options(chosen, adapter_qps)) {
        region.open(bulk);
    }
    static Cluster::Options options(Cluster::Options options, unsigned adapter_qps) {
        options.config.max_priority_endpoints = 1;
        options.config.max_adapter_qps = adapter_qps;
        options.fabric.room_for_dedicated = 1000;
        options.in_one_process = 2;
        return options;
    }
    void put() {
        EXPECT_EQ(cluster.finish(ucp_put_nbx(bulk, bytes.data(), bytes.size(), region.address(0),
                                             region.key, &ucp::test::kNothing)),
                  UCS_OK);
    }

    Cluster cluster;
    ucp::test::Region region{cluster.context(2), 64 << 12, 0xee};
    const ucp_ep_h bulk = cluster.endpoint(0, 2);
    const ucp_ep_h other = cluster.endpoint(1, 3);
    const std::vector<uint8_t> bytes = pattern(64 << 12, 1);
};

// Another context of the process wants a lane where the first one's bulk has all there is.
TEST(QueuePairDriver, BulkGivesWayToALaneOfAnotherContext) {
    Cluster::Options options = with_queue_pairs(8, 1);
    options.config.switch_interval = 1ms;  // a lane is tried again soon
    TwoContexts contexts(options, 4);
    Cluster& cluster = contexts.cluster;
    const ucp_ep_h bulk = contexts.bulk, other = contexts.other;
    ASSERT_EQ(ucpx_ep_lanes_request(bulk, UCPX_LANE_POLICY_DEDICATED), UCS_OK);
    contexts.put();
    ASSERT_TRUE(cluster.until([&] { return cluster.dedicated_endpoints(0) == 4; }));
    ASSERT_EQ(ucpx_ep_lanes_request(other, UCPX_LANE_POLICY_DEDICATED), UCS_OK);
    EXPECT_TRUE(
        cluster.until([&] { return cluster.lane_state(other) == UCPX_LANE_STATE_ESTABLISHED; }));
    EXPECT_EQ(cluster.lane_state(bulk), UCPX_LANE_STATE_ESTABLISHED);
    EXPECT_LE(cluster.dedicated_endpoints(0) + cluster.dedicated_endpoints(1), 4u);
    contexts.put();
    EXPECT_TRUE(contexts.region.bytes == contexts.bytes);
}

// What another context of the process has is not there: who has fewer for it is left alone, until
// that is given back.
void expect_left_alone(const Cluster::Options& options, unsigned adapter_qps, unsigned fewer) {
    TwoContexts contexts(options, adapter_qps);
    Cluster& cluster = contexts.cluster;
    const auto promote = [&](ucp_ep_h endpoint) {
        ASSERT_EQ(ucpx_ep_lanes_request(endpoint, UCPX_LANE_POLICY_DEDICATED), UCS_OK);
        ASSERT_TRUE(cluster.until(
            [&] { return cluster.lane_state(endpoint) == UCPX_LANE_STATE_ESTABLISHED; }));
    };
    promote(contexts.other);
    promote(contexts.bulk);
    const auto held = [&] { return cluster.inner(0).bulk_queue_pairs().held(); };
    // A put in each second of that many. @return the fewest that were there between them
    const auto run = [&](unsigned seconds) {
        unsigned fewest = UINT32_MAX;
        for (unsigned second = 0; second < seconds; ++second) {
            contexts.put();
            for (unsigned step = 0; step < 200; ++step) {
                cluster.clock.advance(5ms);
                cluster.step();
                if (second != 0) fewest = std::min(fewest, held());
            }
        }
        return fewest;
    };
    EXPECT_EQ(run(20), fewer);
    ASSERT_EQ(ucpx_ep_lanes_request(contexts.other, UCPX_LANE_POLICY_SCALABLE), UCS_OK);
    run(5);
    EXPECT_EQ(held(), fewer + 1);
    contexts.region.close();
}

TEST(QueuePairDriver, FewerForTheSakeOfAnotherContextAreNotGivenUpForNothing) {
    expect_left_alone(with_queue_pairs(8, 1), 4, 2);
}

// There is room on the other adapter, where it has all that it wants.
TEST(QueuePairDriver, RoomOnAnotherAdapterIsNoneForARailThatLacksIt) {
    expect_left_alone(with_queue_pairs(2, 2), 3, 3);
}

// A hub with four queue pairs for bulk and three peers that want four each; transfers go one way.
// Who of two has the lower id, and so makes the offers, comes with the seed.
class Scarce : public testing::TestWithParam<std::tuple<bool, uint64_t>> {
  protected:
    static constexpr size_t kHub = 1, kLength = 64 << 12;

    static Cluster::Options options() {
        Cluster::Options options = with_queue_pairs(4, 1);
        options.seed = std::get<1>(GetParam());
        options.config.max_priority_endpoints = 3;
        options.config.max_dedicated_qps = 3 + 4;
        return options;
    }
    Scarce() {
        for (const size_t peer : {0, 2, 3}) {
            const bool is_out = std::get<0>(GetParam());
            const size_t from = is_out ? kHub : peer, to = is_out ? peer : kHub;
            flows_.push_back({cluster_.endpoint(from, to), peer,
                              std::make_unique<ucp::test::Region>(cluster_.context(to), kLength)});
            flows_.back().region->open(flows_.back().endpoint);
            EXPECT_EQ(
                ucpx_ep_lanes_request(cluster_.endpoint(kHub, peer), UCPX_LANE_POLICY_DEDICATED),
                UCS_OK);
            EXPECT_TRUE(cluster_.until([&] {
                return cluster_.lane_state(cluster_.endpoint(kHub, peer)) ==
                       UCPX_LANE_STATE_ESTABLISHED;
            }));
        }
    }
    ~Scarce() override {
        for (Flow& flow : flows_) flow.region->close();
    }
    // Puts of each flow in turn, so many, in each of some periods of 50 ms.
    void run(std::array<unsigned, 3> puts) {
        const std::vector<uint8_t> bytes = pattern(kLength, 1);
        for (unsigned period = 0; period < 400; ++period) {
            for (size_t index = 0; index < flows_.size(); ++index) {
                for (unsigned count = 0; count < puts[index]; ++count) {
                    const Flow& flow = flows_[index];
                    EXPECT_EQ(cluster_.finish(ucp_put_nbx(flow.endpoint, bytes.data(), kLength,
                                                          flow.region->address(), flow.region->key,
                                                          &kNothing)),
                              UCS_OK);
                }
            }
            cluster_.clock.advance(50ms);
            cluster_.steps(200);
        }
    }
    // Queue pairs for bulk that the hub's peers have, each.
    std::array<size_t, 3> held() {
        std::array<size_t, 3> result;
        for (size_t index = 0; index < flows_.size(); ++index)
            result[index] = cluster_.inner(flows_[index].peer).bulk_queue_pairs().held();
        return result;
    }

  private:
    struct Flow {
        ucp_ep_h endpoint;
        size_t peer;
        std::unique_ptr<ucp::test::Region> region;
    };
    Cluster cluster_{4, options()};
    std::vector<Flow> flows_;
};

TEST_P(Scarce, QueuePairsGoToWhomTheyBringMost) {
    using Held = std::array<size_t, 3>;
    // Who comes first has some, until it is known what the others bring.
    run({1, 1, 12});
    EXPECT_EQ(held(), (Held{0, 0, 4}));
    run({12, 1, 1});
    EXPECT_EQ(held(), (Held{4, 0, 0}));
    run({6, 1, 6});
    EXPECT_EQ(held(), (Held{2, 0, 2}));
}

INSTANTIATE_TEST_SUITE_P(Ways, Scarce,
                         testing::Combine(testing::Bool(), testing::Values<uint64_t>(1, 2)));

TEST(QueuePairDriver, FewerWhereTheDeviceHasNoMore) {
    Cluster::Options options = with_queue_pairs(8);
    options.fabric.max_dedicated = 4;  // of each device
    Pair pair(64 << 12, options);
    pair.promote();
    EXPECT_EQ(pair.put(), UCS_OK);
    ASSERT_TRUE(pair.has(7));  // and the lane
    EXPECT_EQ(pair.put(), UCS_OK);
}

TEST(QueuePairDriver, TransfersGoOnThroughTenPromotionsAndDemotions) {
    Pair pair(24 << 20, with_queue_pairs(4));
    pair.fill(1);
    std::vector<uint8_t> back(pair.there.size());
    const ucs_status_ptr_t putting = pair.start_put();
    ASSERT_TRUE(UCS_PTR_IS_PTR(putting));
    unsigned switches = 0, lasting = 0;
    bool up = false;
    while (ucp_request_check_status(putting) == UCS_INPROGRESS && lasting < 1000000) {
        pair.cluster.step();
        ++lasting;
        const bool is_there = pair.cluster.lane_state(pair.endpoint) ==
                              (up ? UCPX_LANE_STATE_ESTABLISHED : UCPX_LANE_STATE_SCALABLE);
        if (switches == 20 || !is_there || lasting % 10 != 0) continue;
        up = !up;
        ++switches;
        if (up) {
            pair.promote();
        } else {
            pair.demote();
        }
    }
    EXPECT_EQ(switches, 20u);
    EXPECT_EQ(pair.cluster.finish(putting), UCS_OK);
    EXPECT_TRUE(pair.there == pair.here);
    EXPECT_GE(pair.cluster.counters(0).promotions, 10u);
    pair.demote();
    EXPECT_TRUE(pair.has_none());
}

TEST(QueuePairDriver, ADeviceThatBreaksCostsItsQueuePairsOnly) {
    for (const bool is_put : {true, false}) {
        Pair pair(512 << 12, with_queue_pairs(3));
        pair.promote();
        EXPECT_EQ(pair.put(), UCS_OK);
        ASSERT_TRUE(pair.has(6));
        pair.fill(7);
        if (!is_put) pair.fill_there(8);
        const ucs_status_ptr_t operation = is_put ? pair.start_put() : pair.start_get();
        pair.cluster.steps(3);
        pair.cluster.fabric.set_device(pair.rail(), Device::kBroken);
        EXPECT_EQ(pair.cluster.finish(operation), UCS_OK);
        EXPECT_TRUE(pair.there == pair.here);
        EXPECT_TRUE(pair.has(3));
        pair.cluster.fabric.set_device(pair.rail(), Device::kWell);
        pair.demote();
        EXPECT_TRUE(pair.has_none());
    }
}

TEST(QueuePairDriver, APeersDeathTakesThemAll) {
    Pair pair(512 << 12, with_queue_pairs(4));
    pair.promote();
    EXPECT_EQ(pair.put(), UCS_OK);
    ASSERT_TRUE(pair.has(8));
    const ucs_status_ptr_t putting = pair.start_put();
    pair.cluster.steps(3);
    pair.cluster.kill(1);
    EXPECT_LT(pair.cluster.finish(putting), 0);
    EXPECT_TRUE(pair.cluster.until(
        [&] { return pair.held(0) == 0 && pair.cluster.dedicated_endpoints(0) == 0; }));
}

TEST(QueuePairDriver, APeerThatHasClosedItsEndpointIsNotWaitedFor) {
    for (const bool is_lost : {true, false}) {
        Cluster::Options options = with_queue_pairs(4);
        options.tick = 10us;
        Pair pair(64 << 12, options);
        pair.promote();
        EXPECT_EQ(pair.put(), UCS_OK);
        ASSERT_TRUE(pair.has(8));
        const ucs_status_ptr_t put = is_lost ? pair.start_put() : nullptr;
        ucp_request_param_t force{};
        force.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        force.flags = UCP_EP_CLOSE_FLAG_FORCE;
        pair.cluster.finish(ucp_ep_close_nbx(pair.cluster.endpoint(1, 0), &force));
        pair.cluster.forget(1, 0);
        pair.demote();
        EXPECT_TRUE(pair.cluster.until([&] { return pair.held(0) == 0; })) << is_lost;
        pair.cluster.finish(put);  // the lane may have been gone under it
    }
}

TEST(QueuePairDriver, AWorkerThatGoesGivesThemBack) {
    Pair pair(64 << 12, with_queue_pairs(4));
    pair.promote();
    EXPECT_EQ(pair.put(), UCS_OK);
    ASSERT_TRUE(pair.has(8));
    ucp_request_param_t params{};
    pair.cluster.finish(ucp_ep_close_nbx(pair.endpoint, &params));
    pair.cluster.forget(0, 1);
    EXPECT_TRUE(pair.has_none());
}

}  // namespace
}  // namespace ucp::bulk::test
