// SPDX-License-Identifier: BSD-3-Clause

// Messages of a burst leave together, but for the first ones, and none needs the program to go on.

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <thread>

#include "uct/tcp/interface/tcp_endpoint.h"
#include "unit/uct/tcp/association/tcp_bulk.h"
#include "unit/uct/tcp/system_calls.h"

namespace uct::test {
namespace {

using Told = SystemCalls::Told;
// What the kernel was told since it was looked at last.
Told& told = system_calls.told;

constexpr unsigned kFirst = 8;  // UCX_TCP_BURST
using namespace std::chrono_literals;

class TcpBursts : public testing::TestWithParam<Settings> {
  protected:
    TcpBursts() { start(GetParam()); }
    void start(const Settings& settings) {
        world_.reset();
        heard_[0] = heard_[1] = 0;
        world_ = std::make_unique<TcpWorld>(2, settings);
        there_ = &world_->connect(0, 1);
        back_ = &world_->connect(1, 0);
        // Each answers the other at once: acknowledgements travel with answers from here on.
        for (int i = 0; i < 40; ++i) {
            say(*there_, 8);
            hear(1, 1);
            say(*back_, 8);
            hear(0, 1);
        }
        told = {};
    }
    Peer& peer(size_t index) { return world_->peer(index); }
    // Without a call of progress.
    void say(Endpoint& endpoint, size_t length) {
        const std::string data(length, 'x');
        const ssize_t sent = endpoint.am_bcopy(
            1,
            [](void* to, void* arg) {
                const auto& from = *static_cast<const std::string*>(arg);
                std::memcpy(to, from.data(), from.size());
                return from.size();
            },
            const_cast<std::string*>(&data));
        if (sent == UCS_ERR_NO_RESOURCE) {  // the connection does not stand yet
            world_->progress();
            say(endpoint, length);
            return;
        }
        ASSERT_EQ(sent, static_cast<ssize_t>(length));
    }
    void burst(unsigned count, size_t length = 16) {
        for (unsigned i = 0; i < count; ++i) say(*there_, length);
    }
    // That peer alone makes progress, until it has so many messages more.
    void hear(size_t index, size_t count) {
        heard_[index] += count;
        if (peer(1 - index).received.empty()) {
            world_->until([&] { return peer(index).received.size() >= heard_[index]; });
        }
        const auto limit = std::chrono::steady_clock::now() + 10s;
        while (peer(index).received.size() < heard_[index] &&
               std::chrono::steady_clock::now() < limit) {
            peer(index).interface->progress();
            world_->clock.advance(1us);
        }
        ASSERT_EQ(peer(index).received.size(), heard_[index]);
    }
    // Packets with data that peer 0 has sent.
    unsigned packets() {
        // As the kernel has it, from 4.6 on; the C library's ends before it does.
        struct {
            tcp_info known;
            uint64_t rates_and_bytes[4];
            uint32_t all_out, all_in, not_sent, least_round_trip, data_in, data_out;
        } info{};
        static_assert(offsetof(decltype(info), data_out) == 156);
        socklen_t length = sizeof(info);
        const int socket = world_->tcp(0).sockets(0).front();
        EXPECT_EQ(getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length), 0);
        EXPECT_EQ(length, sizeof(info));
        return info.data_out;
    }

    std::unique_ptr<TcpWorld> world_;
    Endpoint* there_ = nullptr;
    Endpoint* back_ = nullptr;
    size_t heard_[2] = {0, 0};
};

TEST_P(TcpBursts, WhatIsGatheredIsPushedOnce) {
    burst(64);
    EXPECT_EQ(told, (Told{.to_gather = 1}));
    peer(0).interface->progress();
    EXPECT_EQ(told, (Told{.to_gather = 1, .to_push = 1}));
    peer(0).interface->progress();
    EXPECT_EQ(told.to_push, 1u);
    hear(1, 64);
}

TEST_P(TcpBursts, TheFirstOnesLeaveOneByOne) {
    for (int i = 0; i < 3; ++i) {
        const unsigned before = packets();
        burst(kFirst);
        EXPECT_EQ(packets(), before + kFirst);
        EXPECT_EQ(told, Told{});
        peer(0).interface->progress();
        hear(1, kFirst);
    }
}

// Who has sent may compute for as long as it likes.
TEST_P(TcpBursts, NobodyWaitsForASenderThatMakesNoProgress) {
    constexpr int kRounds = 20;
    // What a kernel waits for an answer to carry an acknowledgement.
    constexpr auto kDelayed = 40ms;
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kRounds; ++i) {
        burst(20);
        hear(1, 20);
        // The next acknowledgement waits for an answer again.
        say(*back_, 8);
        hear(0, 1);
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, kRounds * kDelayed / 2);
}

