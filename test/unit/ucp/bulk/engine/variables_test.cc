// SPDX-License-Identifier: BSD-3-Clause

// Every variable of bulk transfers does what its help text says.

#include <map>

#include "ucp/bulk/engine/engine.h"
#include "ucp/bulk/engine/path.h"
#include "ucp/bulk/threads/thread_pool.h"
#include "unit/ucp/bulk/engine/two_rails.h"

namespace ucp::bulk::test {
namespace {

using ucp::test::Cluster;

// The options with one variable set as a user sets it.
Cluster::Options with(const std::string& name, const std::string& value, unsigned devices = 2) {
    Cluster::Options options = BulkCluster::options(devices);
    options.config = ucp::test::quiet_config();
    ucs::config::Source source;
    std::string error;
    EXPECT_EQ(source.modify("BULK_THRESH", "8k", error), UCS_OK) << error;
    EXPECT_EQ(source.modify("BULK_SLICE_SIZE", "4k", error), UCS_OK) << error;
    EXPECT_EQ(source.modify("" + name, value, error), UCS_OK) << error;
    EXPECT_EQ(kConfigTable.load(source, options.config, error), UCS_OK) << error;
    options.config.switch_interval = std::chrono::hours(1);
    return options;
}

// The packets of one put.
std::vector<uct::mock::PacketEvent> packets(BulkCluster& pair) {
    std::vector<uct::mock::PacketEvent> events;
    pair.cluster.fabric.observe([&](const uct::mock::PacketEvent& event) {
        if (event.am_id < 0) events.push_back(event);
    });
    EXPECT_EQ(pair.put(), UCS_OK);
    pair.cluster.fabric.observe(nullptr);
    return events;
}

TEST(Knobs, Threshold) {
    BulkCluster below(65535, with("BULK_THRESH", "64k"));
    packets(below);
    EXPECT_EQ(below.counters().chains, 0u);
    BulkCluster at(65536, with("BULK_THRESH", "64k"));
    packets(at);
    EXPECT_GT(at.counters().chains, 0u);
    BulkCluster off(1 << 20, with("BULK_THRESH", "inf"));
    packets(off);
    EXPECT_EQ(off.counters().chains, 0u);
}

TEST(Knobs, SliceSize) {
    BulkCluster pair(1 << 16, with("BULK_SLICE_SIZE", "2k"));
    for (const auto& event : packets(pair)) EXPECT_EQ(event.length, 2048u);
}

TEST(Knobs, FragmentLimit) {
    BulkCluster joined((1 << 16) + 1000, with("BULK_FRAGMENT_LIMIT", "1000"));
    EXPECT_EQ(packets(joined).size(), 16u);
    BulkCluster apart((1 << 16) + 1000, with("BULK_FRAGMENT_LIMIT", "999"));
    EXPECT_EQ(packets(apart).size(), 17u);
}

TEST(Knobs, Window) {
    for (const size_t window : {8192, 32768}) {
        BulkCluster pair(1 << 20, with("BULK_WINDOW", std::to_string(window), 1));
        const ucs_status_ptr_t put = pair.start_put();
        const PathGroup* group = pair.cluster.inner(0).bulk().find(unwrap(pair.endpoint));
        ASSERT_NE(group, nullptr);
        // The last quarter may wait for more room.
        const size_t under_way = group->paths.front()->meter.under_way();
        EXPECT_LE(under_way, window);
        EXPECT_GT(under_way, window - window / 4);
        EXPECT_EQ(pair.cluster.finish(put), UCS_OK);
    }
}

TEST(Knobs, WorkRequestsPerPost) {
    BulkCluster pair(1 << 16, with("BULK_MAX_WR_PER_POST", "2", 1));
    packets(pair);
    EXPECT_GE(pair.counters().chains, 8u);
    BulkCluster more(1 << 16, with("BULK_MAX_WR_PER_POST", "64", 1));
    packets(more);
    EXPECT_LE(more.counters().chains, 3u);
}

TEST(Knobs, Rails) {
    for (const unsigned rails : {1, 2, 3, 6}) {
        BulkCluster pair(1 << 20, with("BULK_MAX_RAILS", std::to_string(rails), 6));
        std::map<unsigned, size_t> by_device;
        for (const auto& event : packets(pair)) ++by_device[event.device];
        EXPECT_EQ(by_device.size(), rails);
    }
    BulkCluster automatic(1 << 20, with("MAX_RNDV_RAILS", "2", 3));
    std::map<unsigned, size_t> by_device;
    for (const auto& event : packets(automatic)) ++by_device[event.device];
    EXPECT_EQ(by_device.size(), 2u);
}

// A rail falls silent at the start of a put. @return steps of 10 us to its end
unsigned silent_put(Cluster::Options options) {
    options.tick = std::chrono::microseconds(10);
    BulkCluster pair(1 << 18, options);
    const ucs_status_ptr_t put = pair.start_put();
    pair.cluster.fabric.set_device(pair.rail(), uct::mock::Fabric::Device::kSilent);
    unsigned steps = 0;
    pair.cluster.until([&] {
        ++steps;
        return ucp_request_check_status(put) != UCS_INPROGRESS;
    });
    EXPECT_EQ(pair.cluster.finish(put), UCS_OK);
    return steps;
}

TEST(Knobs, StallTimeout) {
    EXPECT_LT(silent_put(with("BULK_STALL_TIMEOUT", "20ms")), 4000u);
    EXPECT_GT(silent_put(with("BULK_STALL_TIMEOUT", "80ms")), 8000u);
}

TEST(Knobs, RetryInterval) {
    for (const unsigned milliseconds : {10, 100}) {
        Cluster::Options options = with("BULK_RETRY_INTERVAL", std::to_string(milliseconds) + "ms");
        options.tick = std::chrono::microseconds(10);
        BulkCluster pair(1 << 18, options);
        pair.cluster.fabric.set_device(pair.rail(), uct::mock::Fabric::Device::kBroken);
        EXPECT_EQ(pair.put(), UCS_OK);
        pair.cluster.fabric.set_device(pair.rail(), uct::mock::Fabric::Device::kWell);
        const PathGroup* group = pair.cluster.inner(0).bulk().find(unwrap(pair.endpoint));
        const ucs::Time start = pair.cluster.clock.now();
        ASSERT_TRUE(
            pair.cluster.until([&] { return group->paths.back()->state == Path::State::kUp; }));
        const ucs::Duration took = pair.cluster.clock.now() - start;
        EXPECT_GT(took, std::chrono::milliseconds(milliseconds) * 4 / 5);
        EXPECT_LT(took, std::chrono::milliseconds(milliseconds) + std::chrono::milliseconds(20));
    }
}

TEST(Knobs, CutTimeout) {
    // The peer's memory is written, but nobody there reads messages.
    for (const unsigned milliseconds : {200, 1000}) {
        Cluster::Options options = with("BULK_CUT_TIMEOUT", std::to_string(milliseconds) + "ms");
        BulkCluster pair(1 << 18, options);
        const ucs_status_ptr_t put = pair.start_put();
        pair.cluster.fabric.set_device(pair.rail(), uct::mock::Fabric::Device::kBroken);
        const ucs::Time start = pair.cluster.clock.now();
        while (ucp_request_check_status(put) == UCS_INPROGRESS &&
               pair.cluster.clock.now() - start < std::chrono::seconds(2)) {
            pair.cluster.clock.advance(std::chrono::microseconds(100));
            ucp_worker_progress(pair.cluster.worker(0));
        }
        EXPECT_EQ(ucp_request_check_status(put), UCS_ERR_ENDPOINT_TIMEOUT);
        const ucs::Duration took = pair.cluster.clock.now() - start;
        EXPECT_GT(took, std::chrono::milliseconds(milliseconds));
        EXPECT_LT(took, std::chrono::milliseconds(milliseconds + 50));
        ucp_request_free(put);
    }
}

TEST(Knobs, MaxRetries) {
    // The rail breaks whatever it is given; without a retry that is the end of the transfer.
    for (const unsigned retries : {0, 3}) {
        BulkCluster pair(1 << 18, with("BULK_MAX_RETRIES", std::to_string(retries)));
        pair.cluster.fabric.set_device(pair.rail(), uct::mock::Fabric::Device::kBroken);
        EXPECT_EQ(pair.put() == UCS_OK, retries != 0);
    }
}

TEST(Knobs, DedicatedQueuePairs) {
    for (const unsigned most : {1, 4, 7}) {
        Cluster::Options options = with("MAX_DEDICATED_QPS", std::to_string(most));
        options.config.max_priority_endpoints = 1;
        BulkCluster pair(1 << 16, options);
        EXPECT_EQ(ucpx_ep_lanes_request(pair.endpoint, UCPX_LANE_POLICY_DEDICATED), UCS_OK);
        EXPECT_EQ(pair.put(), UCS_OK);
        // The lane itself, and as many queue pairs as are left of it.
        const auto& counters = pair.cluster.fabric.counters(uct::mock::Kind::kDedicated);
        EXPECT_TRUE(pair.cluster.until([&] {
            return pair.cluster.dedicated_endpoints(0) == most &&
                   pair.cluster.dedicated_endpoints(1) == most;
        })) << pair.cluster.dedicated_endpoints(0);
        EXPECT_EQ(pair.put(), UCS_OK);
        EXPECT_LE(counters.peak_endpoints, most);
    }
}

// UCX_BULK_WORKERS: threads run in real time, in test/system/bulk_threads_test.cc.

TEST(Knobs, Shards) {
    for (const unsigned shards : {1, 4, 64}) {
        BulkCluster pair(8192, with("BULK_SHARDS", std::to_string(shards)));
        Worker& worker = pair.cluster.inner(0);
        ThreadPool pool(worker.host().work, worker.interfaces(), worker.context(), 1,
                        Rules::of(worker.config()));
        std::map<const Shard*, unsigned> endpoints;
        for (unsigned count = 0; count < 1000; ++count) {
            ++endpoints[&pool.shard_of(unwrap(pair.cluster.connect(0, 1)))];
        }
        EXPECT_EQ(endpoints.size(), shards);
    }
}

}  // namespace
}  // namespace ucp::bulk::test
