// SPDX-License-Identifier: BSD-3-Clause

// Settings of TCP do what they say.

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "ucs/log/log.h"
#include "uct/tcp/component.h"
#include "uct/tcp/interface/tcp_endpoint.h"
#include "unit/uct/tcp/tcp_world.h"

namespace uct::test {
namespace {

tcp::Config config_with(const Settings& settings) {
    ucs::config::Source source;
    std::string error;
    for (const auto& [name, value] : settings) {
        EXPECT_EQ(source.modify(name, value, error), UCS_OK) << error;
    }
    tcp::Config config;
    EXPECT_EQ(tcp::config_table().load(source, config, error), UCS_OK) << error;
    return config;
}

TEST(TcpKnobs, SendvThreshSaysFromWhichSizeOnMessagesAreNotCopied) {
    TcpWorld world(2, {{"TCP_SENDV_THRESH", "100"}});
    Endpoint& endpoint = world.connect(0, 1);
    world.expect_traffic(0, 1);
    const auto copies = [&](size_t length) {
        const std::string payload = pattern(length, 5);
        std::byte* staging =
            static_cast<tcp::TcpEndpoint&>(endpoint).association().buffers().staging.get();
        std::memset(staging, 0, 1024);
        EXPECT_EQ(endpoint.am_short(1, 0, payload.data(), static_cast<uint32_t>(length)), UCS_OK);
        const size_t before = world.peer(1).received.size();
        world.until([&] { return world.peer(1).received.size() == before + 1; });
        EXPECT_EQ(world.peer(1).received.back().data.substr(8), payload);
        const auto* start = reinterpret_cast<const char*>(staging);
        return std::string(start, 1024).find(payload) != std::string::npos;
    };
    EXPECT_TRUE(copies(99));
    EXPECT_FALSE(copies(100));
}

TEST(TcpKnobs, PreferDefaultPutsInterfacesOfOtherRoutesBehind) {
    for (const bool prefers : {false, true}) {
        TcpWorld world(1, {{"TCP_PREFER_DEFAULT", prefers ? "y" : "n"}});
        ASSERT_FALSE(world.tcp(0).device().default_route);
        const double own = world.tcp(0).device().latency;
        const double told = world.peer(0).interface->attributes().latency.base;
        EXPECT_EQ(told > own, prefers);
        EXPECT_LT(told, own + 1e-6);
    }
}

TEST(TcpKnobs, MaxNumEpsIsWhatSelectionIsTold) {
    TcpWorld world(1, {{"TCP_MAX_NUM_EPS", "7"}});
    EXPECT_EQ(world.peer(0).interface->attributes().max_endpoints, 7u);
}

TEST(TcpKnobs, MaxIovIsHowManyPiecesAnOperationMayHave) {
    for (const size_t most : {1, 16}) {
        TcpWorld world(2, {{"TCP_MAX_IOV", std::to_string(most)}});
        const auto& attributes = world.peer(0).interface->attributes();
        EXPECT_EQ(attributes.am.max_iov, most);
        EXPECT_EQ(attributes.put.max_iov, most);
        EXPECT_EQ(attributes.get.max_iov, most);
        Endpoint& endpoint = world.connect(0, 1);
        world.expect_traffic(0, 1);
        std::string message = pattern(most * 3, 2);
        std::vector<Iov> pieces;
        for (size_t i = 0; i < most; ++i) pieces.push_back({message.data() + i * 3, 3, nullptr});
        Waiter waiter;
        ASSERT_GE(endpoint.am_zcopy(1, {}, pieces, &waiter), UCS_OK);
        world.until([&] { return world.peer(1).received.size() == 2; });
        EXPECT_EQ(world.peer(1).received[1].data, message);
    }
}

// What arrays and frames have room for.
TEST(TcpKnobs, ValuesAreBroughtToTheirBounds) {
    EXPECT_EQ(config_with({{"TCP_MAX_IOV", "17"}}).max_iov, tcp::ReferringOutput::kMaxPieces);
    EXPECT_EQ(config_with({{"TCP_MAX_IOV", "0"}}).max_iov, 1u);
    EXPECT_EQ(config_with({{"TCP_CONNECTIONS", "9"}}).connections, tcp::wire::kMaxConnections);
    EXPECT_EQ(config_with({{"TCP_MAX_HANDSHAKES", "0"}}).max_handshakes, 1u);
    EXPECT_EQ(config_with({{"TCP_STRIPE_SIZE", "1"}}).stripe_size, 1024u);
}

// Several connections for large transfers share a message chain by chain.
TEST(TcpKnobs, AChainIsOneOperationWhereOneConnectionIsForThem) {
    for (const unsigned connections : {1u, 2u, 3u}) {
        TcpWorld world(1, {{"TCP_CONNECTIONS", std::to_string(connections)}});
        const uint32_t capabilities = world.peer(0).interface->attributes().capabilities;
        EXPECT_EQ((capabilities & kJoinedChain) != 0, connections <= 2);
    }
}

TEST(TcpKnobs, AfPrioChoosesAmongTheAddressesOfAnInterface) {
    const auto versions = [](const std::string& priority) {
        std::vector<uint8_t> found;
        for (const auto& device :
             tcp::network_devices(config_with({{"TCP_AF_PRIO", priority}}).af_prio)) {
            if (device.loopback) found.push_back(device.address.version);
        }
        return found;
    };
    EXPECT_EQ(versions("inet"), std::vector<uint8_t>{4});
    EXPECT_EQ(versions("inet,inet6"), std::vector<uint8_t>{4});
    const bool has_inet6 = !versions("inet6").empty();
    // A family that is not named is not used at all.
    EXPECT_EQ(versions("inet6"), std::vector<uint8_t>(has_inet6 ? 1 : 0, 6));
    EXPECT_EQ(versions("inet6,inet"), std::vector<uint8_t>{uint8_t(has_inet6 ? 6 : 4)});
}

// A listener that takes no further connection: the kernel leaves the next ones waiting.
class FullListener {
  public:
    explicit FullListener(const ucs::net::IpAddress& ip) {
        EXPECT_EQ(ucs::net::Socket::open(AF_INET, &socket_), UCS_OK);
        EXPECT_EQ(socket_.bind({ip, 0, 0}), UCS_OK);
        EXPECT_EQ(listen(socket_.descriptor(), 0), 0);
        address = socket_.local();
        for (int i = 0; i < 4; ++i) {
            EXPECT_EQ(ucs::net::Socket::open(AF_INET, &waiting_.emplace_back()), UCS_OK);
            EXPECT_EQ(waiting_.back().connect(address), UCS_INPROGRESS);
        }
    }
    ucs::net::SocketAddress address;