TEST_P(TcpBursts, WhoFindsNothingMoreAcknowledges) {
    burst(kFirst);
    hear(1, kFirst);
    EXPECT_EQ(told, Told{});
    peer(1).interface->progress();
    EXPECT_EQ(told.to_acknowledge, 0u);
    world_->clock.advance(5us);
    peer(1).interface->progress();
    EXPECT_EQ(told.to_acknowledge, 1u);
    world_->clock.advance(1ms);
    peer(1).interface->progress();
    EXPECT_EQ(told.to_acknowledge, 1u);
}

TEST_P(TcpBursts, AnAnswerCarriesTheAcknowledgement) {
    burst(kFirst);
    hear(1, kFirst);
    say(*back_, 8);
    world_->clock.advance(1ms);
    peer(1).interface->progress();
    EXPECT_EQ(told, Told{});
    hear(0, 1);
}

TEST_P(TcpBursts, FewMessagesAreNotAcknowledged) {
    burst(kFirst - 1);
    hear(1, kFirst - 1);
    world_->clock.advance(1ms);
    peer(1).interface->progress();
    EXPECT_EQ(told, Told{});
}

TEST_P(TcpBursts, WhoGoesToSleepPushesAndAcknowledges) {
    burst(kFirst + 1);
    peer(0).interface->arm();
    EXPECT_EQ(told, (Told{.to_gather = 1, .to_push = 1}));
    hear(1, kFirst + 1);
    told = {};
    peer(1).interface->arm();
    EXPECT_EQ(told, (Told{.to_acknowledge = 1}));
}

TEST_P(TcpBursts, ALongMessagePushesWhatIsGathered) {
    burst(kFirst + 1);
    EXPECT_EQ(told, (Told{.to_gather = 1}));
    say(*there_, 6000);
    EXPECT_EQ(told, (Told{.to_gather = 1, .to_push = 1}));
    burst(kFirst);
    EXPECT_EQ(told, (Told{.to_gather = 1, .to_push = 1}));
    hear(1, 2 * kFirst + 2);
}

TEST_P(TcpBursts, AllArrivesThoughTheSenderGoes) {
    burst(100);
    world_->destroy(*there_);
    peer(0).runs = false;
    std::thread reader([&] { hear(1, 100); });
    peer(0).interface.reset();
    reader.join();
}

TEST_P(TcpBursts, APeerThatDiesInTheMiddleOfOneIsFoundDead) {
    burst(kFirst + 10);
    world_->kill(1);
    burst(10);
    world_->until([&] { return !peer(0).failures.empty(); });
    EXPECT_EQ(peer(0).failures.front().endpoint, there_);
    EXPECT_EQ(peer(0).failures.front().status, UCS_ERR_CONNECTION_RESET);
    EXPECT_EQ(there_->am_short(1, 0, nullptr, 0), UCS_ERR_CONNECTION_RESET);
}

