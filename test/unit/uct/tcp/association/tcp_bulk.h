// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/resource.h>

#include <cstring>
#include <vector>

#include "unit/uct/tcp/tcp_world.h"

namespace uct::test {

// Over the loopback, where the only other way is the same once more.
inline const Settings kSessions = {{"TCP_FAILOVER", "y"}};
// Small socket buffers: what is under way when a connection breaks is lost.
inline const Settings kNarrow = {
    {"TCP_FAILOVER", "y"}, {"TCP_SNDBUF", "8k"}, {"TCP_RCVBUF", "8k"}, {"TCP_TX_QUEUE_LEN", "8"}};
// The same without sessions: chains alone are given up when their endpoint goes.
inline const Settings kNarrowPlain = {
    {"TCP_FAILOVER", "n"}, {"TCP_SNDBUF", "8k"}, {"TCP_RCVBUF", "8k"}};

inline void break_connections(TcpWorld& world, size_t side, unsigned index, int how = SHUT_RDWR) {
    for (const int socket : world.tcp(side).sockets(index)) shutdown(socket, how);
}

// While it lives, no file descriptor is to be had.
class NoDescriptors {
  public:
    NoDescriptors() {
        EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
        const rlimit none{3, before_.rlim_max};
        EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    }
    ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
    NoDescriptors(const NoDescriptors&) = delete;

  private:
    rlimit before_{};
};

// Chains from the first peer's memory to the second's.
class TcpBulk : public testing::Test {
  protected:
    static constexpr size_t kPiece = 64 * 1024, kPieces = 32;

    TcpBulk(unsigned peers, const Settings& settings)
        : world(peers, settings),
          source(world.peer(0), kPiece * kPieces, 'n'),
          target(world.peer(1), kPiece * kPieces, '.') {}

    std::vector<ChainPiece> pieces() {
        const Iov whole = source.iov(0, source.size());
        const RemoteKey key = target.key_for(world.peer(0));
        std::vector<ChainPiece> list;
        for (size_t i = 0; i < kPieces; ++i) {
            list.push_back({source.data() + i * kPiece, kPiece, whole.memory,
                            target.address() + i * kPiece, key});
        }
        return list;
    }
    // A chain that the peer has begun to read and not finished.
    void start_and_stop_in_the_middle(Endpoint& endpoint, Waiter& waiter) {
        ASSERT_EQ(endpoint.put_chain(pieces(), &waiter), static_cast<ssize_t>(kPieces));
        world.until([&] { return target.data()[0] == 'n'; });
        ASSERT_FALSE(waiter.done);
    }

    void expect_a_chain_to_work(Endpoint& endpoint) {
        std::memset(source.data(), 'z', source.size());
        Waiter waiter;
        ssize_t taken = 0;
        world.until([&] { return (taken = endpoint.put_chain(pieces(), &waiter)) != 0; });
        ASSERT_EQ(taken, static_cast<ssize_t>(kPieces));
        world.until([&] { return waiter.done; });
        EXPECT_EQ(waiter.status, UCS_OK);
        EXPECT_EQ(target.text(), source.text());
    }
    void expect_no_failures() {
        EXPECT_TRUE(world.peer(0).failures.empty());
        EXPECT_TRUE(world.peer(1).failures.empty());
    }

    TcpWorld world;
    Buffer source, target;
};

}  // namespace uct::test
