// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "unit/uct/tcp_world.h"

namespace uct::test {

/** Chains from the first peer's memory to the second's. */
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
    /** A chain that the peer has begun to read and not finished. */
    void start_and_stop_in_the_middle(Endpoint& endpoint, Waiter& waiter) {
        ASSERT_EQ(endpoint.put_chain(pieces(), &waiter), static_cast<ssize_t>(kPieces));
        world.until([&] { return target.data()[0] == 'n'; });
        ASSERT_FALSE(waiter.done);
    }

    TcpWorld world;
    Buffer source, target;
};

}  // namespace uct::test
