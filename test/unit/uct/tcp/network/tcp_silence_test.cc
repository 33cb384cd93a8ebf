// SPDX-License-Identifier: BSD-3-Clause

// Who is dead: a host that answers nothing. Who is not: a program that does not read.

#include "uct/tcp/network/options.h"

#include <poll.h>

#include <deque>

#include "unit/uct/tcp/tcp_world.h"

namespace uct::test {
namespace {

using namespace std::chrono_literals;
using tcp::Silence;

constexpr ucs::Duration kSilence = 16s;

// Looked at every so often while the kernel says the same of the packets.
struct Watch {
    Silence silence;
    ucs::Time now = ucs::Time{} + 1h;
    unsigned packets = 0;
    ucs::Duration quiet{};

    bool looks(unsigned new_packets, ucs::Duration new_quiet) {
        packets = new_packets;
        quiet = new_quiet;
        return silence.lasts({.packets = packets, .quiet = quiet}, now, kSilence);
    }
    // Nothing is heard for so long, and this process looks on, or is stopped and looks then.
    bool waits(std::chrono::seconds span) {
        bool lasts = false;
        for (; span > 0s; span -= 1s) lasts = stops(1s);
        return lasts;
    }
    bool stops(ucs::Duration span) {
        now += span;
        return looks(packets, quiet + span);
    }
};

TEST(TcpSilence, LastsIfNothingIsAnsweredForSoLong) {
    Watch watch;
    EXPECT_FALSE(watch.looks(2, 1s));
    EXPECT_FALSE(watch.waits(15s));
    EXPECT_TRUE(watch.waits(1s));
}

TEST(TcpSilence, BeforeTheFirstPacketIsNone) {
    Watch watch;
    // Nothing was sent for an hour, so nothing was heard.
    EXPECT_FALSE(watch.looks(1, 3600s));
    EXPECT_FALSE(watch.waits(8s));
    EXPECT_FALSE(watch.looks(6, watch.quiet));
    EXPECT_FALSE(watch.waits(7s));
    EXPECT_TRUE(watch.waits(1s));
}

TEST(TcpSilence, IsOverWithAnyAnswer) {
    Watch watch;
    EXPECT_FALSE(watch.looks(2, 1s));
    EXPECT_FALSE(watch.waits(15s));
    // A probe was answered between two looks, and the next is under way.
    EXPECT_FALSE(watch.looks(1, 2s));
    EXPECT_FALSE(watch.waits(13s));
    EXPECT_FALSE(watch.looks(2, 15s));
    EXPECT_TRUE(watch.waits(1s));
    EXPECT_FALSE(watch.looks(0, 0s));
    EXPECT_FALSE(watch.looks(2, 16s));
}

TEST(TcpSilence, OnePacketMayBeLost) {
    Watch watch;
    EXPECT_FALSE(watch.looks(1, 1s));
    EXPECT_FALSE(watch.waits(40s));
    EXPECT_TRUE(watch.looks(2, 41s));
}

// A link was lost before this process was stopped and is again when it goes on. In between its
// kernel had nothing to send, so nothing was answered; and it was too busy to look before packets
// were sent again.
TEST(TcpSilence, IsNotCountedWhileThisProcessIsStopped) {
    Watch watch;
    EXPECT_FALSE(watch.looks(2, 1s));
    EXPECT_FALSE(watch.waits(3s));
    EXPECT_FALSE(watch.stops(60s));
    EXPECT_FALSE(watch.waits(4s));
    EXPECT_TRUE(watch.waits(5s));
}

// A receiver that is stopped with a full window for three times the time-out loses nothing.
void expect_stopped_receiver_loses_nothing(const Settings& settings) {
    constexpr auto kTimeout = 400ms;
    Settings all = {{"TCP_USER_TIMEOUT", "400ms"}, {"TCP_SNDBUF", "8k"}, {"TCP_RCVBUF", "8k"}};
    all.insert(all.end(), settings.begin(), settings.end());
    TcpWorld world(2, all);
    world.expect_traffic(0, 1);
    Endpoint& endpoint = world.connect(0, 1);
    world.peer(1).runs = false;
    const size_t before = world.peer(1).received.size();
    std::string message = pattern(4000, 1);
    const Iov whole[] = {{message.data(), message.size(), nullptr}};
    std::deque<Waiter> waiters;
    ucs_status_t status = UCS_OK;
    while (status != UCS_ERR_NO_RESOURCE) {
        waiters.emplace_back();
        status = endpoint.am_zcopy(1, {}, whole, &waiters.back());
        ASSERT_GE(status, UCS_ERR_NO_RESOURCE);
        if (status == UCS_OK) waiters.back().done = true;
    }
    waiters.pop_back();
    // The kernel counts in time of its own.
    const auto end = std::chrono::steady_clock::now() + 3 * kTimeout;
    while (std::chrono::steady_clock::now() < end && world.peer(0).failures.empty()) {
        poll(nullptr, 0, 5);
        world.clock.advance(5ms);
        world.progress_some(64);
    }
    EXPECT_TRUE(world.peer(0).failures.empty());
    world.peer(1).runs = true;
    world.until([&] { return world.peer(1).received.size() == before + waiters.size(); });
    EXPECT_EQ(flush(world, endpoint), UCS_OK);
    for (const Waiter& waiter : waiters) EXPECT_EQ(waiter.status, UCS_OK);
    EXPECT_TRUE(world.peer(0).failures.empty());
    EXPECT_TRUE(world.peer(1).failures.empty());
}

TEST(TcpSilence, OfAProgramThatDoesNotReadIsNoDeath) {
    expect_stopped_receiver_loses_nothing({{"TCP_FAILOVER", "n"}});
}

TEST(TcpSilence, OfAProgramThatDoesNotReadEndsNoSession) {
    expect_stopped_receiver_loses_nothing({{"TCP_FAILOVER", "y"}});
}

}  // namespace
}  // namespace uct::test
