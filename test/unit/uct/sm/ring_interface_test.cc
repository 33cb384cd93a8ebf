// SPDX-License-Identifier: BSD-3-Clause
#include <cstring>
#include <map>
#include <set>
#include <stdexcept>

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

// What comes after a message behind which the program has something to do waits for the next call,
// and who sends much keeps nobody else waiting.
TEST(SmRings, ACallEndsWhereAHandlerHasEnough) {
    constexpr size_t kSenders = 4, kEach = 6;
    World world({"sm_ring", "sm_ring"}, kSenders + 1);
    Peer& receiver = world.peer(0);
    receiver.runs = false;
    receiver.on_message = [&](const Message&) { receiver.is_enough = true; };
    for (size_t i = 1; i <= kSenders; ++i) {
        Endpoint& endpoint = world.connect(i, 0);
        for (size_t count = 0; count < kEach; ++count)
            ASSERT_EQ(endpoint.am_short(static_cast<uint8_t>(i), 0, nullptr, 0), UCS_OK);
    }
    for (size_t lap = 0; lap < kEach; ++lap) {
        std::set<uint8_t> senders;
        for (size_t i = 0; i < kSenders; ++i) {
            receiver.is_enough = false;
            receiver.interface->progress();
            ASSERT_EQ(receiver.received.size(), lap * kSenders + i + 1);
            senders.insert(receiver.received.back().id);
        }
        EXPECT_EQ(senders.size(), kSenders);
    }
    EXPECT_FALSE(receiver.interface->interest().is_met());
}

TEST(SmFifos, ACallEndsWhereAHandlerHasEnough) {
    World world({"sm_fifo", "sm_fifo"}, 2);
    Peer& receiver = world.peer(0);
    receiver.runs = false;
    receiver.on_message = [&](const Message&) {
        receiver.is_enough = receiver.received.size() == 2;
    };
    Endpoint& endpoint = world.connect(1, 0);
    for (uint8_t id = 1; id <= 5; ++id) ASSERT_EQ(endpoint.am_short(id, 0, nullptr, 0), UCS_OK);
    receiver.interface->progress();
    EXPECT_EQ(receiver.received.size(), 2u);
    EXPECT_TRUE(receiver.interface->interest().is_met());
    receiver.is_enough = false;
    receiver.interface->progress();
    EXPECT_EQ(receiver.received.size(), 5u);
}

class SmInterest : public testing::TestWithParam<const char*> {};

// What a worker leaves out would have done nothing, and it leaves out nothing else.
TEST_P(SmInterest, IsMetWhereACallHasSomethingToDo) {
    World world({GetParam(), GetParam()}, 3);
    const Interface& receiver = *world.peer(0).interface;
    world.progress_some(100);
    EXPECT_FALSE(receiver.interest().is_met());
    Endpoint& first = world.connect(1, 0);
    for (int count = 0; count < 300; ++count) {
        world.until([&] { return first.am_short(1, 0, nullptr, 0) == UCS_OK; });
        ASSERT_TRUE(receiver.interest().is_met()) << count;
        world.until([&] { return world.peer(0).received.size() == size_t(count) + 1; });
        world.progress();
        ASSERT_FALSE(receiver.interest().is_met()) << count;
    }
    // Without room somebody waits, whom progress has to serve.
    world.peer(0).runs = false;
    while (first.am_short(1, 0, nullptr, 0) == UCS_OK) {
    }
    world.progress();
    const Interface& sender = *world.peer(1).interface;
    EXPECT_FALSE(sender.interest().is_met());
    Pending waiting([](Pending*) { return UCS_OK; });
    ASSERT_EQ(first.pending_add(&waiting), UCS_OK);
    EXPECT_TRUE(sender.interest().is_met());
    world.peer(0).runs = true;
    world.until([&] { return !waiting.is_queued(); });
    world.progress_some(100);
    EXPECT_FALSE(sender.interest().is_met());
    EXPECT_FALSE(receiver.interest().is_met());
    // Of several queues any counts.
    Endpoint& second = world.connect(2, 0);
    for (Endpoint* each : {&second, &first}) {
        EXPECT_FALSE(receiver.interest().is_met());
        ASSERT_EQ(each->am_short(1, 0, nullptr, 0), UCS_OK);
        EXPECT_TRUE(receiver.interest().is_met());
        world.progress_some(100);
    }
    EXPECT_FALSE(receiver.interest().is_met());
}

