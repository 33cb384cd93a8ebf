// SPDX-License-Identifier: BSD-3-Clause

// Bulk transfers while paths fail: errors, silence, links down, late writes.

#include <deque>

#include "ucp/bulk/engine/engine.h"
#include "ucp/bulk/engine/path.h"
#include "unit/ucp/bulk/engine/two_rails.h"

namespace ucp::bulk::test {
namespace {

using namespace std::chrono_literals;
using Device = uct::mock::Fabric::Device;
using ucp::test::Cluster;

Cluster::Options fast_options(unsigned devices = 2) {
    Cluster::Options options = BulkCluster::options(devices);
    options.config.bulk_stall_timeout = 400us;
    options.config.bulk_retry_interval = 100us;
    return options;
}

// How often the request's callback ran, and with what.
struct Ends {
    unsigned count = 0;
    ucs_status_t status = UCS_INPROGRESS;

    ucp_request_param_t params() {
        ucp_request_param_t params{};
        params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
        params.cb.send = [](void*, ucs_status_t status, void* self) {
            ++static_cast<Ends*>(self)->count;
            static_cast<Ends*>(self)->status = status;
        };
        params.user_data = this;
        return params;
    }
};

void expect_nothing_left(Cluster& cluster) {
    for (size_t index : {0, 1}) {
        const Engine& engine = cluster.inner(index).bulk();
        EXPECT_EQ(engine.transfers_in_use(), 0u);
        EXPECT_TRUE(cluster.until([&] { return engine.chains_in_use() == 0; }));
    }
}

// A transfer of 64 slices during which a device breaks as the slice of that number arrives.
class BreakingTransfer {
  public:
    BreakingTransfer(unsigned devices, bool is_put, size_t position)
        : pair_(64 << 12, fast_options(devices)), is_put_(is_put) {
        pair_.fill(position);
        if (!is_put) pair_.fill_there(position + 100);
        const unsigned device = devices == 1 ? pair_.home() : pair_.rail();
        pair_.cluster.fabric.observe([this, device, position](const uct::mock::PacketEvent& event) {
            if (event.am_id >= 0 || event.device != device || seen_++ != position) return;
            pair_.cluster.fabric.set_device(device, Device::kBroken);
        });
    }

    // @return the status of its only end, after which nothing of it is left
    ucs_status_t run() {
        Ends ends;
        const ucp_request_param_t params = ends.params();
        const ucs_status_t status =
            pair_.cluster.finish(is_put_ ? pair_.start_put(params) : pair_.start_get(params));
        pair_.cluster.steps(2000);
        EXPECT_EQ(ends.count, 1u);
        EXPECT_EQ(ends.status, status);
        expect_nothing_left(pair_.cluster);
        return status;
    }
    bool is_right() const { return pair_.there == pair_.here; }
    size_t slices_seen() const { return seen_; }

