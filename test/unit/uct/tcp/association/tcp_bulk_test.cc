// SPDX-License-Identifier: BSD-3-Clause

// Bulk connections that end, or cannot be made, while messages go on; flushes behind chains.

#include <sys/ioctl.h>

#include <deque>
#include <string>
#include <vector>

#include "unit/uct/tcp/association/tcp_bulk.h"

namespace uct::test {
namespace {

class TcpBulkFailover : public TcpBulk {
  protected:
    explicit TcpBulkFailover(const Settings& settings = kNarrow) : TcpBulk(2, settings) {}
};

TEST_F(TcpBulkFailover, AChainWhoseConnectionBreaksEndsAloneAndWritesNothingMore) {
    for (const size_t side : {0, 1}) {
        Endpoint& endpoint = world.connect(0, 1);
        world.expect_traffic(0, 1);
        std::memset(source.data(), 'n', source.size());
        std::memset(target.data(), '.', target.size());
        Waiter waiter;
        start_and_stop_in_the_middle(endpoint, waiter);
        break_connections(world, side, 1);
        world.until([&] { return waiter.done; });
        EXPECT_EQ(waiter.status, UCS_ERR_UNREACHABLE);
        std::memset(target.data(), 'm', target.size());
        world.progress_some(200);
        EXPECT_EQ(target.text(), std::string(target.size(), 'm'));
        expect_no_failures();
        expect_a_chain_to_work(endpoint);
        world.expect_traffic(1, 0);
        world.destroy(endpoint);
    }
}

TEST_F(TcpBulkFailover, GetsOfAChainEndToo) {
    Endpoint& back = world.connect(1, 0);
    world.expect_traffic(1, 0);
    const Iov whole = target.iov(0, target.size());
    const RemoteKey key = source.key_for(world.peer(1));
    std::vector<ChainPiece> gets;
    for (size_t i = 0; i < kPieces; ++i) {
        gets.push_back(
            {target.data() + i * kPiece, kPiece, whole.memory, source.address() + i * kPiece, key});
    }
    Waiter waiter;
    ASSERT_EQ(back.get_chain(gets, &waiter), static_cast<ssize_t>(kPieces));
    world.until([&] { return target.data()[0] == 'n'; });
    break_connections(world, 0, 1);
    world.until([&] { return waiter.done; });
    EXPECT_EQ(waiter.status, UCS_ERR_UNREACHABLE);
    Waiter again;
    world.until([&] { return back.get_chain(gets, &again) != 0; });
    world.until([&] { return again.done; });
    EXPECT_EQ(again.status, UCS_OK);
    EXPECT_EQ(target.text(), source.text());
}

// The peer takes its leave on a bulk connection while the messages' one is being made anew.
TEST_F(TcpBulkFailover, AFarewellWhileMessagesMoveIsTheEndOfTheSession) {
    Endpoint& endpoint = world.connect(0, 1);
    Endpoint& back = world.connect(1, 0);
    world.expect_traffic(0, 1);
    expect_a_chain_to_work(endpoint);
    world.peer(1).runs = false;
    break_connections(world, 0, 0);
    world.progress_some(20);
    world.destroy(back);
    world.peer(1).interface.reset();
    // If the new connection is read before the farewell on the other, the next message finds it
    // out.
    world.until([&] {
        return endpoint.am_short(1, 0, nullptr, 0) != UCS_OK && world.peer(0).failures.size() == 1;
    });
    EXPECT_EQ(world.peer(0).failures[0].endpoint, &endpoint);
    EXPECT_LT(endpoint.am_short(1, 0, nullptr, 0), 0);
    EXPECT_NE(endpoint.am_short(1, 0, nullptr, 0), UCS_ERR_NO_RESOURCE);
}

// Without sessions.
class TcpPlainBulk : public TcpBulk {
  protected:
    explicit TcpPlainBulk(const Settings& settings = kNarrowPlain) : TcpBulk(2, settings) {}

