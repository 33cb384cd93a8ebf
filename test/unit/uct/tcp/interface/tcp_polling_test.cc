// SPDX-License-Identifier: BSD-3-Clause

// Which system calls progress makes, when, and for how many bytes: while an answer is due it reads
// the connection that brought the last message, with some time between two looks; else, and if
// that message was long, it asks epoll alone.

#include <algorithm>
#include <atomic>
#include <memory>

#include "unit/uct/tcp/system_calls.h"
#include "unit/uct/tcp/tcp_world.h"

namespace uct::test {
namespace {

std::atomic<unsigned>&reads = system_calls.reads, &looks = system_calls.looks;

class TcpPolling : public testing::Test {
  protected:
    TcpPolling() : there_(world_.connect(0, 1)), back_(world_.connect(1, 0)) {
        say(there_, 8);
        hear(1, 1);
        say(back_, 8);
        hear(0, 1);
    }
    void say(Endpoint& endpoint, size_t length) {
        send_bcopy(world_, endpoint, 1, std::string(length, 'x'));
    }
    // Until a peer has that many messages; the other one does nothing meanwhile.
    void hear(size_t peer, size_t count) {
        const size_t wanted = heard_[peer] += count;
        const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        while (world_.peer(peer).received.size() < wanted &&
               std::chrono::steady_clock::now() < limit) {
            world_.peer(peer).interface->progress();
        }
        ASSERT_EQ(world_.peer(peer).received.size(), wanted);
    }
    // @return how many of nine looks of peer 0, which find nothing, read the connection
    unsigned direct_looks() {
        reads = looks = 0;
        for (int i = 0; i < 9; ++i) {
            world_.clock.advance(std::chrono::microseconds(1));
            EXPECT_EQ(world_.peer(0).interface->progress(), 0u);
        }
        EXPECT_EQ(reads + looks, 9u);
        return reads;
    }
    // @return how often so many calls of peer 0 look, while the clock stands still
    unsigned looks_of(unsigned calls) {
        reads = looks = 0;
        for (unsigned i = 0; i < calls; ++i) EXPECT_EQ(world_.peer(0).interface->progress(), 0u);
        return reads + looks;
    }

