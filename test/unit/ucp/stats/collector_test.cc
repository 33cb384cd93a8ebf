// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/stats/collector.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "ucp/stats/page_reader.h"
#include "unit/ucp/cluster.h"

namespace ucp::stats::test {
namespace {

using ucp::test::Cluster;
using ucp::test::kNothing;

// A collector of a worker whose own is off, as the clock is virtual.
struct Watch {
    Watch(Cluster& cluster, size_t index)
        : worker(cluster.inner(index)),
          collector(worker.interfaces(), worker.endpoints(), worker.lanes(), worker.context()) {
        collector.open(worker.uuid(), "watched", worker.now());
    }
    WorkerRecord page() {
        const std::vector<PageSample> samples = read_pages({getpid()});
        EXPECT_EQ(samples.size(), 1u);
        return samples.empty() ? WorkerRecord{} : samples[0].worker;
    }

    Worker& worker;
    Collector collector;
};

TEST(Collector, ShowsTheLanesOfEndpoints) {
    Cluster cluster(3);
    const ucp_ep_h hot = cluster.endpoint(0, 1);
    cluster.endpoint(0, 2);
    ASSERT_EQ(ucpx_ep_lanes_request(hot, UCPX_LANE_POLICY_DEDICATED), UCS_OK);
    ASSERT_TRUE(
        cluster.until([&] { return cluster.lane_state(hot) == UCPX_LANE_STATE_ESTABLISHED; }));
    Watch watch(cluster, 0);
    const WorkerRecord page = watch.page();
    EXPECT_STREQ(page.name, "watched");
    EXPECT_EQ(page.id, cluster.uuid(0));
    EXPECT_EQ(page.endpoints, 2u);
    EXPECT_EQ(page.promotions, 1u);
    EXPECT_EQ(page.dedicated, 1u);
    EXPECT_EQ(page.requests, cluster.counters(0).requests);
    EXPECT_EQ(page.fills, 1u);
    ASSERT_EQ(page.endpoint_count, 2u);
    const EndpointRecord& first = page.entries[0];
    EXPECT_EQ(first.peer, cluster.uuid(1)) << "the highest score first";
    EXPECT_EQ(first.state, UCPX_LANE_STATE_ESTABLISHED);
    EXPECT_EQ(first.promotions, 1u);
    const EndpointRecord& second = page.entries[1];
    EXPECT_EQ(second.peer, cluster.uuid(2));
    EXPECT_EQ(second.flags & EndpointRecord::kHasLink, 0u);
    EXPECT_EQ(second.other, kNoTransport);
    ASSERT_LT(first.lane, page.transport_count);
    ASSERT_LT(second.lane, page.transport_count);
    EXPECT_NE(first.lane, second.lane) << "one is dedicated";
    EXPECT_EQ(first.other, second.lane) << "the scalable lane stays beside it";
    EXPECT_EQ(page.transports[second.lane].endpoints_made, 2u);
}

TEST(Collector, ItsWorkHasABound) {
    Cluster cluster(2);
    for (int i = 0; i < 300; ++i) cluster.connect(0, 1);
    Watch watch(cluster, 0);
    const WorkerRecord page = watch.page();
    EXPECT_EQ(page.endpoints, 300u);
    EXPECT_EQ(page.endpoint_count, kMaxEndpoints);
}

TEST(Collector, FillsAtItsPace) {
    Cluster cluster(1);
    Watch watch(cluster, 0);
    const ucs::Time start = cluster.clock.now();
    watch.collector.advance(start + Collector::kInterval / 2);
    EXPECT_EQ(watch.page().fills, 1u);
    watch.collector.advance(start + Collector::kInterval);
    EXPECT_EQ(watch.page().fills, 2u);
    watch.collector.advance(start + Collector::kInterval * 3 / 2);
    EXPECT_EQ(watch.page().fills, 2u);
}

TEST(Collector, CountsRequestsThatWaitUpToABound) {
    Cluster::Options options;
    options.fabric.transmit_depth = 1;
    Cluster cluster(2, options);
    const ucp_ep_h endpoint = cluster.endpoint(0, 1);
    cluster.hold_still(1);
    std::vector<ucs_status_ptr_t> sends;
    for (unsigned i = 0; i < 2 * kMaxWaiting; ++i)
        sends.push_back(ucp_tag_send_nbx(endpoint, &i, sizeof(i), i, &kNothing));
    Watch watch(cluster, 0);
    EXPECT_EQ(watch.page().entries[0].waiting, kMaxWaiting);
    for (const ucs_status_ptr_t send : sends) {
        if (UCS_PTR_IS_PTR(send)) ucp_request_free(send);
    }
}

TEST(Collector, CountsMappedMemory) {
    Cluster cluster(1);
    std::vector<char> buffer(12345);
    ucp_mem_map_params_t params{};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    params.address = buffer.data();
    params.length = buffer.size();
    ucp_mem_h memory = nullptr;
    ASSERT_EQ(ucp_mem_map(cluster.context(0), &params, &memory), UCS_OK);
    {
        Watch watch(cluster, 0);
        EXPECT_EQ(watch.page().regions, 1u);
        EXPECT_EQ(watch.page().region_bytes, buffer.size());
    }
    ucp_mem_unmap(cluster.context(0), memory);
    Watch watch(cluster, 0);
    EXPECT_EQ(watch.page().regions, 0u);
    EXPECT_EQ(watch.page().region_bytes, 0u);
}

// A program's worker, whether it shows what it does.
void expect_pages(const char* setting, size_t count) {
    if (setting != nullptr) setenv("UCX_STATS", setting, 1);
    setenv("UCX_TLS", "self", 1);
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_TAG;
    ucp_context_h context = nullptr;
    ASSERT_EQ(ucp_init(&params, nullptr, &context), UCS_OK);
    unsetenv("UCX_STATS");
    unsetenv("UCX_TLS");
    const ucp_worker_params_t worker_params{};
    ucp_worker_h worker = nullptr;
    ASSERT_EQ(ucp_worker_create(context, &worker_params, &worker), UCS_OK);
    EXPECT_EQ(read_pages({getpid()}).size(), count);
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    EXPECT_TRUE(read_pages({getpid()}).empty());
}

TEST(Statistics, AreShownUnlessTheyAreOff) {
    expect_pages(nullptr, 1);
    expect_pages("y", 1);
    expect_pages("n", 0);
}

}  // namespace
}  // namespace ucp::stats::test