    std::vector<ChainPiece> reads(Buffer& from, Buffer& to) {
        const Iov whole = to.iov(0, to.size());
        return {{to.data(), to.size(), whole.memory, from.address(), from.key_for(world.peer(0))}};
    }
};

TEST_F(TcpPlainBulk, MessagesThatWereFlushedSurviveTheChainsOfTheirEndpoint) {
    Endpoint& endpoint = world.connect(0, 1);
    world.expect_traffic(0, 1);
    Waiter waiter;
    start_and_stop_in_the_middle(endpoint, waiter);
    world.peer(1).runs = false;
    for (uint64_t i = 0; i < 10; ++i) send_short(world, endpoint, 2, i, "");
    world.destroy(endpoint);
    EXPECT_TRUE(waiter.done);
    world.peer(1).runs = true;
    world.until([&] { return world.peer(1).received.size() == 11; });
    expect_a_chain_to_work(world.connect(0, 1));
    expect_no_failures();
}

TEST_F(TcpPlainBulk, AConnectionThatCannotBeMadeAnewIsDoneWithout) {
    Endpoint& first = world.connect(0, 1);
    world.expect_traffic(0, 1);
    Waiter waiter;
    start_and_stop_in_the_middle(first, waiter);
    world.destroy(first);
    Endpoint& endpoint = world.connect(0, 1);
    Waiter again;
    {
        const NoDescriptors none;
        ASSERT_EQ(endpoint.put_chain(pieces(), &again), static_cast<ssize_t>(kPieces));
        world.progress_some(5);
    }
    world.until([&] { return again.done; });
    EXPECT_EQ(again.status, UCS_OK);
    expect_no_failures();
    world.expect_traffic(0, 1);
}

TEST_F(TcpPlainBulk, AnEndpointMayGoThatHasWrittenAndNeverSentAMessage) {
    Endpoint& endpoint = world.connect(0, 1);
    const Iov from[] = {source.iov(0, 64)};
    Waiter put, chain;
    ASSERT_EQ(endpoint.put_zcopy(from, target.address(), target.key_for(world.peer(0)), &put),
              UCS_INPROGRESS);
    world.until([&] { return put.done; });
    start_and_stop_in_the_middle(endpoint, chain);
    world.destroy(endpoint);
    EXPECT_TRUE(chain.done);
    expect_a_chain_to_work(world.connect(0, 1));
}

TEST_F(TcpPlainBulk, AFlushThatMovesToTheFirstConnectionWaitsForAllThatWentThere) {
    Endpoint& endpoint = world.connect(0, 1);
    world.expect_traffic(0, 1);
    const RemoteKey key = target.key_for(world.peer(0));
    constexpr size_t kSize = 256 * 1024;
    const Iov from[] = {source.iov(0, kSize)};
    Waiter put, flushed;
    world.peer(1).runs = false;
    ASSERT_EQ(endpoint.put_short("n", 1, target.address(), key), UCS_OK);
    {
        const NoDescriptors none;
        ASSERT_EQ(endpoint.put_zcopy(from, target.address(), key, &put), UCS_INPROGRESS);
        ASSERT_EQ(endpoint.flush(&flushed), UCS_INPROGRESS);
        world.progress_some(5);
    }
    world.peer(1).runs = true;
    world.until([&] { return flushed.done; });
    EXPECT_EQ(flushed.status, UCS_OK);
    EXPECT_EQ(target.text().substr(0, kSize), std::string(kSize, 'n'));
    world.expect_traffic(0, 1);
    expect_no_failures();
}

// Chains that a flush comes behind.
class TcpRiding : public TcpBulk {
  protected:
    explicit TcpRiding(const Settings& settings = {}) : TcpBulk(2, settings) {}

    static constexpr size_t kSmall = 4096;

