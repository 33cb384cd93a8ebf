// SPDX-License-Identifier: BSD-3-Clause

// TCP as a rail of bulk transfers: chains, connections that are cut off, and made anew.

#include <cstring>
#include <string>
#include <vector>

#include "unit/uct/tcp/association/tcp_bulk.h"

namespace uct::test {
namespace {

class TcpRails : public TcpBulk {
  protected:
    explicit TcpRails(const Settings& settings = {}) : TcpBulk(3, settings) {}

    Endpoint& start_and_stop_in_the_middle(Waiter& waiter) {
        Endpoint& endpoint = world.connect(0, 1);
        TcpBulk::start_and_stop_in_the_middle(endpoint, waiter);
        return endpoint;
    }
    void expect_a_chain_to_work() {
        Endpoint& endpoint = world.connect(0, 1);
        std::memset(source.data(), 'z', source.size());
        Waiter waiter;
        ASSERT_EQ(endpoint.put_chain(pieces(), &waiter), static_cast<ssize_t>(kPieces));
        world.until([&] { return waiter.done; });
        EXPECT_EQ(waiter.status, UCS_OK);
        EXPECT_EQ(target.text(), source.text());
    }
};

TEST_F(TcpRails, APutChainIsCompleteWhenThePeerHasPlacedItAndNotBefore) {
    Endpoint& endpoint = world.connect(0, 1);
    world.expect_traffic(0, 1);
    Waiter waiter;
    auto one = pieces();
    one.resize(1);
    one[0].length = 8;
    ASSERT_EQ(endpoint.put_chain(one, &waiter), 1);
    world.peer(1).runs = false;
    world.progress_some(100);
    EXPECT_FALSE(waiter.done);
    world.peer(1).runs = true;
    world.until([&] { return waiter.done; });
    EXPECT_EQ(target.text().substr(0, 9), "nnnnnnnn.");
}

TEST_F(TcpRails, AConnectionThatIsCutOffWritesNothingMore) {
    Waiter waiter;
    Endpoint& endpoint = start_and_stop_in_the_middle(waiter);
    ASSERT_EQ(world.peer(1).interface->cut_off(world.address_of(0), 1), UCS_OK);
    std::memset(target.data(), 'm', target.size());
    world.until([&] { return waiter.done; });
    world.progress_some(200);
    EXPECT_LT(waiter.status, 0);
    EXPECT_EQ(target.text(), std::string(target.size(), 'm'));
    ASSERT_EQ(world.peer(0).failures.size(), 1u);
    EXPECT_EQ(world.peer(0).failures[0].endpoint, &endpoint);
    expect_a_chain_to_work();
}

TEST_F(TcpRails, OtherPeersNoticeNothingOfACut) {
    Endpoint& other = world.connect(0, 2);
    Endpoint& to_cutter = world.connect(2, 1);
    world.expect_traffic(0, 2);
    world.expect_traffic(2, 1);
    Waiter waiter;
    start_and_stop_in_the_middle(waiter);
    ASSERT_EQ(world.peer(1).interface->cut_off(world.address_of(0), 1), UCS_OK);
    world.until([&] { return waiter.done; });
    send_bcopy(world, other, 1, "whole");
    send_bcopy(world, to_cutter, 1, "whole");
    world.until(
        [&] { return world.peer(2).received.size() == 2 && world.peer(1).received.size() == 2; });
    EXPECT_TRUE(world.peer(1).failures.empty());
    EXPECT_TRUE(world.peer(2).failures.empty());
    EXPECT_EQ(world.peer(0).failures.size(), 1u);
}

TEST_F(TcpRails, AnEndpointThatIsMadeAnewDoesNotTakeConnectionsThatMayBeStuck) {
    Waiter waiter;
    Endpoint& endpoint = start_and_stop_in_the_middle(waiter);
    world.destroy(endpoint);
    EXPECT_TRUE(waiter.done);
    EXPECT_EQ(waiter.status, UCS_ERR_CANCELED);
    EXPECT_EQ(world.tcp(0).open_connections(), 0u);
    // The peer learns of it from the new connection, or before.
    expect_a_chain_to_work();
    ASSERT_EQ(world.peer(1).interface->cut_off(world.address_of(0), 1), UCS_OK);
}

TEST_F(TcpRails, WhatIsSentAnewAfterACutArrivesThoughTheOldConnectionWasNotSeenToEnd) {
    Waiter waiter;
    Endpoint& endpoint = start_and_stop_in_the_middle(waiter);
    world.peer(0).runs = false;
    world.destroy(endpoint);
    ASSERT_EQ(world.peer(1).interface->cut_off(world.address_of(0), 1), UCS_OK);
    world.peer(0).runs = true;
    expect_a_chain_to_work();
    EXPECT_TRUE(world.peer(0).failures.empty());
}

TEST_F(TcpRails, TheOneWhoCutsKeepsItsEndpointIfNothingWasUnderWay) {
    Endpoint& back = world.connect(1, 0);
    // What the other end sends acknowledges what this one has sent.
    world.expect_traffic(1, 0);
    world.expect_traffic(0, 1);
    ASSERT_EQ(world.peer(1).interface->cut_off(world.address_of(0), 1), UCS_OK);
    EXPECT_EQ(world.tcp(1).open_connections(), 0u);
    send_bcopy(world, back, 1, "again");
    world.until([&] { return world.peer(0).received.size() == 2; });
    EXPECT_TRUE(world.peer(1).failures.empty());
    world.expect_traffic(0, 1);
}

TEST_F(TcpRails, ALinkThatWasCutOffGetsNoFurtherConnection) {
    RawPeer first(world, 1);
    tcp::wire::Hello hello = first.hello();
    EXPECT_EQ(first.shake_hands(hello).answer, tcp::wire::Answer::kWelcome);
    std::vector<std::byte> address(tcp::ListenerAddress::kLength);
    tcp::ListenerAddress{1, hello.sender, {}}.write(address);
    ASSERT_EQ(world.peer(1).interface->cut_off({{}, address, {}}, 1), UCS_OK);
    world.until([&] { return first.is_closed(); });
    RawPeer second(world, 1);
    hello.connection = 1;
    EXPECT_EQ(second.shake_hands(hello).answer, tcp::wire::Answer::kCutOff);
    ++hello.association;
    RawPeer third(world, 1);
    EXPECT_EQ(third.shake_hands(hello).answer, tcp::wire::Answer::kWelcome);
}

TEST_F(TcpRails, MalformedAddressesCutNothing) {
    world.expect_traffic(0, 1);
    EXPECT_EQ(world.peer(1).interface->cut_off({}, 1), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(world.tcp(1).open_connections(), 1u);
}

// Small socket buffers: chains wait for the kernel.
class NarrowTcpRails : public TcpRails {
  protected:
    NarrowTcpRails() : TcpRails({{"TCP_SNDBUF", "8k"}, {"TCP_RCVBUF", "8k"}}) {}
};

TEST_F(NarrowTcpRails, ChainsOfBothKindsAndDirectionsBringEveryByte) {
    Endpoint& there = world.connect(0, 1);
    Endpoint& back = world.connect(1, 0);
    Buffer mirror(world.peer(1), source.size());
    const std::string content = pattern(source.size(), 5);
    std::memcpy(source.data(), content.data(), content.size());
    const RemoteKey key = source.key_for(world.peer(1));
    const Iov whole = mirror.iov(0, mirror.size());
    std::vector<ChainPiece> gets;
    for (size_t i = 0; i < kPieces; ++i) {
        gets.push_back(
            {mirror.data() + i * kPiece, kPiece, whole.memory, source.address() + i * kPiece, key});
    }
    Waiter put, get;
    ASSERT_EQ(there.put_chain(pieces(), &put), static_cast<ssize_t>(kPieces));
    ASSERT_EQ(back.get_chain(gets, &get), static_cast<ssize_t>(kPieces));
    world.until([&] { return put.done && get.done; });
    EXPECT_EQ(put.status, UCS_OK);
    EXPECT_EQ(get.status, UCS_OK);
    EXPECT_EQ(target.text(), content);
    EXPECT_EQ(mirror.text(), content);
}

TEST(TcpIdleness, AnInterfaceLooksThoughTheClockStandsStill) {
    TcpWorld world;
    Endpoint& endpoint = world.connect(0, 1);
    world.expect_traffic(0, 1);
    Interface& receiver = *world.peer(1).interface;
    for (int i = 0; i < 5000; ++i) receiver.progress();  // it rests
    send_bcopy(world, endpoint, 1, "wake up");
    for (int i = 0; i < 10000 && world.peer(1).received.size() < 2; ++i) receiver.progress();
    EXPECT_EQ(world.peer(1).received.size(), 2u);
}

}  // namespace
}  // namespace uct::test
