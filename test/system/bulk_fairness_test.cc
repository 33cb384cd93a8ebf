// SPDX-License-Identifier: BSD-3-Clause

// Short transfers behind a long one to the same peer, in modelled time.

#include <algorithm>

#include "system/soft_world.h"
#include "unit/ucp/region.h"

namespace ucp::test {
namespace {

constexpr size_t kShort = 64 << 10;
constexpr size_t kLong = 96 << 20;

class Fairness : public testing::Test {
  protected:
    static SoftWorld::Options options() {
        SoftWorld::Options options;
        options.traffic.workers = 2;
        options.tick = std::chrono::nanoseconds(200);
        return options;
    }

    // The time of a short put and its arrival.
    ucs::Duration short_put(size_t offset) {
        const ucs::Time begin = cluster.clock.now();
        const ucs_status_ptr_t put =
            ucp_put_nbx(cluster.endpoint(0, 1), mine.data() + offset, kShort,
                        window.address(offset), window.key, &kNothing);
        EXPECT_EQ(cluster.finish(put), UCS_OK);
        return cluster.clock.now() - begin;
    }
    void run(const char* lane) {
        for (int i = 0; i < 10; ++i) short_put(kLong);
        const ucs::Duration idle = short_put(kLong);
        const ucs_status_ptr_t large = ucp_put_nbx(cluster.endpoint(0, 1), mine.data(), kLong,
                                                   window.address(), window.key, &kNothing);
        ASSERT_TRUE(UCS_PTR_IS_PTR(large));
        std::vector<ucs::Duration> times;
        while (ucp_request_check_status(large) == UCS_INPROGRESS) times.push_back(short_put(kLong));
        EXPECT_EQ(cluster.finish(large), UCS_OK);
        EXPECT_TRUE(mine == window.bytes);
        ASSERT_GE(times.size(), 200u);
        std::ranges::sort(times);
        const ucs::Duration p99 = times[times.size() * 99 / 100];
        RecordProperty(std::string(lane) + "_idle_ns", static_cast<int>(idle.count()));
        RecordProperty(std::string(lane) + "_p99_ns", static_cast<int>(p99.count()));
        EXPECT_LE(p99, 3 * idle) << lane << ": idle " << idle.count() << " ns, p99 " << p99.count()
                                 << " ns of " << times.size();
    }

    SoftWorld world{options()};
    Cluster& cluster = world.cluster;
    Region window{cluster.context(1), kLong + kShort};
    std::vector<uint8_t> mine = pattern(kLong + kShort, 1);
};

TEST_F(Fairness, ShortTransfersBehindALongOneTakeThreeTimesTheirIdleTimeAtMost) {
    window.open(cluster.endpoint(0, 1));
    run("scalable");
    ASSERT_EQ(ucpx_ep_lanes_request(cluster.endpoint(0, 1), UCPX_LANE_POLICY_DEDICATED), UCS_OK);
    ASSERT_TRUE(cluster.until(
        [&] { return cluster.lane_state(cluster.endpoint(0, 1)) == UCPX_LANE_STATE_ESTABLISHED; }));
    run("dedicated");
}

}  // namespace
}  // namespace ucp::test
