// SPDX-License-Identifier: BSD-3-Clause

// Notifications of batches over several paths that fail: never before a byte, never twice.

#include <functional>

#include "unit/ucp/bulk/engine/two_rails.h"

namespace ucp::bulk::test {
namespace {

using namespace std::chrono_literals;
using Device = uct::mock::Fabric::Device;
using ucp::test::Cluster;
using ucp::test::pattern;
using ucp::test::Region;

constexpr size_t kSlice = 4096;

Cluster::Options ordered_options(unsigned devices, uint64_t seed = 1) {
    Cluster::Options options = BulkCluster::options(devices);
    options.fabric.capabilities |= uct::kOrderedChain;
    options.fabric.seed = seed;
    options.config.bulk_stall_timeout = 400us;
    options.config.bulk_retry_interval = 100us;
    return options;
}

// Batches of one piece, and a peer that uses its memory for something else once it is told.
class Teller {
  public:
    Teller(size_t length, const Cluster::Options& options)
        : pair(length, options), local(pair.cluster.context(0), length) {
        EXPECT_EQ(ucpx_worker_set_notify_handler(pair.cluster.worker(1), on_told, this), UCS_OK);
    }

    ucs_status_ptr_t start(size_t length, uint64_t seed) {
        local.fill(seed);
        std::ranges::fill(pair.there, 0xee);
        length_ = length;
        has_ended = false;
        ucp_request_param_t params{};
        params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
        params.cb.send = [](void*, ucs_status_t, void* self) {
            static_cast<Teller*>(self)->has_ended = true;
        };
        params.user_data = this;
        return ucp::test::start_batch(
            pair.endpoint, true,
            {{local.bytes.data(), pair.remote(), length, local.memory, pair.key}}, seed, params);
    }
    bool is_left_alone() const {
        return std::ranges::all_of(std::span(pair.there).first(length_),
                                   [](uint8_t byte) { return byte == 0x55; });
    }

    BulkCluster pair;
    Region local;
    bool has_ended = false;
    std::function<void()> when_told;
    unsigned told = 0;
    unsigned early = 0;  // before the sender knew that the bytes have landed

  private:
    static void on_told(void* arg, uint64_t, uint64_t) {
        auto& self = *static_cast<Teller*>(arg);
        ++self.told;
        if (!self.has_ended) ++self.early;
        const std::span here(self.local.bytes), there(self.pair.there);
        EXPECT_TRUE(std::ranges::equal(here.first(self.length_), there.first(self.length_)));
        std::ranges::fill(there.first(self.length_), 0x55);
        if (self.when_told) self.when_told();
    }

