// SPDX-License-Identifier: BSD-3-Clause

// TCP that outlives its connections: they are broken at any point, and nothing is lost, doubled or
// out of order.

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "common/short_packets.h"
#include "unit/uct/tcp/association/tcp_bulk.h"

namespace uct::test {
namespace {

uint64_t number_in(const Message& message) {
    uint64_t number;
    std::memcpy(&number, message.data.data(), sizeof(number));
    return number;
}

TEST(TcpFailover, MessagesGoOnOverAnotherConnection) {
    TcpWorld world(2, kSessions);
    Endpoint& endpoint = world.connect(0, 1);
    world.expect_traffic(0, 1);
    for (uint64_t i = 0; i < 20; ++i) {
        break_connections(world, i % 2, 0);
        send_short(world, endpoint, 2, i, "");
    }
    world.until([&] { return world.peer(1).received.size() == 21; });
    for (uint64_t i = 0; i < 20; ++i) EXPECT_EQ(number_in(world.peer(1).received[i + 1]), i);
    EXPECT_TRUE(world.peer(0).failures.empty());
    EXPECT_TRUE(world.peer(1).failures.empty());
    EXPECT_EQ(world.tcp(0).open_connections(), 1u);
}

// Has the kernel sent packets that the other end's has not acknowledged?
bool has_unanswered(int socket) {
    tcp_info info{};
    socklen_t length = sizeof(info);
    EXPECT_EQ(getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length), 0);
    return info.tcpi_unacked != 0;
}

// A connection breaks while the receiver's kernel has some of what was sent, and the sender knows.
void break_while_full(const Settings& settings) {
    TcpWorld world(2, settings);
    Endpoint& endpoint = world.connect(0, 1);
    world.expect_traffic(0, 1);
    world.peer(1).runs = false;
    const std::string message = pattern(7000, 3);
    size_t sent = 1;
    while (endpoint.flush(nullptr) == UCS_OK) {
        send_bcopy(world, endpoint, 1, message);
        ++sent;
    }
    // What has arrived is answered, in the kernel's own time, and forgotten.
    for (int i = 0; i < 20000 && has_unanswered(world.tcp(0).sockets(0)[0]); ++i) {
        poll(nullptr, 0, 1);
    }
    for (int i = 0; i < 20; ++i) {
        world.clock.advance(std::chrono::milliseconds(100));
        world.progress_some(10);
    }
    // The receiver's kernel resets what comes from here on.
    break_connections(world, 1, 0);
    world.progress_some(10);
    break_connections(world, 0, 0);
    world.peer(1).runs = true;
    world.until([&] { return world.peer(1).received.size() == sent; });
    for (size_t i = 1; i < sent; ++i) EXPECT_EQ(world.peer(1).received[i].data, message);
    EXPECT_EQ(flush(world, endpoint), UCS_OK);
    EXPECT_TRUE(world.peer(0).failures.empty());
}

TEST(TcpFailover, WhatTheKernelHadTakenAndNotDeliveredComesAgain) {
    break_while_full(kNarrow);
}

// Of a record that has not arrived as a whole nothing can be read, though its beginning has
// arrived.
TEST(TcpFailover, ARecordOfWhichOnlyHalfHasArrivedComesAgain) {
    const bool is_there =
        ucs::test::with_short_packets([] { break_while_full(with(kNarrow, kEncrypted)); });
    if (!is_there) GTEST_SKIP() << "needs the right to make a network namespace, and the tool ip";
}

TEST(TcpFailover, WhatWasFlushedArrivesThoughTheSenderGoesWhileItsSessionMoves) {
    constexpr size_t kCount = 200;
    const std::string message = pattern(8000, 1);
    size_t received = 0;
    bool has_read = false;
    for (int tries = 0; tries < 20 && !has_read && received <= kCount; ++tries) {
        TcpWorld world(2, {{"TCP_FAILOVER", "y"}, {"TCP_SNDBUF", "4m"}, {"TCP_RCVBUF", "64k"}});
        Endpoint& there = world.connect(0, 1);
        world.expect_traffic(0, 1);
        for (size_t i = 0; i < kCount; ++i) send_bcopy(world, there, 1, message);
        ASSERT_EQ(flush(world, there), UCS_OK);
        ASSERT_LT(world.peer(1).received.size(), kCount + 1);
        break_connections(world, 1, 0);
        has_read = world.leave_while_read(there, kCount + 1);
        received = world.peer(1).received.size();
    }
    EXPECT_EQ(received, kCount + 1);
}

TEST(TcpFailover, APeerThatDiesIsStillFoundDead) {
    TcpWorld world(3, kSessions);
    Endpoint& endpoint = world.connect(0, 1);
    world.expect_traffic(0, 1);
    world.expect_traffic(0, 2);
    world.kill(1);
    world.until([&] { return world.peer(0).failures.size() == 1; });
    EXPECT_EQ(world.peer(0).failures[0].endpoint, &endpoint);
    EXPECT_EQ(world.peer(0).failures[0].status, UCS_ERR_CONNECTION_RESET);
    world.expect_traffic(0, 2);
}

TEST(TcpFailover, AHandshakeThatIsOvertakenIsRefused) {
    TcpWorld world(2, kSessions);
    RawPeer peer(world, 1);
    tcp::wire::Hello hello = peer.hello();
    hello.flags = tcp::wire::kCanResume | tcp::wire::kResumes;
    hello.attempt = 1;
    EXPECT_EQ(peer.shake_hands(hello).answer, tcp::wire::Answer::kUnknown);
    world.until([&] { return peer.is_closed(); });
    world.expect_traffic(0, 1);
}

// Messages of all kinds, small remote accesses and chains in both directions, while connections
// break at random, on either side, in either direction.
void soak(uint64_t seed, const Settings& settings) {
    SCOPED_TRACE(seed);
    ucs::Random random(seed);
    TcpWorld world(2, settings);
    constexpr uint64_t kCount = 400;
    Buffer counters(world.peer(1), 64);
    const RemoteKey key = counters.key_for(world.peer(0));
    Endpoint* endpoints[] = {&world.connect(0, 1), &world.connect(1, 0)};
    uint64_t sent[] = {0, 0}, added = 0;
    std::deque<Waiter> waiters;
    std::deque<std::string> payloads;
    const auto length_of = [seed](uint64_t i) { return (i * 977 + seed * 131) % 6000; };
    const auto send_one = [&](size_t side) {
        const uint64_t i = sent[side];
        const std::string payload = pattern(length_of(i), static_cast<unsigned>(i));
        Endpoint& endpoint = *endpoints[side];
        if (random.below(3) != 0) {
            if (endpoint.am_short(1, i, payload.data(), static_cast<uint32_t>(payload.size())) !=
                UCS_OK) {
                return;
            }
        } else {
            payloads.push_back(payload);
            waiters.emplace_back();
            std::byte header[sizeof(i)];
            std::memcpy(header, &i, sizeof(i));
            const Iov iov[] = {{payloads.back().data(), payload.size(), nullptr}};
            const ucs_status_t status = endpoint.am_zcopy(1, header, iov, &waiters.back());
            if (status == UCS_ERR_NO_RESOURCE) {
                waiters.pop_back();
                return;
            }
            ASSERT_TRUE(status == UCS_OK || status == UCS_INPROGRESS);
            if (status == UCS_OK) waiters.back().done = true;
        }
        ++sent[side];
    };
    const auto is_over = [&](size_t side) { return world.peer(side).received.size() >= kCount; };
    for (int step = 0; step < 400000 && !(is_over(0) && is_over(1)); ++step) {
        for (const size_t side : {0, 1}) {
            if (sent[side] < kCount && random.below(2) == 0) send_one(side);
            if (random.below(100) == 0) world.peer(side).runs = random.below(3) != 0;
        }
        if (random.below(8) == 0 &&
            endpoints[0]->atomic(AtomicOp::kAdd, 8, 1, 0, nullptr, counters.address(), key,
                                 nullptr) == UCS_OK) {
            ++added;
        }
        if (random.below(150) == 0) {
            const int how[] = {SHUT_RDWR, SHUT_WR, SHUT_RD};
            break_connections(world, random.below(2), 0, how[random.below(3)]);
        }
        world.progress();
    }
    world.peer(0).runs = world.peer(1).runs = true;
    EXPECT_EQ(flush(world, *endpoints[0]), UCS_OK);
    EXPECT_EQ(flush(world, *endpoints[1]), UCS_OK);
    world.until([&] {
        return std::ranges::all_of(waiters, [](const Waiter& waiter) { return waiter.done; });
    });
    for (const size_t side : {0, 1}) {
        const auto& received = world.peer(side).received;
        EXPECT_TRUE(world.peer(side).failures.empty());
        ASSERT_EQ(received.size(), kCount);
        for (uint64_t i = 0; i < kCount; ++i) {
            ASSERT_EQ(number_in(received[i]), i);
            ASSERT_EQ(received[i].data.substr(8), pattern(length_of(i), static_cast<unsigned>(i)));
        }
    }
    uint64_t total;
    std::memcpy(&total, counters.data(), sizeof(total));
    EXPECT_EQ(total, added);
}

TEST(TcpFailoverSoak, NothingIsLostDoubledOrOutOfOrder) {
    for (uint64_t seed = 1; seed <= 12; ++seed) soak(seed, seed % 2 == 0 ? kSessions : kNarrow);
}

TEST(TcpFailoverSoak, NothingIsLostDoubledOrOutOfOrderWhenItIsEncrypted) {
    for (uint64_t seed = 1; seed <= 6; ++seed) {
        soak(seed, with(kEncrypted, seed % 2 == 0 ? kSessions : kNarrow));
    }
}

}  // namespace
}  // namespace uct::test
