// SPDX-License-Identifier: BSD-3-Clause
#include <malloc.h>

#include <algorithm>
#include <cstring>

#include "unit/uct/world.h"

namespace uct::test {
namespace {

class Dc : public testing::TestWithParam<TransportCase> {};

TEST_P(Dc, ManyEndpointsShareFewInitiators) {
    World world(GetParam(), 4, {{"DC_MLX5_NUM_DCI", "3"}});
    std::vector<Endpoint*> endpoints;
    for (unsigned i = 0; i < 60; ++i) endpoints.push_back(&world.connect(0, 1 + i % 3));
    std::vector<uint64_t> next(60);
    for (unsigned i = 1; i < 4; ++i) {
        world.peer(i).on_message = [&](const Message& message) {
            uint64_t word;
            std::memcpy(&word, message.data.data(), 8);
            EXPECT_EQ(word % 1000, next[word / 1000]++);
        };
    }
    for (uint64_t round = 0; round < 20; ++round) {
        for (uint64_t i = 0; i < 60; ++i) {
            send_short(world, *endpoints[i], 1, i * 1000 + round, "");
        }
    }
    world.until([&] { return std::ranges::count(next, 20u) == 60; });
    for (Endpoint* endpoint : endpoints) EXPECT_EQ(flush(world, *endpoint), UCS_OK);
}

TEST_P(Dc, MoreThan127Initiators) {
    World world(GetParam(), 2, {{"DC_MLX5_NUM_DCI", "300"}, {"RC_TX_QUEUE_LEN", "8"}});
    Buffer target(world.peer(1), 8 * 300);
    const RemoteKey key = target.key_for(world.peer(0));
    std::vector<Endpoint*> endpoints;
    for (uint64_t i = 0; i < 300; ++i) {
        endpoints.push_back(&world.connect(0, 1));
        const uint64_t value = i + 1;
        ucs_status_t status;
        world.until([&] {
            status = endpoints.back()->put_short(&value, 8, target.address() + 8 * i, key);
            return status != UCS_ERR_NO_RESOURCE;
        });
        ASSERT_EQ(status, UCS_OK);
    }
    for (Endpoint* endpoint : endpoints) EXPECT_EQ(flush(world, *endpoint), UCS_OK);
    for (uint64_t i = 0; i < 300; ++i) {
        uint64_t value;
        std::memcpy(&value, target.data() + 8 * i, 8);
        EXPECT_EQ(value, i + 1);
    }
}

TEST_P(Dc, AnErrorReachesItsOwnerOnly) {
    // Endpoints of one initiator, with an operation that fails in the middle of the others'.
    World world(GetParam(), 4,
                {{"DC_MLX5_NUM_DCI", "1"}, {"RC_TIMEOUT", "10us"}, {"RC_RETRY_COUNT", "1"}});
    Endpoint& culprit = world.connect(0, 1);
    Endpoint& second = world.connect(0, 2);
    Endpoint& third = world.connect(0, 3);
    Buffer target(world.peer(1), 64);
    const RemoteKey key = target.key_for(world.peer(0));
    std::vector<uint64_t> next(2);
    for (unsigned i = 2; i < 4; ++i) {
        world.peer(i).on_message = [&, i](const Message& message) {
            uint64_t number;
            std::memcpy(&number, message.data.data(), 8);
            EXPECT_EQ(number, next[i - 2]++);
        };
    }
    for (uint64_t i = 0; i < 40; ++i) {
        send_short(world, second, 1, i, "");
        if (i == 20) {
            ucs_status_t status;
            const uint64_t value = 1;
            world.until([&] {
                status = culprit.put_short(&value, 8, target.address(), key + 0x100);
                return status != UCS_ERR_NO_RESOURCE;
            });
        }
        send_short(world, third, 1, i, "");
    }
    EXPECT_EQ(flush(world, second), UCS_OK);
    EXPECT_EQ(flush(world, third), UCS_OK);
    world.until([&] { return next[0] == 40 && next[1] == 40; });
    ASSERT_EQ(world.peer(0).failures.size(), 1u);
    EXPECT_EQ(world.peer(0).failures[0].endpoint, &culprit);
}

TEST_P(Dc, InitiatorsAreUsedAgainAfterManyErrors) {
    World world(GetParam(), 2, {{"DC_MLX5_NUM_DCI", "2"}});
    Buffer target(world.peer(1), 64);
    const RemoteKey key = target.key_for(world.peer(0));
    for (int round = 0; round < 50; ++round) {
        Endpoint& endpoint = world.connect(0, 1);
        const uint64_t value = 1;
        EXPECT_EQ(endpoint.put_short(&value, 8, target.address(), key + 0x100), UCS_OK);
        EXPECT_LT(flush(world, endpoint), 0);
        world.destroy(endpoint);
    }
    Endpoint& endpoint = world.connect(0, 1);
    send_bcopy(world, endpoint, 1, "works");
    EXPECT_EQ(flush(world, endpoint), UCS_OK);
}

TEST_P(Dc, AnEndpointCostsFewBytes) {
    World world(GetParam());
    const RemoteAddress remote = world.address_of(1);
    Interface& interface = *world.peer(0).interface;
    std::vector<std::unique_ptr<Endpoint>> endpoints(10100);
    for (size_t i = 0; i < 100; ++i) {
        ASSERT_EQ(interface.create_endpoint(remote, &endpoints[i]), UCS_OK);
    }
    const size_t before = mallinfo2().uordblks;
    for (size_t i = 100; i < endpoints.size(); ++i) {
        ASSERT_EQ(interface.create_endpoint(remote, &endpoints[i]), UCS_OK);
    }
    const double each = static_cast<double>(mallinfo2().uordblks - before) / 10000;
    RecordProperty("bytes_per_endpoint", std::to_string(each));
    EXPECT_LE(each, 129);  // 120 and the allocator's share
}

TEST_P(Dc, TheSameCallsGiveTheSameEvents) {
    const auto run = [&] {
        World world(GetParam(), 3, {{"DC_MLX5_NUM_DCI", "2"}});
        Endpoint* endpoints[] = {&world.connect(0, 1), &world.connect(0, 2), &world.connect(1, 2)};
        for (int i = 0; i < 100; ++i) {
            send_short(world, *endpoints[i % 3], 1, 0, pattern(static_cast<size_t>(i % 40), 1));
        }
        for (Endpoint* endpoint : endpoints) flush(world, *endpoint);
        return world.fabric()->trace_hash();
    };
    EXPECT_EQ(run(), run());
}

// Sends short messages one after another whenever there is room.
struct Sender : Pending {
    Sender(Endpoint& to, uint64_t count) : Pending(&Sender::serve), endpoint(to), left(count) {}
    static ucs_status_t serve(Pending* self) {
        auto& sender = *static_cast<Sender*>(self);
        const ucs_status_t status = sender.endpoint.am_short(1, 0, nullptr, 0);
        if (status != UCS_OK) return status;
        return --sender.left != 0 ? UCS_INPROGRESS : UCS_OK;
    }
    Endpoint& endpoint;
    uint64_t left;
};

// A grant lets it post more than its quota at once, all unsignalled, while it waits itself: it
// gives way to nobody, and nothing that anyone else does tells it to go on.
TEST_P(Dc, AnEndpointThatGaveWayGoesOn) {
    World world(GetParam(), 2, {{"DC_MLX5_TX_QUOTA", "8"}, {"RC_FC_WND_SIZE", "100"}});
    Endpoint& endpoint = world.connect(0, 1);
    world.peer(1).runs = false;
    for (int refusals = 0; refusals < 50;) {
        if (endpoint.am_short(1, 0, nullptr, 0) == UCS_OK) {
            refusals = 0;
        } else {
            ++refusals;
            world.progress();
        }
    }
    // Nothing is outstanding: the initiator is anybody's again.
    ASSERT_EQ(flush(world, endpoint), UCS_OK);
    Sender sender(endpoint, 60);
    ASSERT_EQ(endpoint.pending_add(&sender), UCS_OK);
    world.peer(1).runs = true;
    world.until([&] { return sender.left == 0; });
    if (sender.is_queued()) endpoint.pending_remove(&sender);
}

INSTANTIATE_TEST_SUITE_P(Uct, Dc, testing::ValuesIn(transports_where(is_dc)), case_name);

}  // namespace
}  // namespace uct::test
