// SPDX-License-Identifier: BSD-3-Clause
#include <map>

#include "uct/base/copy_queue.h"
#include "unit/uct/world.h"

namespace uct::test {
namespace {

TEST(SmRings, OneCallTakesNoMoreThanATurnAndAllHaveTheirs) {
    constexpr size_t kSenders = 24;
    World world({"sm_ring", "sm_ring"}, kSenders + 1);
    Peer& receiver = world.peer(0);
    receiver.runs = false;
    const size_t length = receiver.interface->attributes().am.max_bcopy;
    const size_t turn = CopyQueue::kSlice * 5 / 2;  // until copies were timed
    std::vector<Endpoint*> endpoints;
    for (size_t i = 1; i <= kSenders; ++i) endpoints.push_back(&world.connect(i, 0));
    size_t sent = 0;
    // More than are taken of one at a time.
    for (int round = 0; round < 24; ++round) {
        for (size_t i = 0; i < kSenders; ++i) {
            send_bcopy(world, *endpoints[i], static_cast<uint8_t>(i), std::string(length, 'x'));
            ++sent;
        }
    }
    std::map<uint8_t, size_t> first_call;
    size_t calls = 0;
    while (receiver.received.size() < sent) {
        const size_t before = receiver.received.size();
        ASSERT_NE(receiver.interface->progress(), 0u);
        ++calls;
        const size_t taken = (receiver.received.size() - before) * length;
        EXPECT_LE(taken, turn + 16 * length);
        for (size_t i = before; i < receiver.received.size(); ++i)
            first_call.try_emplace(receiver.received[i].id, calls);
    }
    // Each has its first turn before anybody has a second one: three or more in each call.
    EXPECT_EQ(first_call.size(), kSenders);
    for (const auto& [sender, call] : first_call) EXPECT_LE(call, kSenders / 3 + 1) << int{sender};
    EXPECT_GT(calls, kSenders / 3 + 1);
}

}  // namespace
}  // namespace uct::test
