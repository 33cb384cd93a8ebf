// SPDX-License-Identifier: BSD-3-Clause
#include <poll.h>

#include <algorithm>
#include <cstring>

#include "unit/uct/world.h"

namespace uct::test {
namespace {

class Connections : public testing::TestWithParam<TransportCase> {};

TEST_P(Connections, AttributesAreSound) {
    World world(GetParam());
    const InterfaceAttributes& attributes = world.peer(0).interface->attributes();
    EXPECT_EQ(attributes.transport, GetParam().transport);
    EXPECT_FALSE(attributes.device.empty());
    EXPECT_EQ(attributes.reach == Reach::kEndpoint, is_dedicated(GetParam().transport));
    EXPECT_EQ(attributes.interface_address_length == 0, is_dedicated(GetParam().transport));
    const bool is_connectable = (attributes.capabilities & kConnectable) != 0;
    EXPECT_EQ(attributes.endpoint_address_length != 0,
              is_dedicated(GetParam().transport) || is_connectable);
    EXPECT_GT(attributes.bandwidth, 1e8);
    EXPECT_GE(attributes.latency.base, 0);
    EXPECT_GT(attributes.am.max_bcopy, attributes.am.max_short);
    if (!has_remote_memory(GetParam().transport)) return;
    const auto needed =
        static_cast<uint8_t>(AtomicOp::kAdd) | static_cast<uint8_t>(AtomicOp::kCompareSwap);
    EXPECT_EQ(attributes.atomic64_ops & needed, needed);
}

TEST_P(Connections, AnEndpointKnowsItsPeer) {
    World world(GetParam(), 3);
    Endpoint& endpoint = world.connect(0, 1);
    if (!is_dedicated(GetParam().transport)) {
        EXPECT_TRUE(endpoint.is_connected(world.address_of(1)));
        if (reaches_others(GetParam().transport)) {
            EXPECT_FALSE(endpoint.is_connected(world.address_of(2)));
        }
        EXPECT_FALSE(endpoint.is_connected({}));
        return;
    }
    Endpoint& second = world.connect(0, 1);
    const size_t length = world.peer(0).interface->attributes().endpoint_address_length;
    std::vector<std::byte> first_far(length), second_far(length);
    ASSERT_EQ(world.other_end(endpoint).get_address(first_far), UCS_OK);
    ASSERT_EQ(world.other_end(second).get_address(second_far), UCS_OK);
    RemoteAddress remote = world.address_of(1);
    remote.endpoint = first_far;
    EXPECT_TRUE(endpoint.is_connected(remote));
    EXPECT_FALSE(second.is_connected(remote));
    remote.endpoint = second_far;
    EXPECT_FALSE(endpoint.is_connected(remote));
}

TEST_P(Connections, CorruptedAddressesGiveErrors) {
    if (!reaches_others(GetParam().transport)) GTEST_SKIP() << "has no address of a device";
    World world(GetParam());
    const std::vector<std::byte> device = world.peer(1).device_address();
    const std::vector<std::byte> interface = world.peer(1).interface_address();
    Interface& near = *world.peer(0).interface;
    const bool dedicated = is_dedicated(GetParam().transport);
    std::vector<std::byte> endpoint_address;
    std::unique_ptr<Endpoint> far;
    if (dedicated) {
        ASSERT_EQ(world.peer(1).interface->create_endpoint({}, &far), UCS_OK);
        endpoint_address.resize(near.attributes().endpoint_address_length);
        ASSERT_EQ(far->get_address(endpoint_address), UCS_OK);
    }
    EXPECT_TRUE(near.is_reachable({device, interface, {}}));

    // Truncated, lengthened, and with each byte changed to each of these: never a crash; what is
    // accepted must at least be well formed.
    const auto attempt = [&](const std::vector<std::byte>& device_bytes,
                             const std::vector<std::byte>& interface_bytes,
                             const std::vector<std::byte>& endpoint_bytes) {
        const RemoteAddress remote{device_bytes, interface_bytes, endpoint_bytes};
        near.is_reachable(remote);
        std::unique_ptr<Endpoint> endpoint;
        if (!dedicated) return near.create_endpoint(remote, &endpoint);
        EXPECT_EQ(near.create_endpoint({}, &endpoint), UCS_OK);
        return endpoint->connect(remote);
    };
    const auto truncated = [](std::vector<std::byte> bytes, ptrdiff_t by) {
        bytes.resize(static_cast<size_t>(static_cast<ptrdiff_t>(bytes.size()) + by));
        return bytes;
    };
    for (const ptrdiff_t by : {ptrdiff_t{-1}, ptrdiff_t{1}}) {
        if (is_soft_adapter(GetParam().transport)) {
            EXPECT_LT(attempt(truncated(device, by), interface, endpoint_address), 0);
        }
        if (dedicated) {
            EXPECT_LT(attempt(device, interface, truncated(endpoint_address, by)), 0);
        } else {
            EXPECT_LT(attempt(device, truncated(interface, by), {}), 0);
        }
    }
    if (dedicated) {
        EXPECT_LT(attempt(device, interface, {}), 0);
    } else {
        EXPECT_LT(attempt(device, {}, {}), 0);
    }
    for (const int value : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
        for (size_t i = 0; i < device.size(); ++i) {
            auto bytes = device;
            bytes[i] = static_cast<std::byte>(value);
            attempt(bytes, interface, endpoint_address);
        }
        for (size_t i = 0; i < interface.size(); ++i) {
            auto bytes = interface;
            bytes[i] = static_cast<std::byte>(value);
            attempt(device, bytes, {});
        }
        for (size_t i = 0; i < endpoint_address.size(); ++i) {
            auto bytes = endpoint_address;
            bytes[i] = static_cast<std::byte>(value);
            attempt(device, interface, bytes);
        }
    }
    const std::vector<std::byte> zeros(device.size());
    EXPECT_FALSE(near.is_reachable({zeros, interface, {}}));
}

class DedicatedConnections : public Connections {};

TEST_P(DedicatedConnections, NothingIsSentBeforeConnect) {
    World world(GetParam());
    std::unique_ptr<Endpoint> endpoint;
    ASSERT_EQ(world.peer(0).interface->create_endpoint({}, &endpoint), UCS_OK);
    EXPECT_EQ(endpoint->am_short(1, 0, nullptr, 0), UCS_ERR_NOT_CONNECTED);
    EXPECT_FALSE(endpoint->is_connected({}));
}

TEST_P(DedicatedConnections, AGateTakesTheMessagesWhileItIsClosed) {
    World world(GetParam());
    Endpoint& near = world.connect(0, 1);
    Endpoint& far = world.other_end(near);
    Gate gate;
    Endpoint& open_near = world.connect(0, 1);
    far.set_receive_gate(&gate);
    send_bcopy(world, near, 1, "held one");
    send_bcopy(world, open_near, 2, "passes");
    send_bcopy(world, near, 3, "held two");
    Peer& receiver = world.peer(1);
    world.until([&] { return gate.held.size() == 2 && receiver.received.size() == 1; });
    EXPECT_EQ(gate.held[0].data, "held one");
    EXPECT_EQ(gate.held[1].id, 3);
    EXPECT_EQ(receiver.received[0].data, "passes");
    far.set_receive_gate(nullptr);
    send_bcopy(world, near, 4, "free");
    world.until([&] { return receiver.received.size() == 2; });
    EXPECT_EQ(receiver.received[1].data, "free");
}

TEST_P(DedicatedConnections, AGateStaysClosedWhenItsEndpointGoes) {
    World world(GetParam());
    Endpoint& near = world.connect(0, 1);
    Endpoint& far = world.other_end(near);
    Peer& receiver = world.peer(1);
    Gate gate;
    far.set_receive_gate(&gate);
    send_bcopy(world, near, 1, "held");
    world.until([&] { return gate.held.size() == 1; });
    receiver.runs = false;
    send_bcopy(world, near, 2, "on its way");
    send_short(world, near, 2, 0, "on its way");
    world.progress_some(50);
    world.destroy(far);
    receiver.runs = true;
    world.progress_some(50);
    Endpoint& next = world.connect(0, 1);
    send_bcopy(world, next, 3, "another's");
    world.until([&] { return !receiver.received.empty(); });
    EXPECT_EQ(receiver.received[0].data, "another's");
    EXPECT_EQ(gate.held.size(), 1u);
}

TEST_P(DedicatedConnections, WhatIsSentToAnEndpointThatIsGoneIsAnError) {
    if (!can_wake(GetParam().transport)) GTEST_SKIP() << "the mock loses it on purpose";
    enum class Before { kNothing, kTaken, kTakenBeforeItsGate, kAtItsGate };
    for (const Before before :
         {Before::kNothing, Before::kTaken, Before::kTakenBeforeItsGate, Before::kAtItsGate}) {
        World world(GetParam(), 2, {{"RC_TIMEOUT", "10us"}, {"RC_RETRY_COUNT", "2"}});
        Endpoint& near = world.connect(0, 1);
        Endpoint& far = world.other_end(near);
        const auto& failures = world.peer(0).failures;
        Gate gate;
        // An end that was given up before anything could come has its gate closed as well.
        if (before == Before::kNothing || before == Before::kAtItsGate) far.set_receive_gate(&gate);
        if (before != Before::kNothing) {
            send_bcopy(world, near, 1, "in time");
            world.until([&] { return gate.held.size() + world.peer(1).received.size() == 1; });
            EXPECT_EQ(flush(world, near), UCS_OK);
        }
        // As a lane that was kept: what it brought in an earlier round is no loss.
        if (before == Before::kTakenBeforeItsGate) far.set_receive_gate(&gate);
        world.destroy(far);
        for (int i = 0; i < 3000 && failures.empty(); ++i) {
            world.clock.advance(std::chrono::milliseconds(1));
            world.progress();
        }
        // What was at the gate has come to nothing; an adapter has said that it arrived.
        if (failures.empty()) {
            send_bcopy(world, near, 1, "too late");
        } else {
            EXPECT_EQ(before, Before::kAtItsGate);
        }
        world.until([&] {
            world.clock.advance(std::chrono::milliseconds(1));
            return !failures.empty();
        });
        EXPECT_EQ(failures.size(), 1u);
    }
}

TEST_P(DedicatedConnections, EndpointsComeAndGoUnderTraffic) {
    World world(GetParam());
    Endpoint& steady = world.connect(0, 1);
    for (int round = 0; round < 30; ++round) {
        Endpoint& passing = world.connect(0, 1);
        Endpoint& far = world.other_end(passing);
        send_bcopy(world, passing, 1, "x");
        send_bcopy(world, steady, 2, "y");
        if (round % 2 == 0) {
            EXPECT_EQ(flush(world, passing), UCS_OK);
        }
        world.destroy(passing);
        world.destroy(far);
        world.progress();
    }
    send_bcopy(world, steady, 3, "end");
    world.until([&] {
        const auto& received = world.peer(1).received;
        return !received.empty() && received.back().id == 3;
    });
    EXPECT_EQ(std::ranges::count(world.peer(1).received, 2, &Message::id), 30);
    EXPECT_TRUE(world.peer(0).failures.empty());
}

// More than there are names for a queue pair's completions: what comes of one that is gone reaches
// nobody.
TEST_P(DedicatedConnections, ThousandsComeAndGo) {
    World world(GetParam());
    for (int count = 0; count < 4200; ++count) {
        Endpoint& endpoint = world.connect(0, 1);
        Endpoint& other = world.other_end(endpoint);
        ASSERT_EQ(endpoint.am_short(1, 0, nullptr, 0), UCS_OK);
        world.progress_some(count % 3);
        world.destroy(count % 2 == 0 ? other : endpoint);
        world.destroy(count % 2 == 0 ? endpoint : other);
        world.progress_some(3);
    }
    Endpoint& endpoint = world.connect(0, 1);
    world.peer(1).received.clear();
    send_bcopy(world, endpoint, 2, "the last");
    world.until([&] { return world.peer(1).received.size() == 1; });
}

TEST_P(DedicatedConnections, ArrivedMessagesSurviveTheirEndpoint) {
    if (!can_wake(GetParam().transport)) GTEST_SKIP() << "the mock loses them on purpose";
    World world(GetParam(), 2, {{"RC_RX_QUEUE_LEN", "32"}});
    for (int round = 0; round < 5; ++round) {
        Endpoint& near = world.connect(0, 1);
        Endpoint& far = world.other_end(near);
        world.peer(1).runs = false;
        for (int i = 0; i < 10; ++i) send_bcopy(world, near, 1, "late");
        EXPECT_EQ(flush(world, near), UCS_OK);
        world.destroy(far);
        world.peer(1).runs = true;
        // Their receive buffers come back as well: later rounds have room.
        world.until([&] {
            return world.peer(1).received.size() == 10u * static_cast<unsigned>(round + 1);
        });
        world.destroy(near);
    }
}

class EventDescriptors : public testing::TestWithParam<TransportCase> {};

TEST_P(EventDescriptors, BecomeReadableWhenSomethingArrives) {
    World world(GetParam());
    Endpoint& endpoint = world.connect(0, 1);
    Interface& receiver = *world.peer(1).interface;
    ASSERT_TRUE(receiver.attributes().capabilities & kEventFd);
    const auto readable = [&] {
        pollfd descriptor{receiver.event_fd(), POLLIN, 0};
        return poll(&descriptor, 1, 0) == 1;
    };
    // Connections come up.
    send_bcopy(world, endpoint, 1, "first");
    world.until([&] { return world.peer(1).received.size() == 1; });
    world.progress_some(50);
    world.peer(1).runs = false;
    while (receiver.arm() == UCS_ERR_BUSY) receiver.progress();
    EXPECT_FALSE(readable());
    send_bcopy(world, endpoint, 1, "wake");
    world.progress_some(20);
    EXPECT_TRUE(readable());
    // Armed with something there already: busy, and nothing is lost.
    EXPECT_EQ(receiver.arm(), UCS_ERR_BUSY);
    world.peer(1).runs = true;
    world.until([&] { return world.peer(1).received.size() == 2; });
    world.progress_some(5);
    EXPECT_EQ(receiver.arm(), UCS_OK);
}

INSTANTIATE_TEST_SUITE_P(Uct, Connections, testing::ValuesIn(all_transports()), case_name);
INSTANTIATE_TEST_SUITE_P(Uct, DedicatedConnections,
                         testing::ValuesIn(transports_where(is_dedicated)), case_name);
INSTANTIATE_TEST_SUITE_P(Uct, EventDescriptors, testing::ValuesIn(transports_where(can_wake)),
                         case_name);

}  // namespace
}  // namespace uct::test