    // What the kernel has for the peer, of all its connections.
    size_t unread() {
        size_t all = 0;
        for (const unsigned index : {0, 1}) {
            for (const int socket : world.tcp(1).sockets(index)) {
                int bytes = 0;
                EXPECT_EQ(ioctl(socket, FIONREAD, &bytes), 0);
                all += static_cast<size_t>(bytes);
            }
        }
        return all;
    }
    // All connections stand, and the peer reads nothing any more.
    void connect_and_stop(Endpoint& endpoint) {
        world.expect_traffic(0, 1);
        expect_a_chain_to_work(endpoint);
        world.peer(1).runs = false;
    }
    std::vector<ChainPiece> small_piece() {
        return {{source.data(), kSmall, source.iov(0, kSmall).memory, target.address(),
                 target.key_for(world.peer(0))}};
    }
    std::vector<ChainPiece> small_read(Buffer& from, Buffer& to) {
        return {{to.data(), kSmall, to.iov(0, kSmall).memory, from.address(),
                 from.key_for(world.peer(0))}};
    }
};

TEST_F(TcpRiding, AFlushBehindAChainAsksNothingOfItsOwn) {
    Endpoint& endpoint = world.connect(0, 1);
    world.expect_traffic(0, 1);
    expect_a_chain_to_work(endpoint);
    Buffer from(world.peer(1), kSmall, 'g'), to(world.peer(0), kSmall, '.');
    for (const bool reads : {false, true}) {
        SCOPED_TRACE(reads ? "reads" : "writes");
        world.peer(1).runs = false;
        Waiter chain, flushed, again;
        ASSERT_EQ(reads ? endpoint.get_chain(small_read(from, to), &chain)
                        : endpoint.put_chain(small_piece(), &chain),
                  1);
        world.until([&] { return unread() >= (reads ? 32 : kSmall + 48); });
        const size_t before = unread();
        ASSERT_EQ(endpoint.flush(&flushed), UCS_INPROGRESS);
        ASSERT_EQ(endpoint.flush(&again), UCS_INPROGRESS);
        world.progress_some(20);
        EXPECT_EQ(unread(), before);
        EXPECT_FALSE(flushed.done || again.done);
        world.peer(1).runs = true;
        world.until([&] { return chain.done && flushed.done && again.done; });
        EXPECT_EQ(flushed.status, UCS_OK);
        EXPECT_EQ(again.status, UCS_OK);
    }
    EXPECT_EQ(endpoint.flush(nullptr), UCS_OK);
}

// Without sessions, where a put that is of no chain takes the same connection.
class TcpRidingTogether : public TcpRiding {
  protected:
    TcpRidingTogether() : TcpRiding({{"TCP_FAILOVER", "n"}}) {}
};

TEST_F(TcpRidingTogether, AFlushBehindMoreThanTheChainAsks) {
    Endpoint& endpoint = world.connect(0, 1);
    connect_and_stop(endpoint);
    Waiter chain, flushed;
    const Iov later[] = {source.iov(kPiece, kSmall)};
    ASSERT_EQ(endpoint.put_chain(small_piece(), &chain), 1);
    ASSERT_EQ(endpoint.put_zcopy(later, target.address() + kPiece, target.key_for(world.peer(0)),
                                 nullptr),
              UCS_OK);
    world.until([&] { return unread() >= 2 * kSmall + 48 + 32; });
    const size_t before = unread();
    ASSERT_EQ(endpoint.flush(&flushed), UCS_INPROGRESS);
    world.until([&] { return unread() == before + 16; });
    world.peer(1).runs = true;
    world.until([&] { return chain.done && flushed.done; });
    EXPECT_EQ(flushed.status, UCS_OK);
}

// Who made the chain goes; the flush is another's.
TEST_F(TcpRiding, AFlushOutlivesTheEndpointOfTheChain) {
    Endpoint& endpoint = world.connect(0, 1);
    Endpoint& other = world.connect(0, 1);
    connect_and_stop(endpoint);
    Waiter chain, flushed;
    ASSERT_EQ(endpoint.put_chain(small_piece(), &chain), 1);
    ASSERT_EQ(other.flush(&flushed), UCS_INPROGRESS);
    world.destroy(endpoint);
    EXPECT_TRUE(chain.done);
    world.peer(1).runs = true;
    world.until([&] { return flushed.done; });
    EXPECT_EQ(flushed.status, UCS_OK);
    expect_no_failures();
}

// The connection goes: the chain is tried again elsewhere, and covered by that one's flush.
class TcpRidingNarrow : public TcpRiding {
  protected:
    TcpRidingNarrow() : TcpRiding(kNarrow) {}
};

TEST_F(TcpRidingNarrow, AFlushEndsWhenItsChainIsCut) {
    Endpoint& endpoint = world.connect(0, 1);
    world.expect_traffic(0, 1);
    Waiter chain, flushed;
    start_and_stop_in_the_middle(endpoint, chain);
    ASSERT_EQ(endpoint.flush(&flushed), UCS_INPROGRESS);
    break_connections(world, 0, 1);
    world.until([&] { return chain.done && flushed.done; });
    EXPECT_EQ(chain.status, UCS_ERR_UNREACHABLE);
    EXPECT_EQ(flushed.status, UCS_OK);
    expect_a_chain_to_work(endpoint);
    expect_no_failures();
}

// A chain that moves to the first connection takes along who rides on it.
class TcpRidingPlain : public TcpRiding {
  protected:
    TcpRidingPlain() : TcpRiding(kNarrowPlain) {}
};

TEST_F(TcpRidingPlain, AFlushMovesWithItsChain) {
    Endpoint& endpoint = world.connect(0, 1);
    world.expect_traffic(0, 1);
    Waiter chain, flushed;
    const RemoteKey key = target.key_for(world.peer(0));
    world.peer(1).runs = false;
    ASSERT_EQ(endpoint.put_short("l", 1, target.address() + target.size() - 1, key), UCS_OK);
    {
        const NoDescriptors none;
        ASSERT_EQ(endpoint.put_chain(small_piece(), &chain), 1);
        ASSERT_EQ(endpoint.flush(&flushed), UCS_INPROGRESS);
        world.progress_some(5);
    }
    EXPECT_FALSE(flushed.done);
    world.peer(1).runs = true;
    world.until([&] { return chain.done && flushed.done; });
    EXPECT_EQ(chain.status, UCS_OK);
    EXPECT_EQ(flushed.status, UCS_OK);
    EXPECT_EQ(target.text().substr(0, kSmall), std::string(kSmall, 'n'));
    EXPECT_EQ(target.text().back(), 'l');
    expect_no_failures();
    world.expect_traffic(0, 1);
}

class TcpPlainBulkOfTwo : public TcpPlainBulk {
  protected:
    TcpPlainBulkOfTwo()
        : TcpPlainBulk({{"TCP_FAILOVER", "n"},
                        {"TCP_SNDBUF", "8k"},
                        {"TCP_RCVBUF", "8k"},
                        {"TCP_CONNECTIONS", "3"}}) {}
};

TEST_F(TcpPlainBulkOfTwo, GetsThatMoveToTheFirstConnectionAreOfItFromThenOn) {
    Endpoint& endpoint = world.connect(0, 1);
    world.expect_traffic(0, 1);
    Buffer from(world.peer(1), kPiece, 'g'), to(world.peer(0), kPiece, '.');
    Waiter put, get;
    start_and_stop_in_the_middle(endpoint, put);
    world.peer(1).runs = false;
    {
        const NoDescriptors none;
        ASSERT_EQ(endpoint.get_chain(reads(from, to), &get), 1);
        world.progress_some(5);
    }
    break_connections(world, 0, 1);
    world.progress_some(20);
    EXPECT_FALSE(get.done);
    world.peer(1).runs = true;
    world.until([&] { return put.done && get.done; });
    EXPECT_EQ(put.status, UCS_ERR_UNREACHABLE);
    EXPECT_EQ(get.status, UCS_OK);
    EXPECT_EQ(to.text(), from.text());
    expect_no_failures();
    world.expect_traffic(0, 1);
}

TEST(TcpFences, HoldBackWritesOfWhicheverConnection) {
    TcpWorld world(2, {{"TCP_CONNECTIONS", "3"}, {"TCP_FAILOVER", "n"}});
    Endpoint& endpoint = world.connect(0, 1);
    constexpr size_t kSize = 4096;
    Buffer target(world.peer(1), kSize), old(world.peer(0), kSize, 'o'),
        recent(world.peer(0), kSize, 'r');
    const RemoteKey key = target.key_for(world.peer(0));
    const Iov first[] = {old.iov(0, kSize)}, second[] = {recent.iov(0, kSize)};
    std::deque<Waiter> waiters(8);
    // Both connections stand.
    for (Waiter& waiter : waiters) {
        const ucs_status_t status = endpoint.put_zcopy(first, target.address(), key, &waiter);
        if (status == UCS_OK) continue;
        ASSERT_EQ(status, UCS_INPROGRESS);
        world.until([&] { return waiter.done; });
    }
    ASSERT_EQ(flush(world, endpoint), UCS_OK);
    world.peer(1).runs = false;
    ASSERT_EQ(endpoint.put_zcopy(first, target.address(), key, nullptr), UCS_OK);
    ASSERT_EQ(endpoint.fence(), UCS_OK);
    for (int i = 0; i < 8; ++i) {
        EXPECT_EQ(endpoint.put_zcopy(second, target.address(), key, nullptr), UCS_ERR_NO_RESOURCE);
        world.progress();
    }
    world.peer(1).runs = true;
    world.until([&] {
        return endpoint.put_zcopy(second, target.address(), key, nullptr) != UCS_ERR_NO_RESOURCE;
    });
    ASSERT_EQ(flush(world, endpoint), UCS_OK);
    EXPECT_EQ(target.text(), recent.text());
}

}  // namespace
}  // namespace uct::test
