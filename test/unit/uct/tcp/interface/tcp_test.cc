// SPDX-License-Identifier: BSD-3-Clause

// What is particular to TCP: connections, their number, their end.

#include <netinet/tcp.h>
#include <sys/mman.h>

#include <chrono>
#include <cstring>
#include <deque>
#include <thread>

#include "ucs/log/log.h"
#include "uct/tcp/component.h"
#include "unit/ucs/log/log_capture.h"
#include "unit/uct/tcp/tcp_world.h"

namespace uct::test {
namespace {

TEST(TcpConnections, AreMadeWhenFirstSomethingIsSent) {
    TcpWorld world;
    Endpoint& endpoint = world.connect(0, 1);
    world.progress_some(50);
    EXPECT_EQ(world.tcp(0).open_connections(), 0u);
    EXPECT_EQ(endpoint.flush(nullptr), UCS_OK);
    send_short(world, endpoint, 1, 1, "");
    world.until([&] { return world.peer(1).received.size() == 1; });
    // Both directions, and all endpoints, share it.
    world.expect_traffic(1, 0);
    world.expect_traffic(0, 1);
    EXPECT_EQ(world.tcp(0).open_connections(), 1u);
    EXPECT_EQ(world.tcp(1).open_connections(), 1u);
}

TEST(TcpConnections, SimultaneousOnesBecomeOneAndNothingIsLost) {
    for (int round = 0; round < 20; ++round) {
        TcpWorld world;
        Endpoint& there = world.connect(0, 1);
        Endpoint& back = world.connect(1, 0);
        constexpr uint64_t kCount = 50;
        // Both attempts are under way before either listener is looked at; who is first varies.
        EXPECT_EQ(there.am_short(1, 0, nullptr, 0), UCS_ERR_NO_RESOURCE);
        EXPECT_EQ(back.am_short(1, 0, nullptr, 0), UCS_ERR_NO_RESOURCE);
        world.peer(0).runs = round % 3 != 0;
        world.progress_some(round % 4);
        world.peer(0).runs = true;
        for (uint64_t i = 0; i < kCount; ++i) {
            send_short(world, there, 1, i, "");
            send_short(world, back, 1, i, "");
        }
        world.until([&] {
            return world.peer(0).received.size() >= kCount &&
                   world.peer(1).received.size() >= kCount &&
                   world.tcp(0).open_connections() == 1 && world.tcp(1).open_connections() == 1;
        });
        world.progress_some(50);
        for (size_t side : {0, 1}) {
            const auto& received = world.peer(side).received;
            ASSERT_EQ(received.size(), kCount);
            for (uint64_t i = 0; i < kCount; ++i) {
                ASSERT_EQ(std::memcmp(received[i].data.data(), &i, 8), 0);
            }
            EXPECT_EQ(world.tcp(side).open_connections(), 1u);
            EXPECT_TRUE(world.peer(side).failures.empty());
        }
    }
}

TEST(TcpConnections, AWorkerReachesItself) {
    TcpWorld world(1);
    Endpoint& endpoint = world.connect(0, 0);
    Buffer buffer(world.peer(0), 64, '.');
    send_bcopy(world, endpoint, 1, "to myself");
    world.until([&] { return world.peer(0).received.size() == 1; });
    EXPECT_EQ(endpoint.put_short("x", 1, buffer.address(), buffer.key_for(world.peer(0))), UCS_OK);
    EXPECT_EQ(flush(world, endpoint), UCS_OK);
    EXPECT_EQ(buffer.data()[0], 'x');
}

TEST(TcpConnections, LargeTransfersGoOverSeveralAndMessagesOverTheFirst) {
    TcpWorld world(2, {{"TCP_CONNECTIONS", "4"}, {"TCP_STRIPE_SIZE", "16k"}});
    Endpoint& endpoint = world.connect(0, 1);
    constexpr size_t kSize = 200000;
    Buffer target(world.peer(1), kSize), source(world.peer(0), kSize), back(world.peer(0), kSize);
    const std::string content = pattern(kSize, 3);
    std::memcpy(source.data(), content.data(), kSize);
    const RemoteKey key = target.key_for(world.peer(0));
    const Iov from[] = {source.iov(0, 99999), source.iov(99999, kSize - 99999)};
    Waiter put, get;
    if (endpoint.put_zcopy(from, target.address(), key, &put) == UCS_INPROGRESS) {
        world.until([&] { return put.done; });
    }
    EXPECT_EQ(flush(world, endpoint), UCS_OK);
    EXPECT_EQ(target.text(), content);
    EXPECT_EQ(world.tcp(0).open_connections(), 3u);
    const Iov to[] = {back.iov(0, 1), back.iov(1, kSize - 1)};
    ASSERT_EQ(endpoint.get_zcopy(to, target.address(), key, &get), UCS_INPROGRESS);
    world.until([&] { return get.done; });
    EXPECT_EQ(back.text(), content);
    EXPECT_EQ(world.tcp(0).open_connections(), 3u);
    world.expect_traffic(0, 1);
    EXPECT_EQ(world.tcp(0).open_connections(), 4u);
}

TEST(TcpConnections, AFenceHoldsBackWhatWouldOvertakeOnAnotherConnection) {
    TcpWorld world(2, {{"TCP_CONNECTIONS", "3"},
                       {"TCP_STRIPE_SIZE", "64k"},
                       {"TCP_SNDBUF", "4k"},
                       {"TCP_RCVBUF", "4k"}});
    Endpoint& endpoint = world.connect(0, 1);
    constexpr size_t kSize = 256 * 1024;
    Buffer target(world.peer(1), kSize + 8), source(world.peer(0), kSize, 'n');
    const RemoteKey key = target.key_for(world.peer(0));
    // The flag must never be there before the data. Look between all steps.
    for (char round = 1; round < 10; ++round) {
        std::memset(source.data(), round, kSize);
        const Iov from[] = {source.iov(0, kSize)};
        Waiter put;
        ucs_status_t status;
        world.until([&] {
            status = endpoint.put_zcopy(from, target.address(), key, &put);
            return status != UCS_ERR_NO_RESOURCE;
        });
        if (status == UCS_OK) put.done = true;
        ASSERT_EQ(endpoint.fence(), UCS_OK);
        world.until([&] {
            status = endpoint.put_short(&round, 1, target.address() + kSize, key);
            return status != UCS_ERR_NO_RESOURCE;
        });
        ASSERT_EQ(status, UCS_OK);
        ASSERT_EQ(endpoint.fence(), UCS_OK);
        world.until([&] {
            if (target.data()[kSize] != round) return false;
            for (size_t i = 0; i < kSize; i += 4096) EXPECT_EQ(target.data()[i], round);
            return put.done;
        });
    }
}

TEST(TcpConnections, APeerThatLeavesInGoodOrderIsNoFailure) {
    TcpWorld world(3);
    Endpoint& endpoint = world.connect(0, 1);
    send_short(world, endpoint, 1, 1, "");
    world.until([&] { return world.peer(1).received.size() == 1; });
    world.peer(1).runs = false;
    world.peer(1).interface.reset();
    world.until([&] { return world.tcp(0).open_connections() == 0; });
    EXPECT_TRUE(world.peer(0).failures.empty());
    EXPECT_EQ(endpoint.flush(nullptr), UCS_OK);
    // But it is not there any more.
    EXPECT_EQ(endpoint.am_short(1, 0, nullptr, 0), UCS_ERR_NO_RESOURCE);
    world.until([&] { return world.peer(0).failures.size() == 1; });
    EXPECT_EQ(world.peer(0).failures[0].status, UCS_ERR_CONNECTION_RESET);
    world.expect_traffic(0, 2);
}

TEST(TcpConnections, LastWordsOfAPeerThatDiesAreHeard) {
    TcpWorld world;
    Endpoint& endpoint = world.connect(0, 1);
    send_short(world, endpoint, 1, 0, "");
    world.until([&] { return world.peer(1).received.size() == 1; });
    world.peer(1).runs = false;
    for (uint64_t i = 1; i < 10; ++i) EXPECT_EQ(endpoint.am_short(1, i, nullptr, 0), UCS_OK);
    world.kill(0);
    world.peer(1).runs = true;
    world.until([&] { return world.peer(1).received.size() == 10; });
}

TEST(TcpConnections, MemoryDeregisteredInTheMiddleIsNotTouched) {
    TcpWorld world(2, {{"TCP_SNDBUF", "4k"}, {"TCP_RCVBUF", "4k"}, {"TCP_CONNECTIONS", "1"}});
    Endpoint& endpoint = world.connect(0, 1);
    constexpr size_t kSize = 200 * 1024;
    Buffer source(world.peer(0), kSize, 'x');
    auto target = std::make_unique<Buffer>(world.peer(1), kSize, '.');
    const RemoteKey key = target->key_for(world.peer(0));
    const Iov from[] = {source.iov(0, kSize)};
    Waiter put;
    ASSERT_EQ(endpoint.put_zcopy(from, target->address(), key, &put), UCS_INPROGRESS);
    world.until([&] { return target->data()[20000] == 'x'; });
    ASSERT_NE(target->data()[kSize - 1], 'x');
    target.reset();
    world.until([&] { return put.done; });
    world.expect_traffic(0, 1);  // the rest was dropped, the stream goes on

    // Read: the owner cannot keep its word, and ends the connection.
    target = std::make_unique<Buffer>(world.peer(1), kSize, '.');
    const RemoteKey read_key = target->key_for(world.peer(0));
    const Iov to[] = {source.iov(0, kSize)};
    Waiter get;
    ASSERT_EQ(endpoint.get_zcopy(to, target->address(), read_key, &get), UCS_INPROGRESS);
    world.until([&] { return source.data()[20000] == '.'; });
    ucs::LogCapture log(ucs::LogLevel::kWarn);
    target.reset();
    world.until([&] { return get.done; });
    EXPECT_LT(get.status, 0);
    world.until([&] { return world.peer(0).failures.size() == 1; });
    world.expect_traffic(0, 1);
}

// Registered memory that the program unmaps too early. Nothing else shall get its place: it is made
// unreachable, which the kernel tells in the same way.
class Vanishing {
  public:
    explicit Vanishing(Peer& owner, size_t size) : owner_(owner), size_(size) {
        memory_ = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        EXPECT_NE(memory_, MAP_FAILED);
        EXPECT_EQ(owner.domain->register_memory(memory_, size, PeerRights::kAll, &handle_), UCS_OK);
    }
    ~Vanishing() {
        owner_.domain->deregister_memory(handle_);
        munmap(memory_, size_);
    }
    Iov iov() { return {memory_, size_, handle_}; }
    void vanish() { EXPECT_EQ(mprotect(memory_, size_, PROT_NONE), 0); }

