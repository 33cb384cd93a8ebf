// SPDX-License-Identifier: BSD-3-Clause

// Bulk transfers where all goes well.

#include <map>

#include "ucp/bulk/schedule/turns.h"
#include "unit/ucp/bulk/engine/two_rails.h"

namespace ucp::bulk::test {
namespace {

using ucp::test::Cluster;
using ucp::test::pattern;

TEST(Engine, PutsAndGetsGoOverAllRailsInChains) {
    BulkCluster pair(1 << 20);
    std::map<unsigned, size_t> by_device;
    pair.cluster.fabric.observe([&](const uct::mock::PacketEvent& event) {
        if (event.am_id < 0) by_device[event.device] += event.length;
    });
    pair.fill(1);
    ASSERT_EQ(pair.put(), UCS_OK);
    EXPECT_TRUE(pair.there == pair.here);
    EXPECT_EQ(pair.counters().put, 256u);
    EXPECT_LE(pair.counters().chains, 64u);
    EXPECT_GT(by_device[0], size_t{256} << 10);
    EXPECT_GT(by_device[1], size_t{256} << 10);
    EXPECT_EQ(by_device[0] + by_device[1], size_t{1} << 20);

    by_device.clear();
    pair.fill_there(2);
    ASSERT_EQ(pair.get(), UCS_OK);
    EXPECT_TRUE(pair.there == pair.here);
    EXPECT_EQ(pair.counters().get, 256u);
    EXPECT_GT(by_device[1], size_t{256} << 10);
}

TEST(Engine, OneDeviceWillDo) {
    BulkCluster pair((1 << 20) + 77, BulkCluster::options(1));
    pair.fill(3);
    ASSERT_EQ(pair.put(), UCS_OK);
    EXPECT_TRUE(pair.there == pair.here);
    EXPECT_GT(pair.counters().chains, 0u);
}

TEST(Engine, ChainsThatAreOneOperationAreNotCutOnTheOnlyPath) {
    const auto chains = [](uint32_t capabilities, unsigned devices) {
        Cluster::Options options = BulkCluster::options(devices);
        options.fabric.capabilities |= capabilities;
        BulkCluster pair(1 << 16, options);
        pair.fill(4);
        EXPECT_EQ(pair.put(), UCS_OK);
        EXPECT_TRUE(pair.there == pair.here);
        return pair.counters().chains;
    };
    EXPECT_EQ(chains(0, 1), 2u);
    EXPECT_EQ(chains(uct::kJoinedChain, 1), 1u);
    EXPECT_GT(chains(uct::kJoinedChain, 2), 1u);
    // One of several leaves room for the next one's.
    Cluster::Options options = BulkCluster::options(1);
    options.fabric.capabilities |= uct::kJoinedChain;
    BulkCluster pair(1 << 16, options);
    const ucs_status_ptr_t puts[] = {pair.start_put(), pair.start_put(), pair.start_put()};
    for (const ucs_status_ptr_t put : puts) EXPECT_EQ(pair.cluster.finish(put), UCS_OK);
    EXPECT_GT(pair.counters().chains, 3u);
}

TEST(Engine, WhatFindsNoRoomWaitsInOrder) {
    Cluster::Options options = BulkCluster::options();
    options.fabric.transmit_depth = 3;
    options.fabric.no_resource_probability = 0.3;
    BulkCluster pair(1 << 20, options);
    pair.fill(4);
    std::vector<ucs_status_ptr_t> operations;
    const size_t part = pair.here.size() / 16;
    for (size_t index = 0; index < 16; ++index) {
        operations.push_back(ucp_put_nbx(pair.endpoint, pair.here.data() + index * part, part,
                                         pair.remote(index * part), pair.key, &kNothing));
    }
    for (const ucs_status_ptr_t operation : operations) {
        EXPECT_EQ(pair.cluster.finish(operation), UCS_OK);
    }
    EXPECT_TRUE(pair.there == pair.here);
}

// None of many is short because the others come to so much together.
TEST(Engine, ManyThatAreAlikeAreAllUnderWay) {
    constexpr size_t kCount = 64, kLength = 16 << 10;
    Cluster::Options options = BulkCluster::options(1);
    options.config.bulk_window = ucs::config::MemorySize{kCount * kLength};
    options.fabric.transmit_depth = 1024;
    BulkCluster pair(kCount * kLength, options);
    pair.fill(5);
    std::vector<ucs_status_ptr_t> operations;
    for (size_t offset = 0; offset < kCount * kLength; offset += kLength) {
        operations.push_back(ucp_put_nbx(pair.endpoint, pair.here.data() + offset, kLength,
                                         pair.remote(offset), pair.key, &kNothing));
    }
    EXPECT_EQ(pair.counters().put, kCount * kLength / 4096);
    for (const ucs_status_ptr_t operation : operations) {
        EXPECT_EQ(pair.cluster.finish(operation), UCS_OK);
    }
    EXPECT_TRUE(pair.there == pair.here);
}

TEST(Engine, AShortTransferDoesNotWaitForALongOne) {
    constexpr size_t kShort = 16 << 10, kShorts = 8;
    BulkCluster pair(8 << 20);
    size_t moved = 0;
    pair.cluster.fabric.observe([&](const uct::mock::PacketEvent& event) {
        if (event.am_id < 0) moved += event.length;
    });
    pair.fill(6);
    const size_t length = pair.here.size() - kShorts * kShort;
    const ucs_status_ptr_t large =
        ucp_put_nbx(pair.endpoint, pair.here.data(), length, pair.remote(0), pair.key, &kNothing);
    for (size_t index = 0; index < kShorts; ++index) {
        const size_t offset = length + index * kShort;
        moved = 0;
        ASSERT_EQ(pair.cluster.finish(ucp_put_nbx(pair.endpoint, pair.here.data() + offset, kShort,
                                                  pair.remote(offset), pair.key, &kNothing)),
                  UCS_OK);
        // The first one finds what the long one was given before anybody knew of short ones.
        if (index > 0) {
            EXPECT_LE(moved, size_t{256} << 10) << index;
        }
        EXPECT_EQ(ucp_request_check_status(large), UCS_INPROGRESS);
    }
    EXPECT_EQ(pair.cluster.finish(large), UCS_OK);
    EXPECT_TRUE(pair.there == pair.here);
}

// Neither is short beside the other.
TEST(Engine, AShorterTransferWaitsForAPartOfALongOne) {
    constexpr size_t kLength = 4 << 20;
    BulkCluster pair(Turn::kWhole + 2 * kLength);
    size_t moved = 0;
    pair.cluster.fabric.observe([&](const uct::mock::PacketEvent& event) {
        if (event.am_id < 0) moved += event.length;
    });
    pair.fill(7);
    const size_t length = pair.here.size() - kLength;
    const ucs_status_ptr_t large =
        ucp_put_nbx(pair.endpoint, pair.here.data(), length, pair.remote(0), pair.key, &kNothing);
    ASSERT_EQ(pair.cluster.finish(ucp_put_nbx(pair.endpoint, pair.here.data() + length, kLength,
                                              pair.remote(length), pair.key, &kNothing)),
              UCS_OK);
    // As much of the long one, and a turn of it before and after.
    EXPECT_LE(moved, 2 * (kLength + Turn::kPart));
    EXPECT_EQ(pair.cluster.finish(large), UCS_OK);
    EXPECT_TRUE(pair.there == pair.here);
}

TEST(Engine, FlushWaitsForTransfers) {
    BulkCluster pair(1 << 20);
    pair.fill(5);
    const ucs_status_ptr_t put = pair.start_put();
    const ucs_status_ptr_t flush = ucp_ep_flush_nbx(pair.endpoint, &kNothing);
    EXPECT_EQ(pair.cluster.finish(flush), UCS_OK);
    EXPECT_TRUE(pair.there == pair.here);
    EXPECT_EQ(pair.cluster.finish(put), UCS_OK);
}

TEST(Engine, AFlushWaitsForWhatWasStartedBeforeItThoughLaterTransfersEndFirst) {
    Cluster::Options options = BulkCluster::options();
    options.fabric.stall_probability = 0.05;
    constexpr size_t kLast = 16 << 10;
    BulkCluster pair(256 << 10, options);
    const size_t first = pair.here.size() - kLast;
    for (uint64_t round = 1; round < 50; ++round) {
        pair.fill(round);
        const ucs_status_ptr_t before =
            ucp_put_nbx(pair.endpoint, pair.here.data(), first, pair.remote(), pair.key, &kNothing);
        const ucs_status_ptr_t flush = ucp_ep_flush_nbx(pair.endpoint, &kNothing);
        const ucs_status_ptr_t after = ucp_put_nbx(pair.endpoint, pair.here.data() + first, kLast,
                                                   pair.remote(first), pair.key, &kNothing);
        EXPECT_EQ(pair.cluster.finish(flush), UCS_OK);
        ASSERT_EQ(std::memcmp(pair.there.data(), pair.here.data(), first), 0) << round;
        EXPECT_EQ(pair.cluster.finish(before), UCS_OK);
        EXPECT_EQ(pair.cluster.finish(after), UCS_OK);
    }
}

TEST(Engine, AFenceOrdersTransfersAndSmallPuts) {
    Cluster::Options options = BulkCluster::options();
    options.fabric.stall_probability = 0.05;
    BulkCluster pair(128 << 10, options);
    for (uint64_t round = 1; round < 20; ++round) {
        // Large then small, and small then large, onto the same bytes: the later one stays.
        pair.fill(round);
        const uint64_t small = ~round;
        const ucs_status_ptr_t large = pair.start_put();
        ASSERT_EQ(ucp_worker_fence(pair.cluster.worker(0)), UCS_OK);
        const ucs_status_ptr_t first = ucp_put_nbx(pair.endpoint, &small, sizeof(small),
                                                   pair.remote(4096), pair.key, &kNothing);
        EXPECT_EQ(pair.cluster.finish(large), UCS_OK);
        EXPECT_EQ(pair.cluster.finish(first), UCS_OK);
        EXPECT_EQ(pair.cluster.finish(ucp_ep_flush_nbx(pair.endpoint, &kNothing)), UCS_OK);
        EXPECT_EQ(std::memcmp(&pair.there[4096], &small, sizeof(small)), 0) << round;

        const ucs_status_ptr_t before = ucp_put_nbx(pair.endpoint, &small, sizeof(small),
                                                    pair.remote(8192), pair.key, &kNothing);
        ASSERT_EQ(ucp_worker_fence(pair.cluster.worker(0)), UCS_OK);
        const ucs_status_ptr_t after = pair.start_put();
        EXPECT_EQ(pair.cluster.finish(before), UCS_OK);
        EXPECT_EQ(pair.cluster.finish(after), UCS_OK);
        EXPECT_TRUE(pair.there == pair.here) << round;
    }
}

struct Scheme {
    const char* name;
    RndvScheme scheme;
};
class Rendezvous : public testing::TestWithParam<Scheme> {};

TEST_P(Rendezvous, GoesOverAllRails) {
    Cluster::Options options = BulkCluster::options();
    options.config.rndv_scheme = GetParam().scheme;
    BulkCluster pair(1 << 20, options);
    std::map<unsigned, size_t> by_device;
    pair.cluster.fabric.observe([&](const uct::mock::PacketEvent& event) {
        if (event.am_id < 0) by_device[event.device] += event.length;
    });
    const auto data = pattern(1 << 20, 6);
    std::vector<uint8_t> received(data.size());
    const ucs_status_ptr_t receive = ucp_tag_recv_nbx(pair.cluster.worker(1), received.data(),
                                                      received.size(), 1, ~0ull, &kNothing);
    const ucs_status_ptr_t send =
        ucp_tag_send_nbx(pair.endpoint, data.data(), data.size(), 1, &kNothing);
    EXPECT_EQ(pair.cluster.finish(send), UCS_OK);
    EXPECT_EQ(pair.cluster.finish(receive), UCS_OK);
    EXPECT_EQ(received, data);
    EXPECT_GT(by_device[0], size_t{256} << 10);
    EXPECT_GT(by_device[1], size_t{256} << 10);
    EXPECT_GT(pair.counters().chains, 0u);
}

INSTANTIATE_TEST_SUITE_P(Schemes, Rendezvous,
                         testing::Values(Scheme{"get", RndvScheme::kGet},
                                         Scheme{"put", RndvScheme::kPut}),
                         [](const auto& info) { return info.param.name; });

TEST(Engine, ATransferGoesOnWhileItsEndpointIsPromotedAndDemoted) {
    Cluster::Options options = BulkCluster::options(1);
    BulkCluster pair(8 << 20, options);
    pair.fill(7);
    for (const bool is_put : {true, false}) {
        if (!is_put) pair.fill_there(8);
        const ucs_status_ptr_t operation = is_put ? pair.start_put() : pair.start_get();
        ASSERT_TRUE(UCS_PTR_IS_PTR(operation));
        unsigned moves = 0;
        for (; moves < 10; ++moves) {
            const bool up = moves % 2 == 0;
            ASSERT_EQ(ucpx_ep_lanes_request(pair.endpoint, up ? UCPX_LANE_POLICY_DEDICATED
                                                              : UCPX_LANE_POLICY_SCALABLE),
                      UCS_OK);
            const ucpx_lane_state_t wanted =
                up ? UCPX_LANE_STATE_ESTABLISHED : UCPX_LANE_STATE_SCALABLE;
            ASSERT_TRUE(pair.cluster.until(
                [&] { return pair.cluster.lane_state(pair.endpoint) == wanted; }));
            if (ucp_request_check_status(operation) != UCS_INPROGRESS) break;
        }
        EXPECT_EQ(moves, 10u) << "the transfer was over too soon";
        EXPECT_EQ(pair.cluster.finish(operation), UCS_OK);
        EXPECT_TRUE(pair.there == pair.here);
    }
    EXPECT_GT(pair.cluster.fabric.counters(uct::mock::Kind::kDedicated).chains, 0u);
}

}  // namespace
}  // namespace ucp::bulk::test