INSTANTIATE_TEST_SUITE_P(Transports, SmInterest, testing::Values("sm_fifo", "sm_ring"),
                         [](const auto& info) { return std::string(info.param); });

TEST(SmRings, AQueueThatGoesIsAwaitedNoMore) {
    World world({"sm_ring", "sm_ring"}, 3);
    const Interface& receiver = *world.peer(0).interface;
    Endpoint& first = world.connect(1, 0);
    Endpoint& second = world.connect(2, 0);
    world.progress_some(100);
    world.destroy(world.other_end(first));
    EXPECT_TRUE(receiver.interest().is_met()) << "it is to be freed";
    world.progress_some(100);
    EXPECT_FALSE(receiver.interest().is_met());
    ASSERT_EQ(second.am_short(1, 0, nullptr, 0), UCS_OK);
    EXPECT_TRUE(receiver.interest().is_met());
    world.until([&] { return world.peer(0).received.size() == 1; });
    world.destroy(world.other_end(second));
    world.progress_some(100);
    EXPECT_FALSE(receiver.interest().is_met());
}

// Sends a message of `length` bytes that all are `fill`. @return where it lies; null: no room
std::byte* send_filled(Endpoint& endpoint, size_t length, char fill) {
    struct Message {
        size_t length;
        char fill;
        std::byte* place;
    } message{length, fill, nullptr};
    const ssize_t sent = endpoint.am_bcopy(
        1,
        [](void* destination, void* arg) {
            auto& wanted = *static_cast<Message*>(arg);
            if (wanted.fill == 0) throw std::runtime_error("cannot be packed");
            wanted.place = static_cast<std::byte*>(destination);
            std::memset(destination, wanted.fill, wanted.length);
            return wanted.length;
        },
        &message);
    return sent < 0 ? nullptr : message.place;
}

// Messages of half a piece and less do; longer ones go through all of it.
TEST(SmRings, WhoIsReadAtOnceWritesToTheSameMemoryAgain) {
    World world({"sm_ring", "sm_ring"}, 2);
    Endpoint& endpoint = world.connect(1, 0);
    Peer& receiver = world.peer(0);
    const size_t longest = receiver.interface->attributes().am.max_bcopy;
    for (const size_t length : {size_t{200}, size_t{1000}, longest / 2, longest}) {
        std::set<std::byte*> places;
        for (int i = 0; i < 1000; ++i) {
            std::byte* const place = send_filled(endpoint, length, static_cast<char>('a' + i % 26));
            ASSERT_NE(place, nullptr);
            places.insert(place);
            receiver.received.clear();
            world.until([&] { return !receiver.received.empty(); });
            ASSERT_EQ(receiver.received[0].data,
                      std::string(length, static_cast<char>('a' + i % 26)));
        }
        const auto touched = static_cast<size_t>(*places.rbegin() - *places.begin());
        if (length == longest) {
            EXPECT_GE(touched, 28 * longest);
        } else {
            EXPECT_LE(touched, 7 * longest) << length;
        }
    }
}

// However much room a sender had left when it began anew, and though a message that should tell so
// could not be written.
TEST(SmRings, WhoIsNotReadHasAllOfTheMemory) {
    for (unsigned before = 0; before < 12; ++before) {
        World world({"sm_ring", "sm_ring"}, 2);
        Endpoint& endpoint = world.connect(1, 0);
        Peer& receiver = world.peer(0);
        const size_t length = receiver.interface->attributes().am.max_bcopy;
        for (unsigned i = 0; i < before; ++i) {
            ASSERT_NE(send_filled(endpoint, length / 2, 'x'), nullptr);
            world.until([&] { return receiver.received.size() == i + 1; });
        }
        EXPECT_THROW(send_filled(endpoint, length, 0), std::runtime_error);
        receiver.received.clear();
        receiver.runs = false;
        std::string fills;
        while (send_filled(endpoint, length, static_cast<char>('a' + fills.size())) != nullptr)
            fills += static_cast<char>('a' + fills.size());
        EXPECT_GE(fills.size(), 30u) << before;
        receiver.runs = true;
        world.until([&] { return receiver.received.size() == fills.size(); });
        for (size_t i = 0; i < fills.size(); ++i)
            ASSERT_EQ(receiver.received[i].data, std::string(length, fills[i])) << before;
    }
}

}  // namespace
}  // namespace uct::test
