// SPDX-License-Identifier: BSD-3-Clause

// How far adapters are from the processors: which one carries an endpoint's messages, and what a
// path is believed to move before anything is measured. UCX_IB_PREFER_NEAREST_DEVICE.

#include <set>
#include <string>

#include "ucp/bulk/engine/engine.h"
#include "ucp/bulk/engine/path.h"
#include "ucs/topo/topology.h"
#include "unit/ucp/bulk/engine/two_rails.h"

namespace ucp::bulk::test {
namespace {

using ucp::test::Cluster;

// As long as it lives one device is next to all processors, and all others are not.
class Machine final : public ucs::topo::Topology {
  public:
    explicit Machine(std::string near) : near_(std::move(near)) { replace_machine(this); }
    ~Machine() override { replace_machine(nullptr); }
    Machine(const Machine&) = delete;

    double distance(std::string_view device, const std::vector<unsigned>&) const override {
        return device == near_ ? 0 : ucs::topo::kOtherPackage;
    }
    std::vector<unsigned> cpus_near(std::string_view) const override { return {}; }

  private:
    std::string near_;
};

Cluster::Options options(bool prefers_nearest, uint64_t seed) {
    Cluster::Options options = BulkCluster::options(2);
    options.config.prefer_nearest = prefers_nearest;
    options.seed = seed;
    return options;
}

TEST(Distance, MessagesGoByTheNearestOfEqualAdapters) {
    for (const unsigned near : {0, 1}) {
        const Machine machine("mock" + std::to_string(near));
        std::set<unsigned> otherwise;
        for (uint64_t seed = 1; seed <= 10; ++seed) {
            BulkCluster pair(1 << 16, options(true, seed));
            EXPECT_EQ(pair.home(), near);
            BulkCluster indifferent(1 << 16, options(false, seed));
            otherwise.insert(indifferent.home());
        }
        EXPECT_EQ(otherwise.size(), 2u);
    }
}

TEST(Distance, IsInTheRateThatAPathHasAtFirst) {
    const Machine machine("mock0");
    BulkCluster pair(1 << 16, options(true, 1));
    const ucs_status_ptr_t put = pair.start_put();
    const auto& paths = pair.cluster.inner(0).bulk().find(unwrap(pair.endpoint))->paths;
    ASSERT_EQ(paths.size(), 2u);
    const double bandwidth = paths.front()->attributes().bandwidth;
    ASSERT_EQ(paths.back()->attributes().bandwidth, bandwidth);
    EXPECT_DOUBLE_EQ(paths.front()->meter.rate(), bandwidth);
    EXPECT_NEAR(paths.back()->meter.rate(),
                expected_rate(bandwidth, ucs::topo::kOtherPackage, 4096), bandwidth * 1e-6);
    EXPECT_LT(paths.back()->meter.rate(), bandwidth / 1.5);
    EXPECT_EQ(pair.cluster.finish(put), UCS_OK);
}

}  // namespace
}  // namespace ucp::bulk::test
