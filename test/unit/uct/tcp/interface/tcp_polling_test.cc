// SPDX-License-Identifier: BSD-3-Clause

// Which system calls progress makes: while an answer is due it reads the connection that brought
// the last message; else, and if that message was long, it asks epoll alone.

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "unit/uct/tcp/tcp_world.h"

namespace {

unsigned reads, questions;

}  // namespace

// The library's calls of these come here first.
extern "C" ssize_t recv(int socket, void* buffer, size_t length, int flags) {
    ++reads;
    return recvfrom(socket, buffer, length, flags, nullptr, nullptr);
}

extern "C" int epoll_wait(int set, epoll_event* events, int most, int milliseconds) {
    ++questions;
    return static_cast<int>(syscall(SYS_epoll_pwait, set, events, most, milliseconds, nullptr, 8));
}

namespace uct::test {
namespace {

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
    // @return how many of ten looks of peer 0, which find nothing, read the connection
    unsigned direct_looks() {
        reads = questions = 0;
        for (int i = 0; i < 10; ++i) EXPECT_EQ(world_.peer(0).interface->progress(), 0u);
        EXPECT_EQ(reads + questions, 10u);
        return reads;
    }

    TcpWorld world_;
    Endpoint& there_;
    Endpoint& back_;
    std::array<size_t, 2> heard_{};
};

TEST_F(TcpPolling, WhoHasNothingToExpectAsksEpollAlone) {
    EXPECT_EQ(direct_looks(), 0u);
}

TEST_F(TcpPolling, WhoExpectsAnAnswerReadsAndAsksEpollEveryFifthTime) {
    say(there_, 8);
    EXPECT_EQ(direct_looks(), 8u);
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
    EXPECT_EQ(direct_looks(), 8u);
}

}  // namespace
}  // namespace uct::test
