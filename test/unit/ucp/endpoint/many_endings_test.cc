// SPDX-License-Identifier: BSD-3-Clause

// Many flushes that end, and many endpoints that fail, at once: what it costs is counted.

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "ucp/endpoint/extras.h"
#include "ucs/log/log.h"
#include "unit/ucp/proto/cluster.h"
#include "unit/ucs/log/log_capture.h"

namespace ucp::test {
namespace {

TEST(FlushQueue, WhatEndsIsNotLookedForAmongOthers) {
    constexpr uint32_t kCount = 1000;
    // Counts wrap on the way.
    constexpr uint32_t kFirst = UINT32_MAX - kCount / 2;
    FlushQueue queue;
    std::vector<FlushWait> flushes(kCount);
    for (uint32_t index = 0; index < kCount; ++index) {
        flushes[index].target = kFirst + index / 2;
        queue.add(flushes[index]);
    }
    size_t looks = 0;
    std::vector<const FlushWait*> ended;
    for (uint32_t finished = kFirst - kCount; finished != kFirst + kCount; ++finished) {
        looks += queue.finish(finished, [&](const FlushWait& flush) {
            EXPECT_EQ(flush.target, finished);
            ended.push_back(&flush);
        });
    }
    ASSERT_EQ(ended.size(), flushes.size());
    for (uint32_t index = 0; index < kCount; ++index) EXPECT_EQ(ended[index], &flushes[index]);
    // Each operation looks at one that it does not end, at most.
    EXPECT_LE(looks, size_t{3} * kCount);
}

TEST(FlushQueue, MayGrowWhileItEnds) {
    FlushQueue queue;
    FlushWait first, second;
    first.target = second.target = 7;
    queue.add(first);
    unsigned taken = 0;
    queue.drain([&](FlushWait&) {
        if (++taken == 1) queue.add(second);
    });
    EXPECT_EQ(taken, 2u);
}

TEST(ManyEndpoints, ThatFailAtOnceAreLookedForAtOnce) {
    constexpr size_t kCount = 300;
    Cluster cluster;
    EndpointTable& table = cluster.a.worker().endpoints();
    std::vector<Endpoint*> endpoints;
    std::vector<const uct::Endpoint*> lanes;
    for (size_t index = 0; index < kCount; ++index) {
        endpoints.push_back(&unwrap(cluster.a.connect(cluster.b())));
        lanes.push_back(endpoints.back()->scalable());
    }
    // One that is nobody's, and one that is told twice.
    endpoints.push_back(nullptr);
    lanes.push_back(unwrap(cluster.back).scalable());
    endpoints.push_back(endpoints.front());
    lanes.push_back(lanes.front());
    const uint64_t before = table.looks();
    EXPECT_EQ(table.find_owners(lanes), endpoints);
    EXPECT_LE(table.looks() - before, table.size());
}

TEST(ManyEndpoints, AllHearOfADeadPeer) {
    ucs::LogCapture log(ucs::LogLevel::kFatal);
    Cluster cluster;
    std::vector<ucp_ep_h> endpoints;
    for (size_t index = 0; index < 300; ++index) {
        endpoints.push_back(cluster.a.connect(cluster.b()));
    }
    cluster.settle();
    cluster.fabric().kill(cluster.b().worker().uuid());
    const uint64_t number = 5;
    const ucp_request_param_t none{};
    for (const ucp_ep_h endpoint : endpoints) {
        const ucs_status_ptr_t sending =
            ucp_tag_send_nbx(endpoint, &number, sizeof(number), 1, &none);
        if (UCS_PTR_IS_PTR(sending)) ucp_request_free(sending);
    }
    EXPECT_TRUE(cluster.until([&] {
        return std::ranges::all_of(endpoints,
                                   [](ucp_ep_h endpoint) { return unwrap(endpoint).is_failed(); });
    }));
}

}  // namespace
}  // namespace ucp::test
