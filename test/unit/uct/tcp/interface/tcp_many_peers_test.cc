// SPDX-License-Identifier: BSD-3-Clause

// What a thousand peers cost in system calls: those that carry messages, and none for each peer
// and tick.

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "unit/uct/tcp/association/tcp_bulk.h"
#include "unit/uct/tcp/system_calls.h"

namespace uct::test {
namespace {

// As many as there are descriptors for, fewer where all takes longer: of each peer its listener,
// epoll set, alarm, news of links, and both ends of a connection.
unsigned peers_that_fit() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    constexpr rlim_t kWanted = 200;
#else
    constexpr rlim_t kWanted = 1000;
#endif
    constexpr rlim_t kEach = 6, kOthers = 100;
    rlimit limit{};
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, kWanted * kEach + kOthers));
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    return static_cast<unsigned>(std::min(kWanted, (limit.rlim_cur - kOthers) / kEach));
}

// Peer 0 is joined to all others. Its system calls are counted, theirs are not.
class TcpManyPeers : public testing::TestWithParam<Settings> {
  protected:
    // The longest between two looks at a connection.
    static constexpr ucs::Duration kTick = std::chrono::milliseconds(25);

    TcpManyPeers() : count_(peers_that_fit()), world_(count_ + 1, GetParam()) {
        system_calls.is_counting = false;
        for (unsigned peer = 1; peer <= count_; ++peer) world_.peer(peer).runs = false;
        for (unsigned peer = 1; peer <= count_; ++peer) {
            to_.push_back(&world_.connect(0, peer));
            from_.push_back(&world_.connect(peer, 0));
            world_.peer(peer).runs = true;
            send_bcopy(world_, *to_.back(), 1, "hello");
            world_.peer(peer).runs = false;
        }
        exchange();
    }
    ~TcpManyPeers() override { system_calls.is_counting = true; }

    void post(const std::vector<Endpoint*>& endpoints) {
        for (Endpoint* const endpoint : endpoints) {
            ASSERT_EQ(endpoint->am_short(1, 0, nullptr, 0), UCS_OK);
        }
    }
    void work(unsigned calls) {
        system_calls.is_counting = true;
        for (unsigned i = 0; i < calls; ++i) world_.peer(0).interface->progress();
        system_calls.is_counting = false;
    }
    // A message of each peer to peer 0, and its answers.
    void exchange() {
        std::vector<Message>& received = world_.peer(0).received;
        received.clear();
        post(from_);
        for (int tries = 0; received.size() < count_ && tries < 10000; ++tries) work(1);
        ASSERT_EQ(received.size(), count_);
        say();
    }
    // A message of peer 0 to each of the others, who read it.
    void say() {
        system_calls.is_counting = true;
        post(to_);
        system_calls.is_counting = false;
        for (unsigned peer = 1; peer <= count_; ++peer) {
            world_.peer(peer).interface->look_soon();
            world_.peer(peer).interface->progress();
        }
    }
    // Time passes, and peer 0 looks after its connections, as it does in every 64th call.
    void tick() {
        world_.clock.advance(kTick);
        world_.peer(0).interface->look_soon();
        work(64);
    }

    const unsigned count_;
    TcpWorld world_;
    std::vector<Endpoint*> to_, from_;
};

TEST_P(TcpManyPeers, CostNothingWhileTheyAreIdle) {
    // That all has arrived is found out.
    world_.until([&] {
        tick();
        return world_.tcp(0).next_deadline() == ucs::kNever;
    });
    system_calls.forget();
    constexpr unsigned kTicks = 400;
    for (unsigned i = 0; i < kTicks; ++i) tick();
    EXPECT_EQ(system_calls.sends + system_calls.questions + system_calls.others, 0u);
    // Looks for whatever may come, whoever may send it.
    EXPECT_LE(system_calls.reads + system_calls.looks, kTicks * 64);
}

TEST_P(TcpManyPeers, CostWhatCarriesTheirMessagesWhileTheyAreBusy) {
    const auto exchanges = [&](unsigned ticks) {
        for (unsigned i = 0; i < ticks; ++i) {
            exchange();
            tick();
        }
    };
    exchanges(10);
    system_calls.forget();
    constexpr unsigned kTicks = 40;
    exchanges(kTicks);
    const unsigned messages = kTicks * count_;
    EXPECT_EQ(system_calls.sends, messages);
    EXPECT_GE(system_calls.reads, messages);
    EXPECT_LE(system_calls.reads, messages + messages / 20);
    EXPECT_EQ(system_calls.questions + system_calls.others, 0u);
    EXPECT_LE(system_calls.looks, kTicks * (64 + count_ / 16));
}

// Of who only listens nothing is heard: the kernel is asked five times a second whether it has
// acknowledged what was sent, by one call or two.
TEST_P(TcpManyPeers, AreAskedAboutFiveTimesASecondWhileTheyOnlyListen) {
    constexpr unsigned kSecond = 40;  // ticks
    const auto second = [&] {
        for (unsigned i = 0; i < kSecond; ++i) {
            say();
            tick();
        }
    };
    second();
    system_calls.forget();
    second();
    EXPECT_EQ(system_calls.sends, kSecond * count_);
    EXPECT_GT(system_calls.questions, 0u);
    EXPECT_LE(system_calls.questions, 12 * count_);
    EXPECT_EQ(system_calls.others, 0u);
}

INSTANTIATE_TEST_SUITE_P(Sessions, TcpManyPeers, testing::Values(kSessions));
INSTANTIATE_TEST_SUITE_P(Plain, TcpManyPeers, testing::Values(Settings{{"TCP_FAILOVER", "n"}}));

}  // namespace
}  // namespace uct::test