  private:
    Peer& owner_;
    size_t size_;
    void* memory_ = nullptr;
    MemoryHandle* handle_ = nullptr;
};

class TcpUnmappedMemory : public testing::TestWithParam<Settings> {};
INSTANTIATE_TEST_SUITE_P(All, TcpUnmappedMemory, testing::Values(Settings{}, kEncrypted));

TEST_P(TcpUnmappedMemory, BeforeItIsSentFailsItsEndpointAlone) {
    ucs::LogCapture log(ucs::LogLevel::kError);
    TcpWorld world(2, with(GetParam(),
                           {{"TCP_SNDBUF", "4k"}, {"TCP_RCVBUF", "4k"}, {"TCP_CONNECTIONS", "1"}}));
    Endpoint& careless = world.connect(0, 1);
    Endpoint& other = world.connect(0, 1);
    world.expect_traffic(0, 1);
    constexpr size_t kSize = 200 * 1024;
    Buffer source(world.peer(0), kSize, 'x'), target(world.peer(1), kSize, '.');
    Vanishing gone(world.peer(0), kSize);
    const RemoteKey key = target.key_for(world.peer(0));
    world.peer(1).runs = false;
    const Iov first[] = {source.iov(0, kSize)}, second[] = {gone.iov()};
    Waiter sent, lost, last;
    ASSERT_EQ(other.put_zcopy(first, target.address(), key, &sent), UCS_INPROGRESS);
    ASSERT_EQ(careless.put_zcopy(second, target.address(), key, &lost), UCS_INPROGRESS);
    const Iov some[] = {source.iov(0, 8)};
    ASSERT_EQ(other.am_zcopy(3, {}, some, &last), UCS_INPROGRESS);
    gone.vanish();
    world.peer(1).runs = true;
    world.until([&] { return lost.done && last.done; });
    EXPECT_EQ(sent.status, UCS_OK);
    EXPECT_EQ(lost.status, UCS_ERR_IO_ERROR);
    EXPECT_EQ(last.status, UCS_OK);
    EXPECT_EQ(flush(world, other), UCS_OK);
    EXPECT_EQ(target.text(), source.text());
    ASSERT_EQ(world.peer(0).failures.size(), 1u);
    EXPECT_EQ(world.peer(0).failures[0].endpoint, &careless);
    EXPECT_TRUE(world.peer(1).failures.empty());
    EXPECT_TRUE(log.contains("was unmapped"));
    world.expect_traffic(0, 1);
}

TEST_P(TcpUnmappedMemory, WhileItIsSentEndsTheConnection) {
    ucs::LogCapture log(ucs::LogLevel::kError);
    TcpWorld world(2, with(GetParam(),
                           {{"TCP_SNDBUF", "4k"}, {"TCP_RCVBUF", "4k"}, {"TCP_CONNECTIONS", "1"}}));
    Endpoint& careless = world.connect(0, 1);
    world.expect_traffic(0, 1);
    constexpr size_t kSize = 400 * 1024;
    Buffer target(world.peer(1), kSize, '.');
    Vanishing gone(world.peer(0), kSize);
    const Iov from[] = {gone.iov()};
    Waiter lost;
    ASSERT_EQ(careless.put_zcopy(from, target.address(), target.key_for(world.peer(0)), &lost),
              UCS_INPROGRESS);
    gone.vanish();
    world.until([&] { return lost.done; });
    EXPECT_EQ(lost.status, UCS_ERR_IO_ERROR);
    ASSERT_EQ(world.peer(0).failures.size(), 1u);
    world.expect_traffic(0, 1);
}

TEST_P(TcpUnmappedMemory, BeforeAnAnswerComesFailsTheRead) {
    TcpWorld world(2, with(GetParam(), {{"TCP_CONNECTIONS", "1"}, {"TCP_STRIPE_SIZE", "1m"}}));
    Endpoint& careless = world.connect(0, 1);
    world.expect_traffic(0, 1);
    constexpr size_t kSize = 400 * 1024;
    Buffer target(world.peer(1), kSize, '.');
    // What comes with its header is copied: only what follows is received into its place.
    Buffer begin(world.peer(0), 128 * 1024);
    Vanishing gone(world.peer(0), kSize - begin.size());
    const Iov to[] = {begin.iov(0, begin.size()), gone.iov()};
    Waiter lost;
    ASSERT_EQ(careless.get_zcopy(to, target.address(), target.key_for(world.peer(0)), &lost),
              UCS_INPROGRESS);
    gone.vanish();
    world.until([&] { return lost.done; });
    EXPECT_EQ(lost.status, UCS_ERR_IO_ERROR);
    world.expect_traffic(0, 1);
}

TEST(TcpConnections, AnEndpointThatGoesLetsGoOfItsBuffers) {
    TcpWorld world(2, {{"TCP_SNDBUF", "4k"}, {"TCP_RCVBUF", "4k"}, {"TCP_CONNECTIONS", "1"}});
    Endpoint& going = world.connect(0, 1);
    Endpoint& staying = world.connect(0, 1);
    constexpr size_t kSize = 100 * 1024;
    Buffer target(world.peer(1), kSize, '.');
    const RemoteKey key = target.key_for(world.peer(0));
    Waiter put, get;
    {
        Buffer source(world.peer(0), kSize, 'x'), into(world.peer(0), kSize, '-');
        const Iov from[] = {source.iov(0, kSize)}, to[] = {into.iov(0, kSize)};
        ASSERT_EQ(going.put_zcopy(from, target.address(), key, &put), UCS_INPROGRESS);
        ASSERT_EQ(going.get_zcopy(to, target.address(), key, &get), UCS_INPROGRESS);
        world.until([&] { return target.data()[0] == 'x'; });
        world.destroy(going);
        EXPECT_TRUE(put.done && get.done);
        EXPECT_EQ(get.status, UCS_ERR_CANCELED);
    }
    // The frame that was half sent was finished: the stream is whole.
    send_bcopy(world, staying, 1, "whole");
    EXPECT_EQ(flush(world, staying), UCS_OK);
    EXPECT_EQ(world.peer(1).received.size(), 1u);
    EXPECT_TRUE(world.peer(1).failures.empty());
}

TEST(TcpConnections, AnEndpointThatGoesMakesRoomForThoseThatWait) {
    TcpWorld world(2, {{"TCP_SNDBUF", "4k"}, {"TCP_RCVBUF", "4k"}, {"TCP_TX_QUEUE_LEN", "4"}});
    Endpoint& going = world.connect(0, 1);
    Endpoint& staying = world.connect(0, 1);
    world.expect_traffic(0, 1);
    world.peer(1).runs = false;
    Buffer source(world.peer(0), 8000, 'x');
    const Iov from[] = {source.iov(0, source.size())};
    std::deque<Waiter> waiters(1);
    // The sockets take more as long as the system moves what they have.
    for (int refusals = 0; refusals < 100; world.progress()) {
        if (going.am_zcopy(1, {}, from, &waiters.back()) == UCS_ERR_NO_RESOURCE) {
            ++refusals;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            continue;
        }
        waiters.emplace_back();
        refusals = 0;
    }
    static Endpoint* sender;
    sender = &staying;
    static ucs_status_t status;
    status = UCS_INPROGRESS;
    Pending pending([](Pending*) { return status = sender->am_short(1, 7, nullptr, 0); });
    ASSERT_EQ(staying.pending_add(&pending), UCS_OK);
    world.progress_some(100);
    EXPECT_NE(status, UCS_OK);
    world.destroy(going);
    world.until([&] { return status == UCS_OK; });
}

TEST(TcpFlush, BehindMessagesDoesNotNeedThePeersProgress) {
    TcpWorld world(2, {{"TCP_SNDBUF", "64k"}});
    Endpoint& endpoint = world.connect(0, 1);
    world.expect_traffic(0, 1);
    world.peer(1).runs = false;
    send_bcopy(world, endpoint, 1, "the last word");
    EXPECT_EQ(endpoint.flush(nullptr), UCS_OK);
    EXPECT_EQ(world.peer(0).interface->flush(nullptr), UCS_OK);
    // More than the kernel takes: complete once the peer has read enough, and not before.
    const std::string message = pattern(8000, 1);
    size_t sent = 2;
    while (endpoint.flush(nullptr) == UCS_OK) {
        send_bcopy(world, endpoint, 1, message);
        ++sent;
    }
    Waiter flushed;
    ASSERT_EQ(endpoint.flush(&flushed), UCS_INPROGRESS);
    world.progress_some(100);
    EXPECT_FALSE(flushed.done);
    world.peer(1).runs = true;
    world.until([&] { return flushed.done; });
    EXPECT_EQ(flushed.status, UCS_OK);
    world.until([&] { return world.peer(1).received.size() == sent; });
}

TEST(TcpFlush, BehindOneSidedOperationsWaitsForThePeer) {
    TcpWorld world;
    Endpoint& endpoint = world.connect(0, 1);
    Buffer target(world.peer(1), 8);
    const RemoteKey key = target.key_for(world.peer(0));
    world.expect_traffic(0, 1);
    world.peer(1).runs = false;
    EXPECT_EQ(endpoint.put_short("x", 1, target.address(), key), UCS_OK);
    send_bcopy(world, endpoint, 1, "a message");
    Waiter put;
    ASSERT_EQ(endpoint.flush(&put), UCS_INPROGRESS);
    world.progress_some(100);
    EXPECT_FALSE(put.done);
    world.peer(1).runs = true;
    world.until([&] { return put.done; });
    EXPECT_EQ(target.data()[0], 'x');
    EXPECT_EQ(endpoint.atomic(AtomicOp::kAdd, 4, 1, 0, nullptr, target.address(), key, nullptr),
              UCS_OK);
    Waiter atomic;
    EXPECT_EQ(endpoint.flush(&atomic), UCS_INPROGRESS);
    world.until([&] { return atomic.done; });
}

TEST(TcpFlush, BehindWhatThePeerHasAnsweredDoesNotAskAgain) {
    TcpWorld world;
    Endpoint& endpoint = world.connect(0, 1);
    Buffer target(world.peer(1), 64), local(world.peer(0), 64);
    const RemoteKey key = target.key_for(world.peer(0));
    const Iov to[] = {local.iov(0, 64)};
    Waiter get, atomic;
    uint64_t old;
    ASSERT_EQ(endpoint.get_zcopy(to, target.address(), key, &get), UCS_INPROGRESS);
    ASSERT_EQ(endpoint.atomic(AtomicOp::kAdd, 8, 1, 0, &old, target.address(), key, &atomic),
              UCS_INPROGRESS);
    world.until([&] { return get.done && atomic.done; });
    EXPECT_EQ(endpoint.flush(nullptr), UCS_OK);
}

TEST(TcpFlush, AMessageIsSentWhenTheKernelHasIt) {
    TcpWorld world;
    Endpoint& endpoint = world.connect(0, 1);
    // Not while the connection is being made, which takes this end's progress as well.
    EXPECT_EQ(endpoint.am_short(1, 7, nullptr, 0), UCS_ERR_NO_RESOURCE);
    static Endpoint* sender;
    sender = &endpoint;
    static bool sent;
    sent = false;
    Pending pending([](Pending*) {
        const ucs_status_t status = sender->am_short(1, 7, nullptr, 0);
        sent = status == UCS_OK;
        return status;
    });
    ASSERT_EQ(endpoint.pending_add(&pending), UCS_OK);
    world.until([&] { return sent; });
    world.peer(0).runs = false;
    world.until([&] { return world.peer(1).received.size() == 1; });
}

TEST(TcpFlush, WhatWasFlushedArrivesThoughTheSenderGoesAndThePeerStillSends) {
    constexpr size_t kCount = 200;
    const std::string message = pattern(8000, 1);
    size_t received = 0;
    bool has_read = false;
    for (int tries = 0; tries < 20 && !has_read && received <= kCount; ++tries) {
        TcpWorld world(2, {{"TCP_SNDBUF", "4m"}, {"TCP_RCVBUF", "64k"}});
        Endpoint& there = world.connect(0, 1);
        Endpoint& back = world.connect(1, 0);
        world.expect_traffic(0, 1);
        for (size_t i = 0; i < kCount; ++i) send_bcopy(world, there, 1, message);
        ASSERT_EQ(flush(world, there), UCS_OK);
        Peer& receiver = world.peer(1);
        receiver.on_message = [&](const Message&) { back.am_short(1, 0, nullptr, 0); };
        has_read = world.leave_while_read(there, kCount + 1);
        received = receiver.received.size();
        receiver.on_message = nullptr;
    }
    EXPECT_EQ(received, kCount + 1);
}

TEST(TcpSockets, KeepAliveIsSetAsConfigured) {
    tcp::Config config;
    std::string error;
    ucs::config::Source source;
    ASSERT_EQ(source.modify("TCP_KEEPIDLE", "7s", error), UCS_OK);
    ASSERT_EQ(source.modify("TCP_KEEPCNT", "4", error), UCS_OK);
    ASSERT_EQ(source.modify("TCP_KEEPINTVL", "1500ms", error), UCS_OK);
    ASSERT_EQ(tcp::config_table().load(source, config, error), UCS_OK);
    ucs::net::Socket socket;
    ASSERT_EQ(ucs::net::Socket::open(AF_INET, &socket), UCS_OK);
    tcp::tune(socket, config);
    const auto option = [&](int level, int name) {
        int value = -1;
        socklen_t length = sizeof(value);
        EXPECT_EQ(getsockopt(socket.descriptor(), level, name, &value, &length), 0);
        return value;
    };
    EXPECT_EQ(option(SOL_SOCKET, SO_KEEPALIVE), 1);
    EXPECT_EQ(option(IPPROTO_TCP, TCP_KEEPIDLE), 7);
    // Nothing is answered for the whole time-out, not only while the questions are asked.
    EXPECT_EQ(option(IPPROTO_TCP, TCP_KEEPCNT), 7);
    EXPECT_EQ(option(IPPROTO_TCP, TCP_KEEPINTVL), 2);
    // Silence is judged by answers: the kernel would count a full window of a peer that lives.
    EXPECT_EQ(option(IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
    EXPECT_EQ(tcp::user_timeout(config), std::chrono::milliseconds(13000));
    EXPECT_EQ(option(IPPROTO_TCP, TCP_NODELAY), 1);
}

TEST(TcpSockets, WhatIsNotAnsweredIsRepeatedOftenWithinTheTimeOut) {
    constexpr int kRtoMax = 44;  // TCP_RTO_MAX_MS
    const auto repeated = [](const char* time_out) {
        tcp::Config config;
        std::string error;
        ucs::config::Source source;
        EXPECT_EQ(source.modify("TCP_USER_TIMEOUT", time_out, error), UCS_OK);
        EXPECT_EQ(tcp::config_table().load(source, config, error), UCS_OK);
        ucs::net::Socket socket;
        EXPECT_EQ(ucs::net::Socket::open(AF_INET, &socket), UCS_OK);
        int value = 0;
        socklen_t length = sizeof(value);
        tcp::tune(socket, config);
        getsockopt(socket.descriptor(), IPPROTO_TCP, kRtoMax, &value, &length);
        return value;
    };
    const int usual = repeated("inf");
    if (usual == 0) GTEST_SKIP() << "the kernel has no such bound (before 6.15)";
    EXPECT_EQ(usual, 120000);
    EXPECT_EQ(repeated("auto"), 2000);
    EXPECT_EQ(repeated("60s"), 7500);
    EXPECT_EQ(repeated("100ms"), 1000);
}

TEST(TcpNetwork, AddressesShareTheirNetworkPart) {
    const auto v4 = [](uint8_t a, uint8_t b, uint8_t c, uint8_t d) {
        ucs::net::IpAddress ip;
        ip.version = 4;
        ip.bytes = {a, b, c, d};
        return ip;
    };
    EXPECT_TRUE(v4(10, 1, 2, 3).shares_prefix(v4(10, 1, 2, 200), 24));
    EXPECT_FALSE(v4(10, 1, 2, 3).shares_prefix(v4(10, 1, 3, 3), 24));
    EXPECT_TRUE(v4(10, 1, 2, 3).shares_prefix(v4(10, 1, 3, 3), 23));
    EXPECT_FALSE(v4(10, 1, 2, 3).shares_prefix(v4(10, 1, 2, 4), 32));
    EXPECT_TRUE(v4(10, 1, 2, 3).shares_prefix(v4(99, 1, 2, 4), 0));
    EXPECT_FALSE(v4(10, 1, 2, 3).shares_prefix(v4(10, 1, 2, 3), 33));
    ucs::net::IpAddress v6;
    v6.version = 6;
    EXPECT_FALSE(v6.shares_prefix(v4(0, 0, 0, 0), 0));
}

TEST(TcpNetwork, OnlyWhoSharesALoopbackReachesIt) {
    TcpWorld world;
    const auto interface = world.peer(1).interface_address();
    auto device = world.device(1);
    std::vector<std::byte> bytes(tcp::DeviceAddress::kLength);
    device.write(bytes);
    EXPECT_TRUE(world.tcp(0).is_reachable({bytes, interface, {}}));
    ++device.place;
    device.write(bytes);
    EXPECT_FALSE(world.tcp(0).is_reachable({bytes, interface, {}}));
}

}  // namespace
}  // namespace uct::test