  private:
    ucs::net::Socket socket_;
    std::deque<ucs::net::Socket> waiting_;
};

TEST(TcpKnobs, ConnNbSaysWhetherTheCallWaits) {
    TcpWorld world(1);
    const FullListener full(world.device(0).ip);
    const auto is_made = [](const ucs::net::Socket& made) { return made.peer().is_known(); };
    for (const bool waits : {false, true}) {
        const auto config = config_with(
            {{"TCP_CONN_NB", waits ? "n" : "y"}, {"TCP_CONN_TIMEOUT", waits ? "30ms" : "10s"}});
        const auto start = std::chrono::steady_clock::now();
        int cause = 0;
        const ucs::net::Socket made =
            tcp::start_connect(world.tcp(0).device(), full.address, false, config, &cause);
        const auto span = std::chrono::steady_clock::now() - start;
        ASSERT_TRUE(made);
        EXPECT_FALSE(is_made(made));
        if (waits) {
            EXPECT_GE(span, std::chrono::milliseconds(30));
        } else {
            EXPECT_LT(span, std::chrono::seconds(10));
        }
    }
    // Where somebody listens, the connection is there when the call returns.
    const ucs::net::SocketAddress open(world.device(0).ip, world.listener(0).port, 0);
    int cause = 0;
    const ucs::net::Socket made = tcp::start_connect(world.tcp(0).device(), open, false,
                                                     config_with({{"TCP_CONN_NB", "n"}}), &cause);
    ASSERT_TRUE(made);
    EXPECT_TRUE(is_made(made));
}

TEST(TcpKnobs, RxSegSizeMayBeAnyNumber) {
    TcpWorld world(2, {{"TCP_RX_SEG_SIZE", "10005"}, {"TCP_TX_SEG_SIZE", "1k"}});
    Endpoint& endpoint = world.connect(0, 1);
    const size_t longest = world.tcp(0).max_message();
    EXPECT_GE(longest + sizeof(tcp::wire::FrameHeader), 10005u);
    for (size_t shorter = 0; shorter < 16; ++shorter) {
        std::string message = pattern(longest - shorter, 3);
        const Iov whole[] = {{message.data(), message.size(), nullptr}};
        Waiter waiter;
        ASSERT_GE(endpoint.am_zcopy(1, {}, whole, &waiter), UCS_OK);
        world.until([&] { return world.peer(1).received.size() == shorter + 1; });
        ASSERT_EQ(world.peer(1).received.size(), shorter + 1);
        EXPECT_EQ(world.peer(1).received.back().data, message);
    }
    EXPECT_TRUE(world.peer(0).failures.empty());
}

TEST(TcpKnobs, TxQueueLenMayBeLargerThanAnyPeersQuestions) {
    TcpWorld world(2, {{"TCP_TX_QUEUE_LEN", "6000"}, {"TCP_SNDBUF", "8k"}, {"TCP_RCVBUF", "8k"}});
    Endpoint& endpoint = world.connect(0, 1);
    Endpoint& back = world.connect(1, 0);
    world.expect_traffic(0, 1);
    Buffer target(world.peer(0), 8);
    // The peer asks something, and then nothing more is read.
    Waiter asked;
    ASSERT_EQ(back.put_short("x", 1, target.address(), target.key_for(world.peer(1))), UCS_OK);
    ASSERT_EQ(back.flush(&asked), UCS_INPROGRESS);
    const std::string message = pattern(64, 1);
    std::deque<Waiter> waiters;
    const Iov whole[] = {{const_cast<char*>(message.data()), message.size(), nullptr}};
    ucs_status_t status = UCS_OK;
    while (status != UCS_ERR_NO_RESOURCE) {
        waiters.emplace_back();
        status = endpoint.am_zcopy(1, {}, whole, &waiters.back());
        ASSERT_GE(status, UCS_ERR_NO_RESOURCE);
        if (status == UCS_OK) waiters.back().done = true;
    }
    waiters.pop_back();
    EXPECT_GT(waiters.size(), 6000u);
    world.until([&] { return asked.done && waiters.back().done; });
    EXPECT_EQ(asked.status, UCS_OK);
    EXPECT_EQ(target.data()[0], 'x');
    EXPECT_TRUE(world.peer(0).failures.empty());
    EXPECT_TRUE(world.peer(1).failures.empty());
}

// What the kernel takes of a large write while the peer reads nothing.
size_t taken_ahead(const std::string& setting) {
    constexpr size_t kSize = 1 << 20;
    TcpWorld world(2, {{"TCP_SEND_AHEAD", setting},
                       {"TCP_SNDBUF", "1m"},
                       {"TCP_RCVBUF", "8k"},
                       {"TCP_FAILOVER", "n"}});
    Endpoint& endpoint = world.connect(0, 1);
    Buffer source(world.peer(0), kSize, 'n'), target(world.peer(1), kSize, '.');
    const RemoteKey key = target.key_for(world.peer(0));
    const Iov little[] = {source.iov(0, 64)}, all[] = {source.iov(0, kSize)};
    Waiter waiter;
    EXPECT_GE(endpoint.put_zcopy(little, target.address(), key, nullptr), UCS_OK);
    EXPECT_EQ(flush(world, endpoint), UCS_OK);
    EXPECT_GE(endpoint.put_zcopy(all, target.address(), key, &waiter), UCS_OK);
    for (int i = 0; i < 100; ++i) world.peer(0).interface->progress();
    const auto sockets = world.tcp(0).sockets(1);
    const size_t taken = sockets.empty() ? 0 : tcp::under_way(copy_of(sockets[0]));
    EXPECT_EQ(flush(world, endpoint), UCS_OK);
    EXPECT_EQ(target.text(), source.text());
    return taken;
}

TEST(TcpKnobs, SendAheadBoundsWhatTheKernelTakes) {
    const size_t few = taken_ahead("16k"), many = taken_ahead("inf");
    EXPECT_GT(few, 0u);
    EXPECT_LT(few, 200u << 10);
    EXPECT_GT(many, few + (100u << 10));
    // Both ends are of this host.
    EXPECT_GT(taken_ahead("auto"), many / 2);
    EXPECT_LT(taken_ahead("128k"), many / 2);
}

// What the connections of two peers use, each name once: both ends of all, over the loopback.
std::set<std::string> congestion_controls(const std::string& setting) {
    TcpWorld world(2, {{"TCP_CONGESTION", setting}});
    world.connect(0, 1);
    world.expect_traffic(0, 1);
    std::set<std::string> names;
    for (const size_t side : {0, 1}) {
        for (const int socket : world.tcp(side).sockets(1 - side)) {
            char name[16] = {};
            socklen_t length = sizeof(name);
            EXPECT_EQ(getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name, &length), 0);
            names.insert(name);
        }
    }
    return names;
}

TEST(TcpKnobs, CongestionControlIsRenoWithinAHost) {
    std::string systems;
    std::ifstream("/proc/sys/net/ipv4/tcp_congestion_control") >> systems;
    EXPECT_EQ(congestion_controls("auto"), std::set<std::string>{"reno"});
    EXPECT_EQ(congestion_controls("system"), std::set<std::string>{systems});
    EXPECT_EQ(congestion_controls(systems), std::set<std::string>{systems});
}

// Both ends, who connects and who is connected to.
TEST(TcpKnobs, BusyPollIsAnOptionOfConnections) {
    const auto value_with = [](const Settings& settings) {
        TcpWorld world(2, settings);
        Endpoint& endpoint = world.connect(0, 1);
        send_bcopy(world, endpoint, 1, "hello");
        world.until([&] { return world.peer(1).received.size() == 1; });
        std::vector<int> values;
        for (size_t peer = 0; peer < 2; ++peer) {
            for (const int descriptor : world.tcp(peer).sockets(0)) {
                int value = -1;
                socklen_t length = sizeof(value);
                EXPECT_EQ(getsockopt(descriptor, SOL_SOCKET, SO_BUSY_POLL, &value, &length), 0);
                values.push_back(value);
            }
        }
        EXPECT_EQ(values.size(), 2u);
        return values;
    };
    const std::vector<int> usual = value_with({});
    const std::vector<int> set = value_with({{"TCP_BUSY_POLL", "37"}});
    if (set == usual) GTEST_SKIP() << "needs CAP_NET_ADMIN, and a kernel that can";
    EXPECT_EQ(set, std::vector<int>({37, 37}));
}

}  // namespace
}  // namespace uct::test