  private:
    BulkCluster pair_;
    const bool is_put_;
    size_t seen_ = 0;
};

TEST(Faults, AnErrorAtAnySliceOfARailIsMadeGood) {
    for (const bool is_put : {true, false}) {
        size_t position = 0;
        for (;; ++position) {
            SCOPED_TRACE(position);
            BreakingTransfer transfer(2, is_put, position);
            ASSERT_EQ(transfer.run(), UCS_OK);
            ASSERT_TRUE(transfer.is_right());
            if (transfer.slices_seen() <= position) break;  // the rail had no more
        }
        EXPECT_GE(position, 20u);
    }
}

TEST(Faults, AnErrorAtAnySliceWithoutAnotherPathEndsTheRequestOnce) {
    for (const bool is_put : {true, false}) {
        for (size_t position = 0; position < 64; ++position) {
            SCOPED_TRACE(position);
            BreakingTransfer transfer(1, is_put, position);
            EXPECT_NE(transfer.run(), UCS_OK);
        }
    }
}

TEST(Faults, AKeyThatIsNoMoreEndsTheRequest) {
    BulkCluster pair(1 << 18, fast_options(1));
    ucp::test::Region gone(pair.cluster.context(1), 1 << 18);
    gone.open(pair.endpoint);
    gone.unmap();
    const ucs_status_ptr_t put = ucp_put_nbx(pair.endpoint, pair.here.data(), pair.here.size(),
                                             gone.address(), gone.key, &kNothing);
    EXPECT_NE(pair.cluster.finish(put), UCS_OK);
    gone.close();
    expect_nothing_left(pair.cluster);
}

TEST(Faults, WhatThePeersMemoryRefusesIsNotTriedAgain) {
    BulkCluster pair(1 << 18, fast_options());
    pair.fill(1);
    EXPECT_EQ(pair.put(), UCS_OK);
    pair.cluster.fabric.set_device(pair.rail(), Device::kRefusing);
    EXPECT_EQ(pair.put(), UCS_ERR_REJECTED);
    expect_nothing_left(pair.cluster);
    // The path is made anew, for the others.
    pair.cluster.fabric.set_device(pair.rail(), Device::kWell);
    pair.fill(2);
    EXPECT_EQ(pair.put(), UCS_OK);
    EXPECT_TRUE(pair.there == pair.here);
}

TEST(Faults, ASilentRailIsNoticedAndWhatItHeldNeverComesLate) {
    for (const bool is_put : {true, false}) {
        BulkCluster pair(1 << 20, fast_options());
        pair.fill(1);
        if (!is_put) pair.fill_there(2);
        const ucs_status_ptr_t operation = is_put ? pair.start_put() : pair.start_get();
        pair.cluster.steps(5);
        pair.cluster.fabric.set_device(pair.rail(), Device::kSilent);
        ASSERT_EQ(pair.cluster.finish(operation), UCS_OK);
        EXPECT_TRUE(pair.there == pair.here);

        // The buffer is the program's again, and stays as it leaves it when the rail wakes up.
        std::vector<uint8_t>& written = is_put ? pair.there : pair.here;
        std::ranges::fill(written, 0x55);
        const auto left = written;
        pair.cluster.fabric.set_device(pair.rail(), Device::kWell);
        pair.cluster.steps(3000);
        EXPECT_TRUE(written == left);
        EXPECT_GT(pair.counters().cut_off, 0u);
        expect_nothing_left(pair.cluster);
    }
}

TEST(Faults, ARailWithoutLinkIsLeftAtOnce) {
    Cluster::Options options = fast_options();
    options.config.bulk_stall_timeout = 1h;
    options.tick = 10us;
    BulkCluster pair(1 << 20, options);
    pair.fill(3);
    const ucs_status_ptr_t put = pair.start_put();
    pair.cluster.steps(5);
    pair.cluster.fabric.set_device(pair.rail(), Device::kSilent);
    pair.cluster.fabric.set_link(pair.rail(), false);
    ASSERT_EQ(pair.cluster.finish(put), UCS_OK);
    EXPECT_TRUE(pair.there == pair.here);
    expect_nothing_left(pair.cluster);
}

TEST(Faults, ARailComesBackWhenItIsWell) {
    Cluster::Options options = fast_options();
    options.tick = 10us;
    BulkCluster pair(1 << 20, options);
    std::map<unsigned, size_t> by_device;
    pair.cluster.fabric.observe([&](const uct::mock::PacketEvent& event) {
        if (event.am_id < 0) by_device[event.device] += event.length;
    });
    for (int round = 0; round < 3; ++round) {
        pair.fill(static_cast<uint64_t>(round));
        pair.cluster.fabric.set_device(pair.rail(), Device::kBroken);
        ASSERT_EQ(pair.put(), UCS_OK);
        EXPECT_TRUE(pair.there == pair.here);
        pair.cluster.fabric.set_device(pair.rail(), Device::kWell);
        by_device.clear();
        ASSERT_TRUE(pair.cluster.until(
            [&] {
                pair.fill(static_cast<uint64_t>(round) + 10);
                EXPECT_EQ(pair.put(), UCS_OK);
                return by_device[pair.rail()] > size_t{300} << 10;
            },
            100));
        EXPECT_TRUE(pair.there == pair.here);
    }
}

TEST(Faults, AllSilentIsNoFailure) {
    BulkCluster pair(1 << 20, fast_options());
    pair.fill(4);
    Ends ends;
    const ucp_request_param_t params = ends.params();
    const ucs_status_ptr_t put = pair.start_put(params);
    pair.cluster.steps(5);
    pair.cluster.fabric.set_device(pair.home(), Device::kSilent);
    pair.cluster.fabric.set_device(pair.rail(), Device::kSilent);
    pair.cluster.steps(5000);
    EXPECT_EQ(ends.count, 0u);
    pair.cluster.fabric.set_device(pair.home(), Device::kWell);
    pair.cluster.fabric.set_device(pair.rail(), Device::kWell);
    EXPECT_EQ(pair.cluster.finish(put), UCS_OK);
    EXPECT_TRUE(pair.there == pair.here);
}

TEST(Faults, ADeadPeerEndsAllRequests) {
    BulkCluster pair(1 << 18, fast_options());
    std::vector<Ends> ends(8);
    std::vector<ucp_request_param_t> params;
    for (Ends& end : ends) params.push_back(end.params());
    std::vector<ucs_status_ptr_t> puts;
    for (const auto& param : params) puts.push_back(pair.start_put(param));
    pair.cluster.steps(10);
    pair.cluster.kill(1);
    ASSERT_TRUE(pair.cluster.until(
        [&] { return std::ranges::all_of(ends, [](const Ends& end) { return end.count != 0; }); }));
    pair.cluster.steps(2000);
    for (const Ends& end : ends) {
        EXPECT_EQ(end.count, 1u);
    }
    EXPECT_NE(ends.back().status, UCS_OK);
    for (const ucs_status_ptr_t put : puts) ucp_request_free(put);
    EXPECT_EQ(pair.cluster.inner(0).bulk().transfers_in_use(), 0u);
}

const PathGroup& group_of(BulkCluster& pair) {
    return *pair.cluster.inner(0).bulk().find(unwrap(pair.endpoint));
}

void close_by_force(BulkCluster& pair, ucp_ep_h endpoint) {
    ucp_request_param_t force{};
    force.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    force.flags = UCP_EP_CLOSE_FLAG_FORCE;
    pair.cluster.finish(ucp_ep_close_nbx(endpoint, &force));
}

TEST(Faults, APeerThatHasClosedItsEndpointCutsOffAllTheSame) {
    Cluster::Options options = fast_options();
    options.tick = 10us;
    BulkCluster pair(1 << 20, options);
    const ucp_ep_h back = pair.cluster.endpoint(1, 0);
    pair.fill(1);
    const ucs_status_ptr_t put = pair.start_put();
    pair.cluster.steps(5);
    pair.cluster.fabric.set_device(pair.rail(), Device::kSilent);
    close_by_force(pair, back);
    pair.cluster.forget(1, 0);
    ASSERT_EQ(pair.cluster.finish(put), UCS_OK);
    EXPECT_TRUE(pair.there == pair.here);
    std::fill(pair.there.begin(), pair.there.end(), 0x55);
    const auto left = pair.there;
    pair.cluster.fabric.set_device(pair.rail(), Device::kWell);
    pair.cluster.steps(3000);
    EXPECT_TRUE(pair.there == left);
    EXPECT_GT(pair.counters().cut_off, 0u);
}

TEST(Faults, APathThatFallsSilentWhileTheOthersAreIdleIsNoticed) {
    Cluster::Options options = fast_options();
    options.tick = 10us;
    BulkCluster pair(1 << 15, options);
    pair.cluster.fabric.set_link(pair.home(), false);
    const auto is_left = [&] { return !group_of(pair).paths.front()->link_up; };
    do {
        EXPECT_EQ(pair.put(), UCS_OK);
    } while (!is_left());
    // All of it goes to the rail, and nothing ever to the other path.
    pair.fill(7);
    const ucs_status_ptr_t put = pair.start_put();
    EXPECT_EQ(group_of(pair).paths.back()->meter.under_way(), pair.here.size());
    pair.cluster.fabric.set_device(pair.rail(), Device::kSilent);
    pair.cluster.fabric.set_link(pair.home(), true);
    EXPECT_EQ(pair.cluster.finish(put), UCS_OK);
    EXPECT_TRUE(pair.there == pair.here);
    expect_nothing_left(pair.cluster);
}

TEST(Faults, APathThatBacksOffHasNoTransport) {
    BulkCluster pair(1 << 18, fast_options());
    pair.cluster.fabric.set_device(pair.rail(), Device::kBroken);
    EXPECT_EQ(pair.put(), UCS_OK);
    const Path& rail = *group_of(pair).paths.back();
    ASSERT_TRUE(pair.cluster.until([&] { return rail.state == Path::State::kProbing; }));
    ASSERT_TRUE(pair.cluster.until([&] { return rail.state == Path::State::kBackingOff; }));
    EXPECT_EQ(rail.transport, nullptr);
}

TEST(Faults, AHomeThatFailsHoldsNothing) {
    BulkCluster pair(1 << 18, fast_options(1));
    const ucs_status_ptr_t put = pair.start_put();
    const Meter& home = group_of(pair).paths.front()->meter;
    EXPECT_GT(home.under_way(), 0u);
    pair.cluster.fabric.set_device(pair.home(), Device::kBroken);
    EXPECT_NE(pair.cluster.finish(put), UCS_OK);
    EXPECT_EQ(home.under_way(), 0u);
}

TEST(Faults, ACutGoesOverAFullRailAsSoonAsThereIsRoom) {
    Cluster::Options options = fast_options(3);
    options.fabric.transmit_depth = 4;
    BulkCluster pair(4 << 20, options);
    unsigned broken = 0, full = 0;
    for (unsigned device = 0; device < 3; ++device) {
        if (device == pair.home()) continue;
        full = broken;
        broken = device;
    }
    unsigned requests = 0;
    pair.cluster.fabric.observe([&](const uct::mock::PacketEvent& event) {
        const bool is_request = event.am_id == static_cast<int>(AmId::kBulkRevoke);
        if (is_request && event.device == full) ++requests;
    });
    const ucs_status_ptr_t put = pair.start_put();
    pair.cluster.steps(5);
    pair.cluster.fabric.set_device(pair.home(), Device::kSilent);
    pair.cluster.fabric.set_device(broken, Device::kBroken);
    // Long before it is repeated.
    EXPECT_TRUE(pair.cluster.until([&] { return requests != 0; }, 5000));
    pair.cluster.fabric.set_device(pair.home(), Device::kWell);
    EXPECT_EQ(pair.cluster.finish(put), UCS_OK);
}

// The peer answers no CUT for a while, and in the middle of it this process is stopped.
TEST(Faults, WhatAStoppedProcessDoesNotSeeIsNoPeerThatDoesNotAnswer) {
    const Cluster::Options options = fast_options();
    BulkCluster pair(4 << 20, options);
    unsigned requests = 0;
    pair.cluster.fabric.observe([&](const uct::mock::PacketEvent& event) {
        if (event.am_id == static_cast<int>(AmId::kBulkRevoke)) ++requests;
    });
    const ucs_status_ptr_t put = pair.start_put();
    pair.cluster.steps(5);
    pair.cluster.fabric.set_device(pair.rail(), Device::kSilent);
    pair.cluster.hold_still(1);
    ASSERT_TRUE(pair.cluster.until([&] { return requests != 0; }));
    pair.cluster.clock.advance(10 * options.config.bulk_cut_timeout);
    pair.cluster.steps(10);
    pair.cluster.hold_still(SIZE_MAX);
    pair.cluster.fabric.set_device(pair.rail(), Device::kWell);
    EXPECT_EQ(pair.cluster.finish(put), UCS_OK);
}

TEST(Faults, AnEndpointMayBeClosedByForceInTheMiddle) {
    for (unsigned steps = 0; steps < 60; steps += 4) {
        BulkCluster pair(1 << 18, fast_options());
        Ends put_ends, get_ends;
        const ucp_request_param_t put = put_ends.params(), get = get_ends.params();
        const ucs_status_ptr_t operations[] = {
            pair.start_put(put), ucp_get_nbx(pair.endpoint, pair.here.data(), pair.here.size(),
                                             pair.remote(), pair.key, &get)};
        pair.cluster.steps(steps);
        close_by_force(pair, pair.endpoint);
        ASSERT_TRUE(pair.cluster.until([&] { return put_ends.count + get_ends.count == 2; }));
        pair.cluster.steps(500);
        EXPECT_EQ(put_ends.count + get_ends.count, 2u);
        for (const ucs_status_ptr_t operation : operations) ucp_request_free(operation);
        EXPECT_EQ(pair.cluster.inner(0).bulk().transfers_in_use(), 0u);
        EXPECT_EQ(pair.cluster.inner(0).bulk().chains_in_use(), 0u);
    }
}

// The owner of a path that tests fail and take away.
struct Owner final : PathOwner {
    std::unique_ptr<uct::Endpoint> transport;
    unsigned failed = 0, gone = 0;

