// SPDX-License-Identifier: BSD-3-Clause
#include <chrono>
#include <cstring>

#include "unit/uct/world.h"

namespace uct::test {
namespace {

class Messages : public testing::TestWithParam<TransportCase> {};

std::string short_message(uint64_t header, const std::string& payload) {
    std::string data(sizeof(header), '\0');
    std::memcpy(data.data(), &header, sizeof(header));
    return data + payload;
}

TEST_P(Messages, ShortArriveInOrderAtEverySize) {
    World world(GetParam());
    Endpoint& endpoint = world.connect(0, 1);
    const size_t limit = world.peer(0).interface->attributes().am.max_short;
    std::vector<std::string> expected;
    for (size_t length = 0; length <= std::min<size_t>(limit, 64); ++length) {
        expected.push_back(short_message(length * 7, pattern(length, 1)));
        send_short(world, endpoint, static_cast<uint8_t>(length % kMaxAmId), length * 7,
                   pattern(length, 1));
    }
    expected.push_back(short_message(9, pattern(limit, 2)));
    send_short(world, endpoint, 31, 9, pattern(limit, 2));
    Peer& receiver = world.peer(reaches_others(GetParam().transport) ? 1 : 0);
    world.until([&] { return receiver.received.size() == expected.size(); });
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(receiver.received[i].data, expected[i]);
    EXPECT_EQ(receiver.received.back().id, 31);
}

TEST_P(Messages, CopiedArriveInOrderAtTheSizeLimits) {
    World world(GetParam());
    Endpoint& endpoint = world.connect(0, 1);
    const OperationLimits& limits = world.peer(0).interface->attributes().am;
    const size_t limit = limits.max_bcopy;
    std::vector<std::string> expected;
    for (const size_t length : {size_t{0}, size_t{1}, size_t{7}, size_t{8}, limit - 1, limit,
                                limits.longest_bcopy() - 1, limits.longest_bcopy()}) {
        expected.push_back(pattern(length, 3));
        send_bcopy(world, endpoint, 5, expected.back());
    }
    Peer& receiver = world.peer(reaches_others(GetParam().transport) ? 1 : 0);
    world.until([&] { return receiver.received.size() == expected.size(); });
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(receiver.received[i].data, expected[i]);
}

TEST_P(Messages, ZeroCopyGathersHeaderAndPieces) {
    World world(GetParam());
    Endpoint& endpoint = world.connect(0, 1);
    const OperationLimits& limits = world.peer(0).interface->attributes().am;
    Buffer source(world.peer(0), limits.max_zcopy);
    const std::string content = pattern(limits.max_zcopy, 4);
    std::memcpy(source.data(), content.data(), content.size());
    const std::string header = pattern(limits.max_header, 5);
    Peer& receiver = world.peer(reaches_others(GetParam().transport) ? 1 : 0);

    for (const size_t length : {size_t{0}, size_t{1}, limits.max_zcopy}) {
        const size_t half = length / 2;
        const Iov iov[] = {source.iov(0, half), source.iov(half, length - half)};
        Waiter waiter;
        receiver.received.clear();
        const ucs_status_t status =
            endpoint.am_zcopy(6, std::as_bytes(std::span(header)), iov, &waiter);
        if (status == UCS_INPROGRESS) {
            world.until([&] { return waiter.done; });
            EXPECT_EQ(waiter.status, UCS_OK);
        } else {
            EXPECT_EQ(status, UCS_OK);
        }
        world.until([&] { return receiver.received.size() == 1; });
        EXPECT_EQ(receiver.received[0].data, header + content.substr(0, length));
    }
}

TEST_P(Messages, AllKindsKeepOneOrder) {
    World world(GetParam(), 2,
                {{"RC_TX_QUEUE_LEN", "8"}, {"RC_TX_CQ_LEN", "16"}, {"UD_TX_QUEUE_LEN", "8"}});
    Endpoint& endpoint = world.connect(0, 1);
    Buffer source(world.peer(0), 4096, 'z');
    Peer& receiver = world.peer(reaches_others(GetParam().transport) ? 1 : 0);
    constexpr unsigned kCount = 400;
    for (unsigned i = 0; i < kCount; ++i) {
        const uint64_t number = i;
        if (i % 3 == 0) {
            send_short(world, endpoint, 1, number, "s");
        } else if (i % 3 == 1) {
            send_bcopy(world, endpoint, 1, short_message(number, "b"));
        } else {
            const Iov iov[] = {source.iov(0, 100)};
            ucs_status_t status;
            world.until([&] {
                status = endpoint.am_zcopy(1, std::as_bytes(std::span(&number, 1)), iov, nullptr);
                return status != UCS_ERR_NO_RESOURCE;
            });
            EXPECT_GE(status, 0);
        }
    }
    world.until([&] { return receiver.received.size() == kCount; });
    for (unsigned i = 0; i < kCount; ++i) {
        EXPECT_EQ(receiver.received[i].data.substr(0, 8), short_message(i, ""));
    }
}

TEST_P(Messages, KeptDescriptorsStayIntact) {
    World world(GetParam(), 2, {{"RC_RX_QUEUE_LEN", "64"}, {"UD_RX_QUEUE_LEN", "64"}});
    Endpoint& endpoint = world.connect(0, 1);
    Peer& receiver = world.peer(reaches_others(GetParam().transport) ? 1 : 0);
    receiver.keep = true;
    constexpr size_t kKept = 40;
    for (size_t i = 0; i < kKept; ++i) send_bcopy(world, endpoint, 2, pattern(200 + i, 7));
    world.until([&] { return receiver.received.size() == kKept; });
    receiver.keep = false;
    for (size_t i = 0; i < 200; ++i) send_bcopy(world, endpoint, 3, pattern(300, 8));
    world.until([&] { return receiver.received.size() == kKept + 200; });
    EXPECT_EQ(flush(world, endpoint), UCS_OK);
    // Of a ring's memory nothing can be kept: its handlers are told to copy.
    EXPECT_EQ(receiver.kept.size(), GetParam().transport == "sm_ring" ? 0 : kKept);
}

TEST_P(Messages, HandlersMaySendAndAreNotNested) {
    World world(GetParam());
    Endpoint& there = world.connect(0, 1);
    Endpoint& back =
        is_dedicated(GetParam().transport) ? world.other_end(there) : world.connect(1, 0);
    Peer& receiver = world.peer(reaches_others(GetParam().transport) ? 1 : 0);
    int depth = 0, replies = 0;
    receiver.on_message = [&](const Message& message) {
        EXPECT_EQ(++depth, 1);
        if (message.id == 1) {
            EXPECT_EQ(back.am_short(2, 0, nullptr, 0), UCS_OK);
            ++replies;
        }
        --depth;
    };
    send_short(world, there, 1, 1, "");
    send_short(world, there, 1, 2, "");
    world.until([&] { return world.peer(0).received.size() >= 2 && replies == 2; });
}

// A program's callback that throws goes through progress: its own message is taken, those that have
// come with it are neither lost nor doubled.
TEST_P(Messages, AHandlerThatThrowsTakesItsMessageAlone) {
    struct Thrown {};
    World world(GetParam());
    Endpoint& endpoint = world.connect(0, 1);
    Peer& receiver = world.peer(reaches_others(GetParam().transport) ? 1 : 0);
    std::vector<std::string> seen, sent;
    receiver.on_message = [&](const Message& message) {
        seen.push_back(message.data);
        if (seen.size() % 3 == 0) throw Thrown();
    };
    unsigned thrown = 0;
    const auto run = [&](int steps) {
        for (int step = 0; step < steps; ++step) {
            try {
                world.progress();
            } catch (const Thrown&) {
                ++thrown;
            }
        }
    };
    for (unsigned number = 0; number < 12; ++number) {
        sent.push_back(pattern(number % 2 == 0 ? 8 : 700, number));
        ssize_t result = UCS_ERR_NO_RESOURCE;
        for (int tries = 0; result == UCS_ERR_NO_RESOURCE && tries < 1000; ++tries) {
            result = endpoint.am_bcopy(
                2,
                [](void* to, void* arg) {
                    const auto& data = *static_cast<const std::string*>(arg);
                    std::memcpy(to, data.data(), data.size());
                    return data.size();
                },
                &sent.back());
            if (result == UCS_ERR_NO_RESOURCE) run(1);
        }
        ASSERT_GE(result, 0);
    }
    for (int count = 0; count < 20000 && seen.size() < sent.size(); ++count) run(1);
    run(1000);
    EXPECT_EQ(seen, sent);
    EXPECT_EQ(thrown, 4u);
}

// A generic datatype's pack is the program's. What it fails to pack was never sent, and nothing
// waits for it.
TEST_P(Messages, APackThatThrowsSendsNothingAndStopsNothing) {
    struct Thrown {};
    World world(GetParam());
    Endpoint& endpoint = world.connect(0, 1);
    Peer& receiver = world.peer(reaches_others(GetParam().transport) ? 1 : 0);
    send_short(world, endpoint, 1, 0, "");
    world.until([&] { return receiver.received.size() == 1; });
    for (size_t count = 1; count < 20; ++count) {
        const auto pack = [](void*, void*) -> size_t { throw Thrown(); };
        EXPECT_THROW(
            world.until([&] { return endpoint.am_bcopy(2, pack, nullptr) != UCS_ERR_NO_RESOURCE; }),
            Thrown);
        send_bcopy(world, endpoint, 3, pattern(700, count));
        world.until([&] { return receiver.received.size() == count + 1; });
        EXPECT_EQ(receiver.received[count].id, 3);
        EXPECT_EQ(receiver.received[count].data, pattern(700, count));
    }
}

class StoppedReceivers : public testing::TestWithParam<TransportCase> {};

// A program that computes, or is stopped, for a minute is not dead: whatever time the transport
// gives a peer to answer.
TEST_P(StoppedReceivers, LoseNothing) {
    World world(GetParam());
    Endpoint& endpoint = world.connect(0, 1);
    send_short(world, endpoint, 1, 0, "");
    world.until([&] { return world.peer(1).received.size() == 1; });
    world.peer(1).runs = false;
    uint64_t sent = 1;
    const auto fill = [&] {
        for (; sent < 5000 && endpoint.am_short(1, sent, nullptr, 0) == UCS_OK; ++sent) {
        }
    };
    for (int count = 0; count < 600; ++count) {
        fill();
        world.clock.advance(std::chrono::milliseconds(100));
        world.progress_some(4);
    }
    EXPECT_TRUE(world.peer(0).failures.empty());
    world.peer(1).runs = true;
    world.until([&] {
        fill();
        return world.peer(1).received.size() == sent;
    });
    for (uint64_t number = 0; number < sent; ++number)
        EXPECT_EQ(std::memcmp(world.peer(1).received[number].data.data(), &number, 8), 0);
    EXPECT_TRUE(world.peer(0).failures.empty());
    EXPECT_TRUE(world.peer(1).failures.empty());
}

INSTANTIATE_TEST_SUITE_P(Uct, StoppedReceivers, testing::ValuesIn(transports_where(reaches_others)),
                         case_name);

INSTANTIATE_TEST_SUITE_P(Uct, Messages, testing::ValuesIn(all_transports()), case_name);

}  // namespace
}  // namespace uct::test
