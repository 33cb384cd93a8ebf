// SPDX-License-Identifier: BSD-3-Clause

// Bulk transfers over emulated adapters while their endpoint changes lanes.

#include "system/soft_world.h"

namespace ucp::test {
namespace {

constexpr ucp_request_param_t kNothing{};

/** Memory of worker 1 that worker 0 reads and writes. */
struct Window {
    Window(SoftWorld& world, size_t length) : cluster(world.cluster), bytes(length) {
        ucp_mem_map_params_t params{};
        params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
        params.address = bytes.data();
        params.length = bytes.size();
        EXPECT_EQ(ucp_mem_map(cluster.context(1), &params, &memory), UCS_OK);
        void* packed = nullptr;
        size_t size = 0;
        EXPECT_EQ(ucp_rkey_pack(cluster.context(1), memory, &packed, &size), UCS_OK);
        EXPECT_EQ(ucp_ep_rkey_unpack(cluster.endpoint(0, 1), packed, &key), UCS_OK);
        ucp_rkey_buffer_release(packed);
    }
    ~Window() {
        ucp_rkey_destroy(key);
        EXPECT_EQ(ucp_mem_unmap(cluster.context(1), memory), UCS_OK);
    }
    uint64_t remote() const { return reinterpret_cast<uintptr_t>(bytes.data()); }

    Cluster& cluster;
    std::vector<uint8_t> bytes;
    ucp_mem_h memory = nullptr;
    ucp_rkey_h key = nullptr;
};

TEST(BulkLanes, ATransferGoesOnWhileItsEndpointIsPromotedAndDemotedTenTimes) {
    for (const bool is_put : {true, false}) {
        SoftWorld::Options options;
        options.traffic.workers = 2;
        options.config.bulk_window = ucs::config::MemorySize{512 << 10};  // a move waits for it
        SoftWorld world(options);
        Cluster& cluster = world.cluster;
        const ucp_ep_h endpoint = cluster.endpoint(0, 1);
        Window window(world, 32 << 20);
        std::vector<uint8_t> mine = pattern(window.bytes.size(), 1);
        std::vector<uint8_t> theirs = pattern(window.bytes.size(), 2);
        std::copy(theirs.begin(), theirs.end(), window.bytes.begin());
        const ucs_status_ptr_t operation =
            is_put ? ucp_put_nbx(endpoint, mine.data(), mine.size(), window.remote(), window.key,
                                 &kNothing)
                   : ucp_get_nbx(endpoint, mine.data(), mine.size(), window.remote(), window.key,
                                 &kNothing);
        ASSERT_TRUE(UCS_PTR_IS_PTR(operation));
        unsigned moves = 0;
        for (; ucp_request_check_status(operation) == UCS_INPROGRESS; ++moves) {
            const bool up = moves % 2 == 0;
            ASSERT_EQ(ucpx_ep_lanes_request(
                          endpoint, up ? UCPX_LANE_POLICY_DEDICATED : UCPX_LANE_POLICY_SCALABLE),
                      UCS_OK);
            const ucpx_lane_state_t wanted =
                up ? UCPX_LANE_STATE_ESTABLISHED : UCPX_LANE_STATE_SCALABLE;
            ASSERT_TRUE(cluster.until([&] { return cluster.lane_state(endpoint) == wanted; }));
        }
        EXPECT_GE(moves, 10u);
        EXPECT_EQ(cluster.finish(operation), UCS_OK);
        EXPECT_TRUE(mine == window.bytes);
        EXPECT_EQ(window.bytes == theirs, !is_put);
    }
}

}  // namespace
}  // namespace ucp::test
