// SPDX-License-Identifier: BSD-3-Clause
#include <cstring>
#include <string>
#include <vector>

#include "unit/uct/chains.h"

// Chains of bulk transfers, over every transport that has them.
namespace uct::test {
namespace {

TEST_P(Chains, PutsAndGetsOfManyPiecesBringEveryByteOnce) {
    constexpr size_t kCount = 200;
    Buffer local(near, kCount * kPiece), remote(far, kCount * kPiece + 1, '.');
    const std::string content = pattern(kCount * kPiece, 3);
    std::memcpy(local.data(), content.data(), content.size());
    const auto list = pieces(local, remote, kCount);
    std::vector<Once> puts(kCount), gets(kCount);
    const size_t put_chains = post_all(true, list, puts);
    world.until([&] { return all_called(puts, put_chains); });
    EXPECT_TRUE(remote.text() == reversed(content, kCount) + ".");

    std::memset(local.data(), 0, local.size());
    const size_t get_chains = post_all(false, list, gets);
    world.until([&] { return all_called(gets, get_chains); });
    EXPECT_TRUE(local.text() == content);
    world.progress_some(50);
    for (size_t i = 0; i < kCount; ++i) {
        EXPECT_EQ(puts[i].calls, i < put_chains ? 1 : 0);
        EXPECT_EQ(gets[i].calls, i < get_chains ? 1 : 0);
        EXPECT_EQ(puts[i].status, UCS_OK);
        EXPECT_EQ(gets[i].status, UCS_OK);
    }
    EXPECT_EQ(flush(world, *endpoint), UCS_OK);
    EXPECT_TRUE(near.failures.empty());
}

TEST_P(Chains, PiecesThatFollowEachOtherAndGapsBetweenThem) {
    constexpr size_t kCount = 40;
    Buffer local(near, kCount * kPiece), remote(far, kCount * kPiece, '.');
    const std::string content = pattern(kCount * kPiece, 5);
    std::memcpy(local.data(), content.data(), content.size());
    std::string expected(kCount * kPiece, '.');
    std::vector<ChainPiece> list;
    for (const ChainPiece& piece : pieces(local, remote, kCount)) {
        const size_t i = list.size() + list.size() / 4;  // every fifth is left out
        if (i >= kCount) break;
        list.push_back(piece);
        list.back().local = local.data() + i * kPiece;
        list.back().remote = remote.address() + i * kPiece;
        expected.replace(i * kPiece, kPiece, content, i * kPiece, kPiece);
    }
    std::vector<Once> puts(kCount), gets(kCount);
    const size_t put_chains = post_all(true, list, puts);
    world.until([&] { return all_called(puts, put_chains); });
    EXPECT_TRUE(remote.text() == expected);
    std::memset(local.data(), '.', local.size());
    const size_t get_chains = post_all(false, list, gets);
    world.until([&] { return all_called(gets, get_chains); });
    EXPECT_TRUE(local.text() == expected);
}

TEST_P(Chains, WithoutRoomNothingIsTakenAndAWaiterIsServedLater) {
    constexpr size_t kCount = 400;
    Buffer local(near, kCount * kPiece), remote(far, kCount * kPiece);
    const auto list = pieces(local, remote, kCount);
    std::vector<Once> completions(kCount);
    size_t chains = 0, done = 0;
    for (;;) {
        const ssize_t taken = post(true, std::span(list).subspan(done), &completions[chains]);
        if (taken == 0) break;
        ASSERT_GT(taken, 0);
        ++chains;
        done += static_cast<size_t>(taken);
        if (done < kCount) continue;
        world.until([&] { return all_called(completions, chains); });
        GTEST_SKIP() << "takes everything";
    }
    static int served;
    served = 0;
    Pending pending([](Pending*) {
        ++served;
        return UCS_OK;
    });
    ASSERT_EQ(endpoint->pending_add(&pending), UCS_OK);
    world.until([&] { return served == 1; });
    world.until([&] { return all_called(completions, chains); });
    EXPECT_EQ(completions[chains].calls, 0);
}

TEST_P(Chains, OtherOperationsGoOnBesideThem) {
    Buffer local(near, 16 * kPiece), remote(far, 16 * kPiece), word(far, 8);
    const RemoteKey key = word.key_for(near);
    std::vector<Once> completions(64);
    for (uint64_t i = 1; i <= 64; ++i) {
        const auto list = pieces(local, remote, 1 + i % 16);
        std::span<const ChainPiece> rest(list);
        Completion& completion = completions[i - 1];
        completion.count = 0;
        while (!rest.empty()) {
            world.until([&] {
                ++completion.count;
                const ssize_t taken = post(i % 2 != 0, rest, &completion);
                if (taken <= 0) --completion.count;
                if (taken > 0) rest = rest.subspan(static_cast<size_t>(taken));
                return taken != 0;
            });
        }
        send_short(world, *endpoint, 1, i, "between");
        ucs_status_t status;
        world.until([&] {
            status = endpoint->put_short(&i, 8, word.address(), key);
            return status != UCS_ERR_NO_RESOURCE;
        });
        EXPECT_EQ(status, UCS_OK);
        if (i % 8 == 0) {
            EXPECT_EQ(endpoint->fence(), UCS_OK);
        }
    }
    EXPECT_EQ(flush(world, *endpoint), UCS_OK);
    world.until([&] { return far.received.size() == 64; });
    uint64_t value;
    std::memcpy(&value, word.data(), 8);
    EXPECT_EQ(value, 64u);
    for (const Once& once : completions) EXPECT_EQ(once.status, UCS_OK);
}

TEST_P(Chains, AWrongKeyFailsItsChainOnce) {
    for (const bool put : {true, false}) {
        Endpoint& other = world.connect(0, 2);
        endpoint = &world.connect(0, 1);
        Buffer local(near, 8 * kPiece, 'l'), remote(far, 8 * kPiece, '.');
        auto list = pieces(local, remote, 8);
        list[3].remote += 8 * kPiece;  // past the end of the registration
        Once once;
        ASSERT_EQ(post(put, list, &once), 8);
        world.until([&] { return once.calls != 0; });
        EXPECT_LT(once.status, 0);
        send_bcopy(world, other, 1, "alive");
        EXPECT_EQ(flush(world, other), UCS_OK);
        world.progress_some(50);
        EXPECT_EQ(once.calls, 1);
    }
}

TEST_P(Chains, APeersDeathFailsEveryChainOnce) {
    Buffer local(near, 4 * kPiece), remote(far, 4 * kPiece);
    const auto list = pieces(local, remote, 4);
    Once puts, gets;
    world.kill(1);
    ASSERT_EQ(post(true, list, &puts), 4);
    ASSERT_EQ(post(false, list, &gets), 4);
    world.until([&] { return puts.calls != 0 && gets.calls != 0; });
    EXPECT_LT(gets.status, 0);
    world.until([&] { return near.failures.size() == 1; });
    world.progress_some(50);
    EXPECT_EQ(puts.calls, 1);
    EXPECT_EQ(gets.calls, 1);
    EXPECT_LT(post(true, list, &puts), 0);
    EXPECT_LT(post(false, list, &puts), 0);
    EXPECT_EQ(puts.calls, 1);
}

TEST_P(Chains, NothingIsWrittenOnceTheEndpointIsDestroyed) {
    Buffer local(near, 8 * kPiece, 'l'), remote(far, 8 * kPiece, '.');
    const auto list = pieces(local, remote, 8);
    for (int steps = 0; steps < 4; ++steps) {
        endpoint = &world.connect(0, 1);
        std::memset(local.data(), 'l', local.size());
        Once once;
        ASSERT_EQ(post(false, list, &once), 8);
        world.progress_some(steps);
        world.destroy(*endpoint);
        EXPECT_LE(once.calls, 1);
        std::memset(local.data(), 'm', local.size());
        world.progress_some(200);
        EXPECT_TRUE(local.text() == std::string(local.size(), 'm'));
        EXPECT_EQ(once.calls, 1);
    }
    // Its interface is as good as before.
    endpoint = &world.connect(0, 1);
    Once once;
    ASSERT_EQ(post(false, list, &once), 8);
    world.until([&] { return once.calls == 1; });
    EXPECT_TRUE(local.text() == std::string(local.size(), '.'));
}

TEST_P(Chains, APeerThatHasCutOffIsNotWrittenToAnyMore) {
    Buffer local(near, 8 * kPiece, 'l'), remote(far, 8 * kPiece, '.');
    Once once;
    ASSERT_EQ(post(true, pieces(local, remote, 8), &once), 8);
    if (is_dedicated(GetParam().transport)) {
        world.destroy(world.other_end(*endpoint));
    } else {
        world.destroy(*endpoint);
        const RemoteAddress sender = world.address_of(0);
        ucs_status_t status = UCS_INPROGRESS;
        world.until([&] {
            status = far.interface->cut_off(sender, 1);
            if (status == UCS_INPROGRESS) world.clock.advance(std::chrono::milliseconds(1));
            return status != UCS_INPROGRESS;
        });
        EXPECT_EQ(status, UCS_OK);
    }
    std::memset(remote.data(), 'm', remote.size());
    world.progress_some(200);
    EXPECT_TRUE(remote.text() == std::string(remote.size(), 'm'));
    EXPECT_LE(once.calls, 1);
}

INSTANTIATE_TEST_SUITE_P(Uct, Chains, testing::ValuesIn(transports_where(has_chains)), case_name);

}  // namespace
}  // namespace uct::test
