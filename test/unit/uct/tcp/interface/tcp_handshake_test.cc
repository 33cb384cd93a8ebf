// SPDX-License-Identifier: BSD-3-Clause

// How connections of TCP come to stand: ports to listen on, handshakes that agree, or are late.

#include <algorithm>
#include <chrono>
#include <string>

#include "ucs/log/log.h"
#include "uct/tcp/component.h"
#include "unit/ucs/log/log_capture.h"
#include "unit/uct/tcp/tcp_world.h"

namespace uct::test {
namespace {

TEST(TcpListeners, ATakenPortIsPassedOver) {
    TcpWorld first;
    const uint16_t taken = first.listener(0).port;
    const auto last = static_cast<uint16_t>(std::min(taken + 60, 65535));
    const auto begin = static_cast<uint16_t>(std::min<int>(taken, last - 60));
    const std::string range = std::to_string(begin) + "-" + std::to_string(last);
    TcpWorld second(3, {{"TCP_PORT_RANGE", range}});
    for (size_t i : {0, 1, 2}) {
        EXPECT_NE(second.listener(i).port, taken);
        EXPECT_GE(second.listener(i).port, begin);
        EXPECT_LE(second.listener(i).port, last);
    }
    second.expect_traffic(0, 1);
}

// Whether an interface with that setting cannot be opened, and the error names what `hint` says.
bool is_refused(TcpWorld& world, const char* variable, const std::string& value, const char* hint) {
    ucs::LogCapture log(ucs::LogLevel::kError);
    std::unique_ptr<MemoryDomain> domain;
    EXPECT_EQ(tcp::component().open_domain("lo", &domain), UCS_OK);
    ucs::config::Source source;
    std::string error;
    EXPECT_EQ(source.modify(variable, value, error), UCS_OK) << error;
    ucs::Random random(1);
    AmTable table;
    const InterfaceParams params{world.clock, random, table, [](void*, Endpoint*, ucs_status_t) {},
                                 nullptr,     1,      1,     &source};
    std::unique_ptr<Interface> interface;
    return domain->open_interface("tcp", params, &interface) < 0 && log.contains(hint);
}

TEST(TcpListeners, WithoutAFreePortTheErrorSaysWhatToDo) {
    TcpWorld world(1);
    const std::string taken = std::to_string(world.listener(0).port);
    EXPECT_TRUE(is_refused(world, "TCP_PORT_RANGE", taken, "UCX_TCP_PORT_RANGE"));
}

TEST(TcpListeners, CongestionControlThatTheKernelLacksIsRefused) {
    TcpWorld world(1);
    EXPECT_TRUE(is_refused(world, "TCP_CONGESTION", "none-such", "UCX_TCP_CONGESTION=none-such"));
    EXPECT_TRUE(is_refused(world, "TCP_CONGESTION", "none-such", "tcp_allowed_congestion_control"));
}

TEST(TcpListeners, DifferentMessageSizesAreFoundOutWhenConnecting) {
    ucs::LogCapture log(ucs::LogLevel::kError);
    TcpWorld world;
    RawPeer other(world, 1);
    tcp::wire::Hello hello = other.hello();
    hello.max_frame += 8;
    EXPECT_EQ(other.shake_hands(hello).answer, tcp::wire::Answer::kMismatch);
    world.until([&] { return (other.read(), other.is_closed()); });
    EXPECT_TRUE(log.contains("UCX_TCP_RX_SEG_SIZE"));
}

TEST(TcpHandshakes, APeerThatIsBusyForLongIsNotDead) {
    TcpWorld world(2, {{"TCP_CONN_TIMEOUT", "1s"}});
    Endpoint& endpoint = world.connect(0, 1);
    world.peer(1).runs = false;
    EXPECT_EQ(endpoint.am_short(1, 7, nullptr, 0), UCS_ERR_NO_RESOURCE);
    for (int i = 0; i < 5; ++i) {
        world.progress_some(20);
        world.clock.advance(std::chrono::seconds(2));
    }
    EXPECT_TRUE(world.peer(0).failures.empty());
    world.peer(1).runs = true;
    send_short(world, endpoint, 1, 7, "");
    world.until([&] { return world.peer(1).received.size() == 1; });
}

// More connections stand than one call of progress hears of, and the time for all of them is over,
// as for a process that was stopped.
TEST(TcpHandshake, AConnectionThatStandsIsNotTooLate) {
    constexpr size_t kPeers = 40;
    TcpWorld world(1 + kPeers);
    std::vector<Endpoint*> endpoints;
    for (size_t i = 1; i <= kPeers; ++i) {
        endpoints.push_back(&world.connect(0, i));
        EXPECT_EQ(endpoints.back()->am_short(1, 7, nullptr, 0), UCS_ERR_NO_RESOURCE);
    }
    world.clock.advance(std::chrono::hours(1));
    world.progress();
    ASSERT_TRUE(world.peer(0).failures.empty());
    for (Endpoint* endpoint : endpoints) send_short(world, *endpoint, 1, 7, "");
    EXPECT_TRUE(world.peer(0).failures.empty());
    for (size_t i = 1; i <= kPeers; ++i) {
        world.until([&] { return world.peer(i).received.size() == 1; });
    }
}

}  // namespace
}  // namespace uct::test