// Messages of all lengths and kinds, small remote writes between them, either end at rest at times.
TEST_P(TcpBursts, OrderIsKept) {
    ucs::Random random(17);
    constexpr uint64_t kCount = 3000;
    Buffer target(peer(1), 64);
    const RemoteKey key = target.key_for(peer(0));
    std::deque<std::string> payloads;
    std::deque<Waiter> waiters;
    uint64_t number = 0;
    const auto send_one = [&] {
        const size_t length = random.below(10) == 0 ? random.below(5000) : random.below(60);
        const std::string payload = pattern(length, static_cast<unsigned>(number));
        if (random.below(20) == 0) {
            payloads.push_back(payload);
            waiters.emplace_back();
            std::byte header[sizeof(number)];
            std::memcpy(header, &number, sizeof(number));
            const Iov iov{payloads.back().data(), payload.size(), nullptr};
            const ucs_status_t status = there_->am_zcopy(1, header, {&iov, 1}, &waiters.back());
            if (status == UCS_ERR_NO_RESOURCE) return false;
        } else if (there_->am_short(1, number, payload.data(),
                                    static_cast<uint32_t>(payload.size())) != UCS_OK) {
            return false;
        }
        ++number;
        return true;
    };
    while (number < kCount) {
        for (auto i = random.below(80); i > 0 && number < kCount && send_one(); --i) {
            if (random.below(30) == 0)
                there_->put_short(&number, sizeof(number), target.address(), key);
        }
        for (const size_t side : {0, 1}) peer(side).runs = random.below(4) != 0;
        world_->progress_some(static_cast<int>(random.below(3)));
        if (random.below(100) == 0 &&
            world_->tcp(0).config().failover == ucs::config::Ternary::kYes)
            break_connections(*world_, random.below(2), 0);
    }
    peer(0).runs = peer(1).runs = true;
    EXPECT_EQ(flush(*world_, *there_), UCS_OK);
    world_->until([&] { return peer(1).received.size() == heard_[1] + kCount; });
    for (uint64_t i = 0; i < kCount; ++i) {
        const Message& message = peer(1).received[heard_[1] + i];
        uint64_t header;
        std::memcpy(&header, message.data.data(), sizeof(header));
        ASSERT_EQ(header, i);
        ASSERT_EQ(message.data.substr(8),
                  pattern(message.data.size() - 8, static_cast<unsigned>(i)));
    }
}

INSTANTIATE_TEST_SUITE_P(Settings, TcpBursts,
                         testing::Values(Settings{}, Settings{{"TCP_FAILOVER", "y"}}, kEncrypted));

class TcpBurstKnobs : public TcpBursts {};

TEST_P(TcpBurstKnobs, NothingIsGathered) {
    // No more than a connection may have under way.
    const unsigned before = packets();
    burst(kFirst + 1);
    EXPECT_EQ(packets(), before + kFirst + 1);
    EXPECT_EQ(told, Told{});
    hear(1, kFirst + 1);
    world_->clock.advance(1ms);
    peer(1).interface->progress();
    EXPECT_EQ(told, Told{});
}

INSTANTIATE_TEST_SUITE_P(Settings, TcpBurstKnobs,
                         testing::Values(Settings{{"TCP_BURST", "inf"}},
                                         with(kEncrypted, {{"TCP_BURST", "inf"}})));

class TcpBurst : public TcpBursts {};

// With Nagle's algorithm for all there is nothing to gather, and nobody switches it off.
TEST_P(TcpBurst, ConnectionsThatDelayStaySo) {
    start({{"TCP_NODELAY", "n"}});
    burst(64);
    peer(0).interface->progress();
    EXPECT_EQ(told, Told{});
    hear(1, 64);
}

TEST_P(TcpBurst, TheVariableSaysHowManyLeaveOneByOne) {
    const unsigned before = packets();
    burst(3);
    EXPECT_EQ(packets(), before + 3);
    EXPECT_EQ(told, Told{});
    burst(5);
    EXPECT_EQ(packets(), before + 3);
    EXPECT_EQ(told, (Told{.to_gather = 1}));
    peer(0).interface->progress();
    EXPECT_EQ(packets(), before + 4);
    hear(1, 8);
}

// As those that know nothing of bursts.
TEST_P(TcpBurst, NothingIsGatheredForAPeerThatDoesNotAcknowledge) {
    static_cast<tcp::TcpEndpoint&>(*there_).association().set_peer_flags(0);
    break_connections(*world_, 0, 0);
    world_->progress();
    say(*there_, 8);
    hear(1, 1);
    told = {};
    burst(64);
    EXPECT_EQ(told, Told{});
    hear(1, 64);
}

INSTANTIATE_TEST_SUITE_P(Settings, TcpBurst,
                         testing::Values(Settings{{"TCP_BURST", "3"}, {"TCP_FAILOVER", "y"}}));

}  // namespace
}  // namespace uct::test
