// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstring>

#include "unit/uct/world.h"

namespace uct::test {
namespace {

const Settings kImpatient = {{"RC_TIMEOUT", "10us"},
                             {"RC_RETRY_COUNT", "1"},
                             {"UD_TIMEOUT", "200us"},
                             {"UD_TIMER_TICK", "20us"},
                             {"UD_TX_QUEUE_LEN", "16"}};

class Failures : public testing::TestWithParam<TransportCase> {};

TEST_P(Failures, ADeadPeerFailsItsEndpointOnly) {
    World world(GetParam(), 3, kImpatient);
    Endpoint& doomed = world.connect(0, 1);
    Endpoint& other = world.connect(0, 2);
    send_bcopy(world, doomed, 1, "before");
    EXPECT_EQ(flush(world, doomed), UCS_OK);
    world.kill(1);

    const ucs_status_t expected =
        is_tcp(GetParam().transport) ? UCS_ERR_CONNECTION_RESET : UCS_ERR_ENDPOINT_TIMEOUT;
    Buffer source(world.peer(0), 64);
    const Iov iov[] = {source.iov(0, 64)};
    Waiter zcopy, flushed;
    const ucs_status_t posted = doomed.am_zcopy(1, {}, iov, &zcopy);
    if (is_tcp(GetParam().transport)) {
        if (posted == UCS_OK) zcopy.complete(UCS_ERR_CANCELED);  // the kernel has the bytes
        ASSERT_EQ(doomed.check(&flushed), UCS_INPROGRESS);
    } else {
        ASSERT_EQ(posted, UCS_INPROGRESS);
        ASSERT_EQ(doomed.flush(&flushed), UCS_INPROGRESS);
    }
    send_bcopy(world, other, 2, "alive");
    world.until([&] { return zcopy.done && flushed.done; });
    EXPECT_LT(zcopy.status, 0);
    EXPECT_LT(flushed.status, 0);
    world.until([&] { return !world.peer(0).failures.empty(); });
    EXPECT_EQ(world.peer(0).failures[0].endpoint, &doomed);
    EXPECT_EQ(world.peer(0).failures[0].status, expected);

    // From now on every operation says so, and is not reported again.
    EXPECT_EQ(doomed.am_short(1, 0, nullptr, 0), expected);
    EXPECT_EQ(doomed.flush(nullptr), expected);
    EXPECT_EQ(doomed.check(nullptr), expected);
    Pending pending([](Pending*) { return UCS_OK; });
    EXPECT_EQ(doomed.pending_add(&pending), expected);
    send_bcopy(world, other, 2, "still");
    EXPECT_EQ(flush(world, other), UCS_OK);
    world.until([&] { return world.peer(2).received.size() == 2; });
    EXPECT_EQ(world.peer(0).failures.size(), 1u);
}

TEST_P(Failures, CheckFindsADeadPeer) {
    World world(GetParam(), 2, kImpatient);
    Endpoint& endpoint = world.connect(0, 1);
    Waiter alive;
    ASSERT_EQ(endpoint.check(&alive), UCS_INPROGRESS);
    world.until([&] { return alive.done; });
    EXPECT_EQ(alive.status, UCS_OK);
    world.kill(1);
    world.progress_some(10);
    if (!is_tcp(GetParam().transport)) {  // connections that break say so unasked
        EXPECT_TRUE(world.peer(0).failures.empty());
        EXPECT_EQ(endpoint.check(nullptr), UCS_INPROGRESS);
    }
    world.until([&] { return world.peer(0).failures.size() == 1; });
}

TEST_P(Failures, AWrongKeyFailsTheEndpointThatUsedIt) {
    if (!has_remote_memory(GetParam().transport)) GTEST_SKIP() << "has no remote memory";
    World world(GetParam(), 3, kImpatient);
    Endpoint& endpoint = world.connect(0, 1);
    Endpoint& other = world.connect(0, 2);
    Buffer target(world.peer(1), 64, '.');
    const RemoteKey key = target.key_for(world.peer(0));
    const uint64_t value = 1;
    // Past the end of the registration.
    EXPECT_EQ(endpoint.put_short(&value, 8, target.address() + 60, key), UCS_OK);
    EXPECT_LT(flush(world, endpoint), 0);
    world.until([&] { return world.peer(0).failures.size() == 1; });
    EXPECT_EQ(world.peer(0).failures[0].endpoint, &endpoint);
    EXPECT_EQ(target.text(), std::string(64, '.'));

    Endpoint& second = world.connect(0, 1);
    EXPECT_EQ(second.put_short(&value, 8, target.address(), key + 0x100), UCS_OK);
    EXPECT_LT(flush(world, second), 0);
    send_bcopy(world, other, 1, "fine");
    EXPECT_EQ(flush(world, other), UCS_OK);
    EXPECT_EQ(world.peer(0).failures.size(), 2u);
}

TEST_P(Failures, OutstandingOperationsAllCompleteAndWaitingOnesLeave) {
    Settings settings = kImpatient;
    settings.push_back({"RC_TX_QUEUE_LEN", "16"});
    settings.push_back({"TCP_TX_QUEUE_LEN", "16"});
    World world(GetParam(), 2, settings);
    Endpoint& endpoint = world.connect(0, 1);
    Buffer source(world.peer(0), 64);
    const Iov iov[] = {source.iov(0, 8)};
    world.kill(1);
    Waiter waiters[100];
    unsigned posted = 0;
    for (; posted < 100; ++posted) {
        const ucs_status_t status = endpoint.am_zcopy(1, {}, iov, &waiters[posted]);
        if (status == UCS_ERR_NO_RESOURCE) break;
        ASSERT_EQ(status, UCS_INPROGRESS);
    }
    ASSERT_LT(posted, 100u);
    static int served;
    served = 0;
    Pending pending([](Pending*) {
        ++served;
        return UCS_ERR_NO_RESOURCE;
    });
    ASSERT_EQ(endpoint.pending_add(&pending), UCS_OK);
    world.until([&] { return world.peer(0).failures.size() == 1 && waiters[posted - 1].done; });
    for (unsigned i = 0; i < posted; ++i) {
        EXPECT_TRUE(waiters[i].done) << i;
        EXPECT_LT(waiters[i].status, 0);
    }
    EXPECT_FALSE(pending.is_queued());
}

TEST_P(Failures, AFailedEndpointMayBeDestroyedInItsHandlerAndCompletions) {
    World world(GetParam(), 2, kImpatient);
    Buffer source(world.peer(0), 64);
    const Iov iov[] = {source.iov(0, 8)};
    struct Destroyer : Completion {
        World* world;
        Endpoint* endpoint;
        bool done = false;
    } destroyer;
    destroyer.world = &world;
    destroyer.endpoint = &world.connect(0, 1);
    destroyer.count = 1;
    destroyer.callback = [](Completion* self) {
        auto& mine = *static_cast<Destroyer*>(self);
        mine.done = true;
        mine.world->destroy(*mine.endpoint);
    };
    Waiter later;
    world.kill(1);
    ASSERT_EQ(destroyer.endpoint->am_zcopy(1, {}, iov, &destroyer), UCS_INPROGRESS);
    ASSERT_EQ(destroyer.endpoint->am_zcopy(1, {}, iov, &later), UCS_INPROGRESS);
    world.until([&] { return destroyer.done && later.done; });
    EXPECT_LT(later.status, 0);
    world.progress_some(50);
}

TEST_P(Failures, OperationsOfADestroyedEndpointComplete) {
    World world(GetParam());
    Endpoint& endpoint = world.connect(0, 1);
    Buffer source(world.peer(0), 64);
    const Iov iov[] = {source.iov(0, 8)};
    Waiter waiters[5];
    for (Waiter& waiter : waiters) {
        ASSERT_EQ(endpoint.am_zcopy(1, {}, iov, &waiter), UCS_INPROGRESS);
    }
    world.destroy(endpoint);
    world.until([&] {
        return std::ranges::all_of(waiters, [](const Waiter& waiter) { return waiter.done; });
    });
    EXPECT_TRUE(world.peer(0).failures.empty());
}

INSTANTIATE_TEST_SUITE_P(Uct, Failures, testing::ValuesIn(transports_where(is_network)), case_name);

}  // namespace
}  // namespace uct::test
