// SPDX-License-Identifier: BSD-3-Clause
#include <malloc.h>

#include <cstring>

#include "uct/ib/ud/wire.h"
#include "unit/uct/world.h"

namespace uct::test {
namespace {

const TransportCase kUd = {"ud_verbs", "ud_verbs"};

TEST(Ud, APeerWithItsEndpointTakesFewBytes) {
    World world(kUd);
    Interface& near = *world.peer(0).interface;
    const auto device = world.peer(1).device_address();
    std::vector<std::unique_ptr<Endpoint>> endpoints;
    constexpr uint32_t kFew = 100, kMany = 10000;
    endpoints.reserve(kFew + kMany);
    const auto add = [&](uint32_t count) {
        for (; count != 0; --count) {
            std::vector<std::byte> address(ib::ud::UdAddress::kLength);
            ib::ud::UdAddress{1000 + static_cast<uint32_t>(endpoints.size()), 7}.write(address);
            std::unique_ptr<Endpoint> endpoint;
            ASSERT_EQ(near.create_endpoint({device, address, {}}, &endpoint), UCS_OK);
            endpoints.push_back(std::move(endpoint));
        }
    };
    const auto heap = [] {
        const struct mallinfo2 info = mallinfo2();
        return info.uordblks + info.hblkhd;
    };
    add(kFew);
    const size_t before = heap();
    add(kMany);
    const size_t each = (heap() - before) / kMany;
    RecordProperty("bytes", static_cast<int>(each));
    std::printf("heap of an idle peer with an endpoint: %zu bytes\n", each);
    EXPECT_LE(each, 600u);
}

TEST(Ud, AReceiverThatDoesNotRunStopsItsSenderAndLosesNothing) {
    World world(kUd, 2, {{"UD_RX_QUEUE_LEN", "32"}, {"UD_TX_QUEUE_LEN", "64"}});
    Endpoint& endpoint = world.connect(0, 1);
    world.peer(1).runs = false;
    unsigned sent = 0;
    while (endpoint.am_short(1, sent, nullptr, 0) == UCS_OK) ++sent;
    world.progress_some(200);
    EXPECT_EQ(sent, 64u);
    EXPECT_EQ(endpoint.am_short(1, sent, nullptr, 0), UCS_ERR_NO_RESOURCE);
    world.peer(1).runs = true;
    world.until([&] { return world.peer(1).received.size() == sent; });
    for (uint64_t i = 0; i < sent; ++i) {
        EXPECT_EQ(std::memcmp(world.peer(1).received[i].data.data(), &i, sizeof(i)), 0);
    }
    EXPECT_TRUE(world.peer(0).failures.empty());
}

TEST(Ud, MessagesAreCutAtTheMtu) {
    World world(kUd, 2, {{"IB_PATH_MTU", "256"}});
    Endpoint& endpoint = world.connect(0, 1);
    const size_t limit = world.peer(0).interface->attributes().am.max_bcopy;
    ASSERT_GT(limit, 4096u);
    for (const size_t length : {size_t{195}, size_t{196}, size_t{197}, limit}) {
        world.peer(1).received.clear();
        send_bcopy(world, endpoint, 1, pattern(length, 1));
        world.until([&] { return world.peer(1).received.size() == 1; });
        EXPECT_EQ(world.peer(1).received[0].data, pattern(length, 1));
    }
}

}  // namespace
}  // namespace uct::test
