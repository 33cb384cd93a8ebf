// SPDX-License-Identifier: BSD-3-Clause
#include <cstring>

#include "unit/uct/world.h"

namespace uct::test {
namespace {

class FlowControl : public testing::TestWithParam<TransportCase> {};

const Settings kSmallWindow = {{"RC_FC_WND_SIZE", "20"}, {"RC_RX_QUEUE_LEN", "256"}};

// Messages until the endpoint refuses.
unsigned send_until_refused(Endpoint& endpoint, World& world, unsigned most) {
    unsigned sent = 0;
    for (int refusals = 0; sent < most && refusals < 50;) {
        if (endpoint.am_short(1, sent, nullptr, 0) == UCS_OK) {
            ++sent;
            refusals = 0;
        } else {
            ++refusals;
            world.progress();
        }
    }
    return sent;
}

TEST_P(FlowControl, ASenderStopsBeforeItOverrunsAReceiverThatDoesNotRun) {
    World world(GetParam(), 2, kSmallWindow);
    Endpoint& endpoint = world.connect(0, 1);
    world.peer(1).runs = false;
    const unsigned sent = send_until_refused(endpoint, world, 200);
    EXPECT_EQ(sent, 20u);
    EXPECT_EQ(world.receivers_not_ready(), 0u);

    // What was sent is acknowledged all the same: a flush does not wait for the grant.
    EXPECT_EQ(flush(world, endpoint), UCS_OK);
    // One-sided operations need no credit.
    Buffer target(world.peer(1), 8);
    const uint64_t value = 7;
    EXPECT_EQ(endpoint.put_short(&value, 8, target.address(), target.key_for(world.peer(0))),
              UCS_OK);
    EXPECT_EQ(flush(world, endpoint), UCS_OK);
    EXPECT_EQ(std::memcmp(target.data(), &value, 8), 0);

    world.peer(1).runs = true;
    for (unsigned i = sent; i < 500; ++i) send_short(world, endpoint, 1, i, "");
    world.until([&] { return world.peer(1).received.size() == 500; });
    for (uint64_t i = 0; i < 500; ++i) {
        EXPECT_EQ(std::memcmp(world.peer(1).received[i].data.data(), &i, 8), 0);
    }
}

TEST_P(FlowControl, AWaitingElementIsServedWhenTheGrantComes) {
    World world(GetParam(), 2, kSmallWindow);
    Endpoint& endpoint = world.connect(0, 1);
    world.peer(1).runs = false;
    send_until_refused(endpoint, world, 200);
    struct Waiting : Pending {
        explicit Waiting(Endpoint& to) : Pending(&Waiting::serve), endpoint(to) {}
        static ucs_status_t serve(Pending* self) {
            return static_cast<Waiting*>(self)->endpoint.am_short(2, 0, nullptr, 0);
        }
        Endpoint& endpoint;
    } waiting(endpoint);
    ASSERT_EQ(endpoint.pending_add(&waiting), UCS_OK);
    world.progress_some(20);
    EXPECT_TRUE(waiting.is_queued());
    world.peer(1).runs = true;
    world.until([&] {
        const auto& received = world.peer(1).received;
        return !received.empty() && received.back().id == 2;
    });
    EXPECT_FALSE(waiting.is_queued());
}

TEST_P(FlowControl, WaitingForAGrantHoldsBackMessagesOnly) {
    World world(GetParam(), 2,
                {{"RC_FC_WND_SIZE", "20"}, {"RC_TX_QUEUE_LEN", "8"}, {"DC_MLX5_NUM_DCI", "1"}});
    Endpoint& endpoint = world.connect(0, 1);
    Buffer target(world.peer(1), 8);
    world.peer(1).runs = false;
    send_until_refused(endpoint, world, 200);
    struct Writer : Pending {
        Writer(Endpoint& to, uint64_t where, RemoteKey with)
            : Pending(&Writer::serve), endpoint(to), address(where), key(with) {}
        static ucs_status_t serve(Pending* self) {
            auto& writer = *static_cast<Writer*>(self);
            const uint64_t value = 5;
            return writer.endpoint.put_short(&value, 8, writer.address, writer.key);
        }
        Endpoint& endpoint;
        uint64_t address;
        RemoteKey key;
    } writer(endpoint, target.address(), target.key_for(world.peer(0)));
    ASSERT_EQ(endpoint.pending_add(&writer), UCS_OK);
    world.until([&] { return target.data()[0] == 5; });
}

TEST_P(FlowControl, BothSidesMayBeStoppedAtOnce) {
    World world(GetParam(), 2, kSmallWindow);
    Endpoint& there = world.connect(0, 1);
    Endpoint& back =
        is_dedicated(GetParam().transport) ? world.other_end(there) : world.connect(1, 0);
    // Each sends without running the other's handlers in between.
    unsigned sent_there = 0, sent_back = 0;
    world.peer(0).runs = world.peer(1).runs = false;
    while (there.am_short(1, 0, nullptr, 0) == UCS_OK) ++sent_there;
    while (back.am_short(1, 0, nullptr, 0) == UCS_OK) ++sent_back;
    EXPECT_EQ(sent_there, 20u);
    EXPECT_EQ(sent_back, 20u);
    world.peer(0).runs = world.peer(1).runs = true;
    for (int i = 0; i < 100; ++i) {
        send_short(world, there, 2, 0, "");
        send_short(world, back, 2, 0, "");
    }
    world.until([&] {
        return world.peer(0).received.size() == 120 && world.peer(1).received.size() == 120;
    });
}

TEST_P(FlowControl, APeerThatDiesWithTheGrantFailsTheEndpoint) {
    World world(GetParam(), 2,
                {{"RC_FC_WND_SIZE", "20"},
                 {"RC_TIMEOUT", "10us"},
                 {"RC_RETRY_COUNT", "1"},
                 {"RC_FC_HARD_REQ_TIMEOUT", "1ms"}});
    Endpoint& endpoint = world.connect(0, 1);
    world.peer(1).runs = false;
    send_until_refused(endpoint, world, 200);
    ASSERT_EQ(flush(world, endpoint), UCS_OK);
    world.kill(1);
    world.until([&] {
        world.clock.advance(std::chrono::microseconds(100));
        return !world.peer(0).failures.empty();
    });
    EXPECT_EQ(world.peer(0).failures[0].endpoint, &endpoint);
}

TEST_P(FlowControl, OffMeansThatTheReceiveQueueIsTheLimit) {
    World world(GetParam(), 2, {{"RC_FC_ENABLE", "n"}, {"RC_FC_WND_SIZE", "20"}});
    Endpoint& endpoint = world.connect(0, 1);
    world.peer(1).runs = false;
    EXPECT_EQ(send_until_refused(endpoint, world, 100), 100u);
}

TEST_P(FlowControl, WithoutReceiveBuffersNothingIsLost) {
    // Kept buffers use up the receive queue: the adapter makes the sender wait (RNR).
    World world(GetParam(), 2,
                {{"RC_FC_ENABLE", "n"}, {"RC_RX_QUEUE_LEN", "16"}, {"RC_RNR_TIMEOUT", "10us"}});
    Endpoint& endpoint = world.connect(0, 1);
    world.peer(1).runs = false;
    for (uint64_t i = 0; i < 100; ++i) send_short(world, endpoint, 1, i, "");
    world.progress_some(50);
    world.peer(1).runs = true;
    world.until([&] { return world.peer(1).received.size() == 100; });
    for (uint64_t i = 0; i < 100; ++i) {
        EXPECT_EQ(std::memcmp(world.peer(1).received[i].data.data(), &i, 8), 0);
    }
    EXPECT_GT(world.receivers_not_ready(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Uct, FlowControl, testing::ValuesIn(transports_where(grants_credits)),
                         case_name);

}  // namespace
}  // namespace uct::test