    void path_failed(Path&, ucs_status_t) override {
        ++failed;
        transport.reset();
    }
    void path_gone(Path&) override {
        ++gone;
        transport.reset();
    }
};

// What the peer asks to be revoked.
struct Provider final : QueuePairProvider {
    unsigned revoked = 0;
    uint64_t name = 0;

    void wanted(Endpoint&) override {}
    void transports_failed(std::span<const uct::Endpoint* const>) override {}
    void revoke_queue_pair(uint64_t, uint64_t which) override {
        ++revoked;
        name = which;
    }
};

struct OwnedPath : BulkCluster {
    explicit OwnedPath(size_t length) : BulkCluster(length, fast_options(2)) {
        Worker& worker = cluster.inner(0);
        cluster.inner(1).bulk().set_provider(&provider);
        endpoint_of = &unwrap(endpoint);
        const std::span<const Rail> rails = worker.rails().rails(cluster.uuid(1));
        EXPECT_EQ(rails.size(), 1u);
        EXPECT_EQ(worker.interfaces()[rails[0].interface].transport->create_endpoint(
                      rails[0].address(), &owner.transport),
                  UCS_OK);
        path = worker.bulk().add_path(
            *endpoint_of,
            {owner.transport.get(), rails[0].interface, rails[0].domains, 1.0, 0x1234}, owner);
    }
    Endpoint* endpoint_of;
    Owner owner;
    Provider provider;
    Path* path;
};

TEST(OwnedPaths, AreDrainedBeforeTheyGo) {
    OwnedPath pair(1 << 20);
    ASSERT_NE(pair.path, nullptr);
    pair.fill(5);
    const ucs_status_ptr_t put = pair.start_put();
    EXPECT_GT(pair.path->meter.under_way(), 0u);
    pair.cluster.inner(0).bulk().remove_path(*pair.path);
    EXPECT_EQ(pair.owner.gone, 0u);
    EXPECT_EQ(pair.cluster.finish(put), UCS_OK);
    ASSERT_TRUE(pair.cluster.until([&] { return pair.owner.gone != 0; }));
    EXPECT_EQ(pair.owner.failed, 0u);
    EXPECT_TRUE(pair.there == pair.here);
}

TEST(OwnedPaths, ThatFailAreRevokedByTheirNamesAndGo) {
    OwnedPath pair(1 << 20);
    pair.fill(6);
    const ucs_status_ptr_t put = pair.start_put();
    const Engine::Failure failures[] = {{pair.path->transport, UCS_ERR_IO_ERROR}};
    pair.cluster.inner(0).bulk().transports_failed(failures);
    EXPECT_EQ(pair.cluster.finish(put), UCS_OK);
    ASSERT_TRUE(pair.cluster.until([&] { return pair.owner.gone != 0; }));
    EXPECT_EQ(pair.owner.failed, 1u);
    EXPECT_GE(pair.provider.revoked, 1u);
    EXPECT_EQ(pair.provider.name, 0x1234u);
    EXPECT_TRUE(pair.there == pair.here);
}

// A device breaks that has a path of each of many endpoints.
TEST(ManyPaths, ThatFailAtOnceAreLookedForAtOnce) {
    constexpr size_t kCount = 100;
    BulkCluster pair(1 << 16, fast_options());
    Engine& engine = pair.cluster.inner(0).bulk();
    std::deque<ucp::test::Region> regions;
    std::vector<ucs_status_ptr_t> puts;
    std::vector<Path*> rails;
    std::vector<Engine::Failure> failures;
    // One that is no path's.
    failures.emplace_back(unwrap(pair.endpoint).scalable(), UCS_ERR_IO_ERROR);
    pair.fill(7);
    for (size_t index = 0; index < kCount; ++index) {
        const ucp_ep_h endpoint = pair.cluster.connect(0, 1);
        ucp::test::Region& region = regions.emplace_back(pair.cluster.context(1), pair.here.size());
        region.open(endpoint);
        puts.push_back(ucp_put_nbx(endpoint, pair.here.data(), pair.here.size(), region.address(),
                                   region.key, &kNothing));
        const PathGroup* const group = engine.find(unwrap(endpoint));
        ASSERT_NE(group, nullptr);
        ASSERT_EQ(group->paths.size(), 2u);
        rails.push_back(group->paths.back().get());
        failures.emplace_back(rails.back()->transport, UCS_ERR_IO_ERROR);
    }
    const uint64_t before = engine.looks();
    engine.transports_failed(failures);
    EXPECT_LE(engine.looks() - before, 2 * (kCount + 1));
    for (const Path* rail : rails) EXPECT_EQ(rail->failure, UCS_ERR_IO_ERROR);
    for (const ucs_status_ptr_t put : puts) EXPECT_EQ(pair.cluster.finish(put), UCS_OK);
    for (const ucp::test::Region& region : regions) EXPECT_TRUE(region.bytes == pair.here);
}

TEST(OwnedPaths, GoWithTheirEndpoint) {
    OwnedPath pair(1 << 18);
    const ucs_status_ptr_t put = pair.start_put();
    pair.cluster.kill(1);
    EXPECT_NE(pair.cluster.finish(put), UCS_OK);
    EXPECT_EQ(pair.owner.gone, 1u);
}

}  // namespace
}  // namespace ucp::bulk::test
