// SPDX-License-Identifier: BSD-3-Clause

// Endpoints that are made before their peer is known.

#include <memory>
#include <string>
#include <vector>

#include "unit/uct/tcp/association/tcp_bulk.h"

namespace uct::test {
namespace {

class TcpConnected : public TcpBulk {
  protected:
    TcpConnected() : TcpBulk(2, kNarrowPlain), ends{make(0), make(1)} {}
    ~TcpConnected() override {
        for (auto& end : ends) end.reset();
    }

    std::unique_ptr<Endpoint> make(size_t side) {
        std::unique_ptr<Endpoint> endpoint;
        EXPECT_EQ(world.tcp(side).create_endpoint({}, &endpoint), UCS_OK);
        return endpoint;
    }
    // Either end to the other.
    void connect() {
        std::vector<std::byte> addresses[2];
        for (size_t side = 0; side < 2; ++side) {
            addresses[side].resize(world.tcp(side).attributes().endpoint_address_length);
            EXPECT_EQ(ends[side]->get_address(addresses[side]), UCS_OK);
        }
        for (size_t side = 0; side < 2; ++side) {
            const std::vector<std::byte> device = world.peer(1 - side).device_address();
            const RemoteAddress remote{device, {}, addresses[1 - side]};
            EXPECT_FALSE(ends[side]->is_connected(remote));
            EXPECT_EQ(ends[side]->connect(remote), UCS_OK);
            EXPECT_TRUE(ends[side]->is_connected(remote));
        }
    }

    std::unique_ptr<Endpoint> ends[2];
};

TEST_F(TcpConnected, CarryChainsAndNothingElse) {
    Waiter waiter;
    EXPECT_EQ(ends[0]->put_chain(pieces(), &waiter), UCS_ERR_NOT_CONNECTED);
    EXPECT_EQ(ends[0]->get_chain(pieces(), &waiter), UCS_ERR_NOT_CONNECTED);
    connect();
    expect_a_chain_to_work(*ends[0]);
    EXPECT_EQ(ends[0]->am_short(1, 0, nullptr, 0), UCS_ERR_UNSUPPORTED);
    expect_no_failures();
}

TEST_F(TcpConnected, AreConnectedOnceAndOnlyToWhomTheyReach) {
    const std::vector<std::byte> nonsense(world.tcp(0).attributes().endpoint_address_length);
    EXPECT_EQ(ends[0]->connect({{}, {}, nonsense}), UCS_ERR_UNREACHABLE);
    connect();
    EXPECT_EQ(ends[0]->connect({{}, {}, nonsense}), UCS_ERR_ALREADY_EXISTS);
}

// As when a queue pair is revoked.
TEST_F(TcpConnected, WhoseOtherEndIsDestroyedWriteNothingMoreThereAndFail) {
    connect();
    Waiter waiter;
    start_and_stop_in_the_middle(*ends[0], waiter);
    ends[1].reset();
    std::memset(target.data(), 'm', target.size());
    world.until([&] { return waiter.done; });
    EXPECT_NE(waiter.status, UCS_OK);
    world.progress_some(200);
    EXPECT_EQ(target.text(), std::string(target.size(), 'm'));
    world.until([&] { return !world.peer(0).failures.empty(); });
    EXPECT_EQ(world.peer(0).failures.front().endpoint, ends[0].get());
    EXPECT_LT(ends[0]->put_chain(pieces(), &waiter), 0);
}

}  // namespace
}  // namespace uct::test
