// SPDX-License-Identifier: BSD-3-Clause
#include <string>

#include "unit/uct/chains.h"

// Chains over the soft adapter: what it counts, its faults, its links.
namespace uct::test {
namespace {

bool has_soft_chains(const std::string& transport) {
    return has_chains(transport) && is_soft_adapter(transport);
}

class SoftChains : public Chains {};

TEST_P(SoftChains, AChainHasOneDoorbellAndOneCompletion) {
    Buffer local(near, 16 * kPiece), remote(far, 16 * kPiece);
    for (const bool put : {true, false}) {
        const auto before = world.fabric()->counters(0);
        Once once;
        ASSERT_EQ(post(put, pieces(local, remote, 16), &once), 16);
        world.until([&] { return once.calls != 0; });
        const auto after = world.fabric()->counters(0);
        EXPECT_EQ(after.doorbells - before.doorbells, 1u);
        EXPECT_EQ(after.wqes - before.wqes, 16u);
        EXPECT_EQ(after.cqes - before.cqes, 1u);
    }
}

TEST_P(SoftChains, AQueuePairThatFailsAtAnyPieceEndsItsChainsOnce) {
    Buffer local(near, 8 * kPiece, 'l'), remote(far, 8 * kPiece, '.');
    for (unsigned at = 1; at <= 16; ++at) {
        endpoint = &world.connect(0, 1);
        softhca::FaultPlan plan;
        plan.kill_qp_after = at;
        world.fabric()->set_faults(plan);
        const auto list = pieces(local, remote, 8);
        Once first, second;
        ASSERT_EQ(post(true, list, &first), 8);
        ASSERT_EQ(post(false, list, &second), 8);
        world.until([&] { return first.calls != 0 && second.calls != 0; });
        // Those before it may have been acknowledged, or not.
        if (at <= 8) {
            EXPECT_LT(first.status, 0) << at;
        }
        EXPECT_LT(second.status, 0) << at;
        world.progress_some(50);
        EXPECT_EQ(first.calls, 1);
        EXPECT_EQ(second.calls, 1);
        world.fabric()->set_faults({});
    }
}

TEST_P(SoftChains, ALinkIsUpUntilItsPortSaysOtherwise) {
    EXPECT_TRUE(near.interface->is_link_up());
    constexpr int kLook = 1100;  // calls in which the events have been looked at
    for (const bool up : {false, true, false}) {
        world.fabric()->set_link(0, up);
        world.progress_some(kLook);
        EXPECT_EQ(near.interface->is_link_up(), up);
        EXPECT_TRUE(far.interface->is_link_up());
    }
}

TEST_P(SoftChains, ADriverThatRefusesTakesNothing) {
    Buffer local(near, 8 * kPiece, 'l'), remote(far, 8 * kPiece, '.');
    const auto list = pieces(local, remote, 8);
    softhca::FaultPlan plan;
    plan.fail_post = 1;
    world.fabric()->set_faults(plan);
    Once once;
    EXPECT_EQ(post(true, list, &once), UCS_ERR_IO_ERROR);
    EXPECT_EQ(post(true, list, &once), 8);
    world.until([&] { return once.calls == 1; });
    EXPECT_TRUE(remote.text() == std::string(remote.size(), 'l'));
}

TEST_P(SoftChains, AnAccessThatIsRefusedIsTheErrorOfItsChainAlone) {
    for (const bool put : {true, false}) {
        endpoint = &world.connect(0, 1);
        Buffer local(near, 8 * kPiece, 'l'), remote(far, 8 * kPiece, '.');
        const auto good = pieces(local, remote, 8);
        auto wrong = good;
        wrong[3].remote += 8 * kPiece;  // past the end of the registration
        Once refused, behind;
        ASSERT_EQ(post(put, wrong, &refused), 8);
        ASSERT_EQ(post(put, good, &behind), 8);
        world.until([&] { return refused.calls != 0 && behind.calls != 0; });
        EXPECT_EQ(refused.status, UCS_ERR_REJECTED);
        EXPECT_LT(behind.status, 0);
        EXPECT_NE(behind.status, UCS_ERR_REJECTED);
    }
}

TEST_P(SoftChains, CutsOfSeveralEndpointsWaitEachForItsOwnTime) {
    if (is_dedicated(GetParam().transport)) GTEST_SKIP();
    constexpr int kTimeout = 20;
    World slow(GetParam(), 2, {{"RC_TIMEOUT", std::to_string(kTimeout) + "ms"}});
    const RemoteAddress sender = slow.address_of(0);
    const auto wait = [&](uint64_t number, int limit) {
        int waited = 0;
        while (slow.peer(1).interface->cut_off(sender, number) != UCS_OK && waited < limit) {
            slow.clock.advance(std::chrono::milliseconds(1));
            ++waited;
        }
        return waited;
    };
    EXPECT_EQ(wait(1, 1000), kTimeout);
    EXPECT_EQ(wait(2, kTimeout / 2), kTimeout / 2);
    // What the third has sent is younger than what the second had.
    EXPECT_EQ(wait(3, 1000), kTimeout);
}

INSTANTIATE_TEST_SUITE_P(Uct, SoftChains, testing::ValuesIn(transports_where(has_soft_chains)),
                         case_name);

}  // namespace
}  // namespace uct::test
