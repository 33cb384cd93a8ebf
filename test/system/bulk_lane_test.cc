// SPDX-License-Identifier: BSD-3-Clause

// Bulk transfers over emulated adapters while their endpoint changes lanes.

#include <cstdlib>

#include "system/soft_world.h"
#include "unit/ucp/region.h"

namespace ucp::test {
namespace {

// As long as the checks have time for; `make check-bulk-lanes` moves a whole GiB.
size_t length() {
    const char* mebibytes = std::getenv("BULK_LANE_MIB");
    return (mebibytes != nullptr ? std::strtoull(mebibytes, nullptr, 10) : 32) << 20;
}

TEST(BulkLanes, ATransferGoesOnWhileItsEndpointIsPromotedAndDemotedTenTimes) {
    for (const bool is_put : {true, false}) {
        SoftWorld::Options options;
        options.traffic.workers = 2;
        options.config.bulk_window = ucs::config::MemorySize{512 << 10};  // a move waits for it
        SoftWorld world(options);
        Cluster& cluster = world.cluster;
        const ucp_ep_h endpoint = cluster.endpoint(0, 1);
        Region window(cluster.context(1), length());
        window.open(endpoint);
        std::vector<uint8_t> mine = pattern(window.bytes.size(), 1);
        std::vector<uint8_t> theirs = pattern(window.bytes.size(), 2);
        std::copy(theirs.begin(), theirs.end(), window.bytes.begin());
        const ucs_status_ptr_t operation =
            is_put ? ucp_put_nbx(endpoint, mine.data(), mine.size(), window.address(), window.key,
                                 &kNothing)
                   : ucp_get_nbx(endpoint, mine.data(), mine.size(), window.address(), window.key,
                                 &kNothing);
        ASSERT_TRUE(UCS_PTR_IS_PTR(operation));
        unsigned moves = 0;
        for (; ucp_request_check_status(operation) == UCS_INPROGRESS && moves < 20; ++moves) {
            const bool up = moves % 2 == 0;
            ASSERT_EQ(ucpx_ep_lanes_request(
                          endpoint, up ? UCPX_LANE_POLICY_DEDICATED : UCPX_LANE_POLICY_SCALABLE),
                      UCS_OK);
            const ucpx_lane_state_t wanted =
                up ? UCPX_LANE_STATE_ESTABLISHED : UCPX_LANE_STATE_SCALABLE;
            ASSERT_TRUE(cluster.until([&] { return cluster.lane_state(endpoint) == wanted; }));
        }
        EXPECT_GE(moves, length() < 64 << 20 ? 10u : 20u);
        ASSERT_TRUE(cluster.until(
            [&] { return ucp_request_check_status(operation) != UCS_INPROGRESS; }, 1u << 30));
        EXPECT_EQ(cluster.finish(operation), UCS_OK);
        EXPECT_TRUE(mine == window.bytes);
        EXPECT_EQ(window.bytes == theirs, !is_put);
    }
}

}  // namespace
}  // namespace ucp::test