    size_t length_ = 0;
};

TEST(Notifications, OfOnePathComeBeforeTheEndIsKnown) {
    Teller teller(64 * kSlice, ordered_options(1));
    for (const size_t slices : {1, 8, 64}) {
        const unsigned before = teller.told;
        EXPECT_EQ(teller.pair.cluster.finish(teller.start(slices * kSlice, slices)), UCS_OK);
        EXPECT_TRUE(teller.pair.cluster.until([&] { return teller.told == before + 1; }));
        EXPECT_EQ(teller.early, before + 1);
    }
    teller.pair.cluster.steps(500);
    EXPECT_EQ(teller.told, 3u);
}

TEST(Notifications, WithoutOrderOfTheTransportFollowTheEnd) {
    Cluster::Options options = ordered_options(1);
    options.fabric.capabilities &= ~uint32_t{uct::kOrderedChain};
    Teller teller(8 * kSlice, options);
    EXPECT_EQ(teller.pair.cluster.finish(teller.start(8 * kSlice, 1)), UCS_OK);
    EXPECT_TRUE(teller.pair.cluster.until([&] { return teller.told == 1; }));
    EXPECT_EQ(teller.early, 0u);
}

TEST(Notifications, OfSeveralPathsComeOnceBehindEveryByte) {
    unsigned early = 0, late = 0;
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        Cluster::Options options = ordered_options(2, seed);
        options.fabric.no_resource_probability = 0.1;
        options.fabric.stall_probability = 0.05;
        Teller teller(64 * kSlice, options);
        unsigned batches = 0;
        for (const size_t slices : {64, 1, 2, 5, 40, 1, 1, 16}) {
            EXPECT_EQ(teller.pair.cluster.finish(teller.start(slices * kSlice, seed + slices)),
                      UCS_OK);
            ++batches;
            EXPECT_TRUE(teller.pair.cluster.until([&] { return teller.told == batches; }));
            teller.pair.cluster.steps(50);
            EXPECT_EQ(teller.told, batches);
            EXPECT_TRUE(teller.is_left_alone());
        }
        early += teller.early;
        late += batches - teller.early;
    }
    EXPECT_GT(early, 20u);
    EXPECT_GT(late, 20u);
}

TEST(Notifications, ARailThatBreaksAtAnySliceDelaysThem) {
    size_t position = 0;
    for (;; ++position) {
        SCOPED_TRACE(position);
        Teller teller(64 * kSlice, ordered_options(2));
        size_t seen = 0;
        auto& fabric = teller.pair.cluster.fabric;
        fabric.observe([&, rail = teller.pair.rail()](const uct::mock::PacketEvent& event) {
            if (event.am_id >= 0 || event.device != rail || seen++ != position) return;
            fabric.set_device(rail, Device::kBroken);
        });
        ASSERT_EQ(teller.pair.cluster.finish(teller.start(64 * kSlice, position)), UCS_OK);
        EXPECT_TRUE(teller.pair.cluster.until([&] { return teller.told == 1; }));
        teller.pair.cluster.steps(300);
        EXPECT_EQ(teller.told, 1u);
        EXPECT_TRUE(teller.is_left_alone());
        if (seen <= position) break;
    }
    EXPECT_GE(position, 20u);
}

// What a silent rail holds may be written until the peer has revoked it: only then is the peer
// told.
TEST(Notifications, ASilentRailWritesNothingOnceThePeerIsTold) {
    for (unsigned steps = 0; steps < 12; ++steps) {
        SCOPED_TRACE(steps);
        Teller teller(128 * kSlice, ordered_options(2));
        Cluster& cluster = teller.pair.cluster;
        teller.when_told = [&] { cluster.fabric.set_device(teller.pair.rail(), Device::kWell); };
        const ucs_status_ptr_t batch = teller.start(128 * kSlice, steps);
        cluster.steps(steps);
        cluster.fabric.set_device(teller.pair.rail(), Device::kSilent);
        ASSERT_EQ(cluster.finish(batch), UCS_OK);
        EXPECT_TRUE(cluster.until([&] { return teller.told == 1; }));
        cluster.steps(1000);
        EXPECT_EQ(teller.told, 1u);
        EXPECT_TRUE(teller.is_left_alone());
    }
}

TEST(Notifications, AnErrorAtAnyPacketOfTheOnlyPathLeavesThemOut) {
    size_t position = 0;
    for (;; ++position) {
        SCOPED_TRACE(position);
        Teller teller(32 * kSlice, ordered_options(1));
        size_t seen = 0;
        auto& fabric = teller.pair.cluster.fabric;
        fabric.observe([&](const uct::mock::PacketEvent&) {
            if (seen++ == position) fabric.set_device(0, Device::kBroken);
        });
        const ucs_status_t status = teller.pair.cluster.finish(teller.start(32 * kSlice, 1));
        teller.pair.cluster.steps(300);
        if (seen <= position) {
            EXPECT_EQ(status, UCS_OK);
            EXPECT_EQ(teller.told, 1u);
            break;
        }
        EXPECT_EQ(teller.told, 0u);
    }
    EXPECT_GT(position, 32u);
}

}  // namespace
}  // namespace ucp::bulk::test
