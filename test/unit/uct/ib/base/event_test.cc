// SPDX-License-Identifier: BSD-3-Clause
#include <poll.h>

#include <array>
#include <cstring>

#include "unit/uct/world.h"

// Events that the adapter tells without being asked; the soft adapter makes them happen.
namespace uct::test {
namespace {

class Events : public testing::TestWithParam<TransportCase> {};

// So many calls that the interfaces have looked for events.
constexpr int kLook = 1100;

const Settings kSmallWaits = {{"RC_TIMEOUT", "100us"}, {"RC_RETRY_COUNT", "7"}};

TEST_P(Events, APortDownForAWhileLosesNothing) {
    World world(GetParam(), 2, kSmallWaits);
    Endpoint& endpoint = world.connect(0, 1);
    for (uint64_t i = 0; i < 20; ++i) send_short(world, endpoint, 1, i, "");
    world.fabric()->set_link(0, false);
    for (uint64_t i = 20; i < 40; ++i) send_short(world, endpoint, 1, i, "");
    // Retransmissions go out meanwhile, and are lost.
    world.fabric()->advance_to(world.fabric()->now() + 300000);
    world.fabric()->set_link(0, true);
    EXPECT_EQ(flush(world, endpoint), UCS_OK);
    world.until([&] { return world.peer(1).received.size() == 40; });
    for (uint64_t i = 0; i < 40; ++i) {
        EXPECT_EQ(std::memcmp(world.peer(1).received[i].data.data(), &i, 8), 0);
    }
    EXPECT_TRUE(world.peer(0).failures.empty());
}

TEST_P(Events, APortDownForGoodFailsItsEndpointsOnly) {
    World world(GetParam(), 4,
                {{"RC_TIMEOUT", "10us"}, {"RC_RETRY_COUNT", "1"}, {"UD_TIMEOUT", "1ms"}});
    Endpoint& doomed = world.connect(0, 1);
    Endpoint& other = world.connect(2, 3);
    world.fabric()->set_link(0, false);
    send_bcopy(world, doomed, 1, "lost");
    EXPECT_LT(flush(world, doomed), 0);
    world.until([&] { return world.peer(0).failures.size() == 1; });
    EXPECT_EQ(world.peer(0).failures[0].endpoint, &doomed);
    send_bcopy(world, other, 1, "arrives");
    EXPECT_EQ(flush(world, other), UCS_OK);
    EXPECT_TRUE(world.peer(2).failures.empty());
}

TEST_P(Events, APortDownLeavesTheOtherPortsOfItsDeviceAlone) {
    TransportCase which = GetParam();
    which.ports = 2;
    World world(which, 4, {{"RC_TIMEOUT", "10us"}, {"RC_RETRY_COUNT", "1"}, {"UD_TIMEOUT", "1ms"}});
    Endpoint& doomed = world.connect(0, 2);
    Endpoint& other = world.connect(1, 3);
    Endpoint& across = world.connect(1, 2);
    world.fabric()->set_port(0, 0, false);
    send_bcopy(world, doomed, 1, "lost");
    EXPECT_LT(flush(world, doomed), 0);
    world.until([&] { return world.peer(0).failures.size() == 1; });
    EXPECT_EQ(world.peer(0).failures[0].endpoint, &doomed);
    for (Endpoint* endpoint : {&other, &across}) {
        send_bcopy(world, *endpoint, 1, "arrives");
        EXPECT_EQ(flush(world, *endpoint), UCS_OK);
    }
    world.progress_some(kLook);
    EXPECT_FALSE(world.peer(0).interface->is_link_up());
    EXPECT_TRUE(world.peer(1).interface->is_link_up());
    EXPECT_TRUE(world.peer(1).failures.empty());
}

TEST_P(Events, AnAdapterThatIsGoneFailsAllItsEndpoints) {
    World world(GetParam(), 3, kSmallWaits);
    Endpoint& first = world.connect(0, 1);
    Endpoint& second = world.connect(0, 2);
    Endpoint& other = world.connect(1, 2);
    world.fabric()->fail_devices(0);
    Buffer source(world.peer(0), 64);
    const Iov iov[] = {source.iov(0, 8)};
    std::array<Waiter, 2> waiters;
    EXPECT_EQ(first.am_zcopy(1, {}, iov, &waiters[0]), UCS_INPROGRESS);
    EXPECT_EQ(second.am_zcopy(1, {}, iov, &waiters[1]), UCS_INPROGRESS);
    world.progress_some(kLook);
    EXPECT_EQ(world.peer(0).failures.size(), 2u);
    for (Waiter& waiter : waiters) {
        EXPECT_TRUE(waiter.done);
        EXPECT_LT(waiter.status, 0);
    }
    send_bcopy(world, other, 1, "lives");
    EXPECT_EQ(flush(world, other), UCS_OK);
}

TEST_P(Events, AWaitingWorkerIsWokenByAnEvent) {
    World world(GetParam(), 2, kSmallWaits);
    world.connect(0, 1);
    Interface& interface = *world.peer(0).interface;
    const auto readable = [&] {
        pollfd descriptor{interface.event_fd(), POLLIN, 0};
        return poll(&descriptor, 1, 0) == 1;
    };
    world.peer(0).runs = false;
    while (interface.arm() == UCS_ERR_BUSY) interface.progress();
    EXPECT_FALSE(readable());
    world.fabric()->fail_devices(0);
    EXPECT_TRUE(readable());
    EXPECT_EQ(interface.arm(), UCS_ERR_BUSY);
    interface.progress();  // at once, without more calls; who has nothing to lose hears nothing
    EXPECT_EQ(world.peer(0).failures.size(), is_dc(GetParam().transport) ? 0u : 1u);
    EXPECT_EQ(interface.arm(), UCS_OK);
}

class QueuePairEvents : public Events {};

// The queue pair's number, in the endpoint address of rc.
uint32_t number_of(Endpoint& endpoint) {
    std::array<std::byte, 8> address;
    EXPECT_EQ(endpoint.get_address(address), UCS_OK);
    return std::to_integer<uint32_t>(address[1]) | std::to_integer<uint32_t>(address[2]) << 8 |
           std::to_integer<uint32_t>(address[3]) << 16;
}

TEST_P(QueuePairEvents, AnIdleEndpointLearnsThatItsQueuePairFailed) {
    World world(GetParam(), 2, kSmallWaits);
    Endpoint& endpoint = world.connect(0, 1);
    Endpoint& other = world.connect(0, 1);
    send_bcopy(world, endpoint, 1, "before");
    EXPECT_EQ(flush(world, endpoint), UCS_OK);
    world.fabric()->kill_qp(number_of(endpoint));
    world.progress_some(kLook);
    ASSERT_EQ(world.peer(0).failures.size(), 1u);
    EXPECT_EQ(world.peer(0).failures[0].endpoint, &endpoint);
    EXPECT_LT(endpoint.am_short(1, 0, nullptr, 0), 0);
    send_bcopy(world, other, 1, "after");
    EXPECT_EQ(flush(world, other), UCS_OK);
}

TEST_P(QueuePairEvents, TheTargetOfAWrongAccessLearnsOfIt) {
    World world(GetParam(), 2, kSmallWaits);
    Endpoint& endpoint = world.connect(0, 1);
    Endpoint& target = world.other_end(endpoint);
    Buffer buffer(world.peer(1), 64);
    const uint64_t value = 1;
    EXPECT_EQ(endpoint.put_short(&value, 8, buffer.address() + 60, buffer.key_for(world.peer(0))),
              UCS_OK);
    EXPECT_LT(flush(world, endpoint), 0);
    world.progress_some(kLook);
    ASSERT_EQ(world.peer(1).failures.size(), 1u);
    EXPECT_EQ(world.peer(1).failures[0].endpoint, &target);
    EXPECT_EQ(world.peer(1).failures[0].status, UCS_ERR_CONNECTION_RESET);
}

bool is_rc(const std::string& transport) {
    return transport == "rc_mlx5" || transport == "rc_verbs";
}

INSTANTIATE_TEST_SUITE_P(Uct, Events, testing::ValuesIn(transports_where(is_soft_adapter)),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Uct, QueuePairEvents, testing::ValuesIn(transports_where(is_rc)),
                         case_name);

}  // namespace
}  // namespace uct::test