    TcpWorld world_;
    Endpoint& there_;
    Endpoint& back_;
    std::array<size_t, 2> heard_{};
};

TEST_F(TcpPolling, WhoHasNothingToExpectAsksEpollAlone) {
    EXPECT_EQ(direct_looks(), 0u);
}

TEST_F(TcpPolling, WhoExpectsAnAnswerReadsAndAsksEpollEveryThirdTime) {
    say(there_, 8);
    EXPECT_EQ(direct_looks(), 6u);
    hear(1, 1);
    say(back_, 8);
    hear(0, 1);
    EXPECT_EQ(direct_looks(), 0u);
}

TEST_F(TcpPolling, WhoseLastAnswerWasLongAsksEpoll) {
    const size_t packet = tcp::longest_segment(copy_of(world_.tcp(0).sockets(0).front()));
    ASSERT_GT(packet, 0u);
    const size_t length = 4096;
    for (size_t i = 0; i <= packet / length; ++i) say(back_, length);
    hear(0, packet / length + 1);
    say(there_, 8);
    EXPECT_EQ(direct_looks(), 0u);
    hear(1, 1);
    say(back_, 8);
    hear(0, 1);
    say(there_, 8);
    EXPECT_EQ(direct_looks(), 6u);
}

// Each look would take the socket from the processor that carries the answer to it.
TEST_F(TcpPolling, WhoExpectsAnAnswerLeavesTimeBetweenLooks) {
    say(there_, 8);
    EXPECT_EQ(looks_of(1), 1u);
    EXPECT_EQ(looks_of(10), 0u);
    world_.clock.advance(std::chrono::nanoseconds(400));
    EXPECT_EQ(looks_of(1), 0u);
    world_.clock.advance(std::chrono::nanoseconds(100));
    EXPECT_EQ(looks_of(2), 1u);
    // A clock that stands still does not stop it.
    EXPECT_EQ(looks_of(64), 4u);
    world_.peer(0).interface->look_soon();
    EXPECT_EQ(looks_of(2), 1u);
}

TEST_F(TcpPolling, WhatComesIsReadWithoutDelay) {
    say(there_, 8);
    EXPECT_EQ(looks_of(2), 1u);
    hear(1, 1);
    say(back_, 8);
    hear(0, 1);
    // No answer is due any more.
    EXPECT_EQ(looks_of(3), 3u);
}

// Of 16 MiB in 16 puts or gets, and as much the other way.
class TcpTurns : public testing::TestWithParam<Settings> {};

TEST_P(TcpTurns, OneProgressMovesNoMoreThanATurn) {
    constexpr size_t kPiece = 1 << 20, kPieces = 16, kTurn = 256 << 10;
    for (const bool is_put : {true, false}) {
        TcpWorld world(2, with({{"TCP_TURN", "256k"}}, GetParam()));
        Endpoint* const endpoints[] = {&world.connect(0, 1), &world.connect(1, 0)};
        const auto text = [](size_t from) { return static_cast<char>('a' + from); };
        std::vector<std::unique_ptr<Buffer>> near, far;
        std::vector<std::unique_ptr<Once>> ends;
        for (size_t from = 0; from < 2; ++from) {
            Peer &here = world.peer(from), &there = world.peer(1 - from);
            near.push_back(std::make_unique<Buffer>(here, kPiece * kPieces, text(from)));
            far.push_back(std::make_unique<Buffer>(there, kPiece * kPieces, '.'));
            const RemoteKey key = far.back()->key_for(here);
            for (size_t at = 0; at < kPiece * kPieces; at += kPiece) {
                const Iov iov = near.back()->iov(at, kPiece);
                ends.push_back(std::make_unique<Once>());
                const uint64_t address = far.back()->address() + at;
                const auto post = [&] {
                    return is_put
                               ? endpoints[from]->put_zcopy({&iov, 1}, address, key, &*ends.back())
                               : endpoints[from]->get_zcopy({&iov, 1}, address, key, &*ends.back());
                };
                ucs_status_t status = post();
                for (int i = 0; status == UCS_ERR_NO_RESOURCE && i < 20000; ++i) {
                    world.progress();
                    status = post();
                }
                ASSERT_TRUE(status == UCS_INPROGRESS || status == UCS_OK);
                if (status == UCS_OK) ends.pop_back();
            }
        }
        size_t most = 0, all = 0;
        const auto is_over = [&] {
            return std::ranges::all_of(ends, [](const auto& end) { return end->calls != 0; });
        };
        for (int calls = 0; !is_over() && calls < 1000000; ++calls) {
            system_calls.moved = 0;
            world.peer(static_cast<size_t>(calls % 2)).interface->progress();
            most = std::max(most, system_calls.moved.load());
            all += system_calls.moved;
        }
        ASSERT_TRUE(is_over());
        for (size_t from = 0; from < 2; ++from) EXPECT_EQ(flush(world, *endpoints[from]), UCS_OK);
        for (size_t from = 0; from < 2; ++from)
            EXPECT_EQ(near[from]->text() == far[from]->text(), true);
        // Headers and the end of a frame come on top.
        EXPECT_LE(most, kTurn + 1024);
        EXPECT_GT(all, 4 * kPiece);
    }
}

INSTANTIATE_TEST_SUITE_P(Settings, TcpTurns,
                         testing::Values(Settings{}, Settings{{"TCP_CONNECTIONS", "4"}},
                                         Settings{{"TCP_SEND_AHEAD", "inf"},
                                                  {"TCP_SNDBUF", "8m"},
                                                  {"TCP_RCVBUF", "8m"}}));

}  // namespace
}  // namespace uct::test
