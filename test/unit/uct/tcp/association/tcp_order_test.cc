// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <string>

#include "unit/uct/tcp/tcp_world.h"

// What an endpoint leaves behind: its peer gets it in order, and none without all before it.
namespace uct::test {
namespace {

constexpr uint8_t kNumbered = 1, kLater = 2, kOthers = 3;
constexpr size_t kPiece = 8000;

// An endpoint whose operations wait because its peer does not read, and another beside it.
class TcpOrder : public testing::TestWithParam<Settings> {
  protected:
    TcpOrder() : world(2, settings()) {
        world.expect_traffic(0, 1);
        far.received.clear();
        far.runs = false;
    }
    static Settings settings() {
        Settings all{{"TCP_SNDBUF", "4k"}, {"TCP_RCVBUF", "4k"}};
        all.insert(all.end(), GetParam().begin(), GetParam().end());
        return all;
    }
    // Messages with their numbers, until some of them wait.
    void fill() {
        while (waiting() < 4) {
            const uint32_t number = numbered++;
            const auto header = std::as_bytes(std::span(&number, 1));
            waiters.emplace_back();
            const ucs_status_t status = going.am_zcopy(kNumbered, header, from, &waiters.back());
            ASSERT_GE(status, UCS_OK);
            waiters.back().done |= status == UCS_OK;
            world.progress_some(100);
        }
    }
    size_t waiting() const {
        return static_cast<size_t>(
            std::ranges::count_if(waiters, [](const Waiter& waiter) { return !waiter.done; }));
    }
    // The endpoint goes; what it leaves arrives, and then a word of the other one.
    void end() {
        world.destroy(going);
        EXPECT_EQ(waiting(), 0u);
        far.runs = true;
        send_bcopy(world, staying, kOthers, "the last");
        world.until(
            [&] { return !far.received.empty() && far.received.back().data == "the last"; });
    }
    // @return how many of the numbered messages have come: the first, without a gap
    uint32_t arrived() {
        uint32_t count = 0;
        for (const Message& message : far.received) {
            if (message.id != kNumbered) continue;
            EXPECT_EQ(std::memcmp(message.data.data(), &count, sizeof(count)), 0) << count;
            ++count;
        }
        return count;
    }
    size_t count(uint8_t id) {
        return static_cast<size_t>(std::ranges::count(far.received, id, &Message::id));
    }

    TcpWorld world;
    Peer &near = world.peer(0), &far = world.peer(1);
    Buffer source{near, kPiece, 'x'};
    const Iov from[1] = {source.iov(0, kPiece)};
    std::deque<Waiter> waiters;
    uint32_t numbered = 0;
    Endpoint &going = world.connect(0, 1), &staying = world.connect(0, 1);
};

TEST_P(TcpOrder, NoMessageArrivesWithoutThoseBeforeIt) {
    fill();
    send_bcopy(world, going, kLater, "later");
    ASSERT_EQ(going.am_short(kLater, 7, nullptr, 0), UCS_OK);
    end();
    EXPECT_LT(arrived(), numbered);
    EXPECT_EQ(count(kLater), 0u);
    EXPECT_TRUE(far.failures.empty());
}

TEST_P(TcpOrder, MessagesBeforeTheFirstThatIsLostArrive) {
    send_bcopy(world, going, kLater, "before");
    fill();
    const uint32_t whole = numbered - static_cast<uint32_t>(waiting());
    end();
    EXPECT_EQ(count(kLater), 1u);
    EXPECT_GE(arrived(), whole);
}

TEST_P(TcpOrder, OtherEndpointsLoseNothing) {
    fill();
    for (int round = 0; round < 3; ++round) {
        send_bcopy(world, going, kLater, "later");
        send_bcopy(world, staying, kOthers, "other");
    }
    Waiter flushed;
    ASSERT_EQ(staying.flush(&flushed), UCS_INPROGRESS);
    end();
    EXPECT_EQ(count(kLater), 0u);
    EXPECT_EQ(count(kOthers), 4u);
    world.until([&] { return flushed.done; });
    EXPECT_EQ(flushed.status, UCS_OK);
    EXPECT_TRUE(near.failures.empty() && far.failures.empty());
}

TEST_P(TcpOrder, WhatIsWrittenBehindAFenceDoesNotArriveWithoutWhatIsBeforeIt) {
    constexpr size_t kPieces = 64;
    Buffer target(far, kPieces * kPiece, '.'), flag(far, 8, '.');
    const RemoteKey key = target.key_for(near), flag_key = flag.key_for(near);
    size_t put = 0;
    for (; waiting() < 4; ++put) {
        ASSERT_LT(put, kPieces);
        waiters.emplace_back();
        const ucs_status_t status =
            going.put_zcopy(from, target.address() + put * kPiece, key, &waiters.back());
        ASSERT_GE(status, UCS_OK);
        waiters.back().done |= status == UCS_OK;
        world.progress_some(100);
    }
    ASSERT_EQ(going.fence(), UCS_OK);
    // Over several connections the fence holds it back here.
    const ucs_status_t flagged = going.put_short("flagged!", 8, flag.address(), flag_key);
    ASSERT_TRUE(flagged == UCS_OK || flagged == UCS_ERR_NO_RESOURCE);
    end();
    EXPECT_EQ(flush(world, staying), UCS_OK);
    EXPECT_NE(target.text().substr(0, put * kPiece), std::string(put * kPiece, 'x'));
    EXPECT_EQ(flag.text(), "........");
}

TEST_P(TcpOrder, QuestionsThatAreNotAskedEndAndMakeRoomForOthers) {
    Buffer target(far, 64);
    const RemoteKey key = target.key_for(near);
    fill();
    // Frames whose payload lies in the queue's next buffer: the questions begin within it.
    const std::string payload(5000, 'y');
    for (int i = 0; i < 4; ++i) {
        ASSERT_EQ(going.am_short(kLater, 7, payload.data(), 5000), UCS_OK);
    }
    std::deque<Waiter> questions;
    uint64_t old = 0, read = 0;
    const auto unpack = [](void* to, const void* data, size_t length) {
        std::memcpy(to, data, length);
    };
    for (bool has_room = true; has_room;) {
        questions.emplace_back();
        const ucs_status_t status =
            questions.size() % 2 != 0
                ? going.atomic(AtomicOp::kAdd, 8, 1, 0, &old, target.address(), key,
                               &questions.back())
                : going.get_bcopy(unpack, &read, 8, target.address(), key, &questions.back());
        has_room = status != UCS_ERR_NO_RESOURCE;
        if (has_room) {
            ASSERT_EQ(status, UCS_INPROGRESS);
        } else {
            questions.pop_back();
        }
    }
    EXPECT_GT(questions.size(), 100u);
    const auto ask = [&](Waiter& waiter) {
        return staying.get_bcopy(unpack, &read, 8, target.address(), key, &waiter);
    };
    Waiter refused, taken;
    EXPECT_EQ(ask(refused), UCS_ERR_NO_RESOURCE);
    world.destroy(going);
    for (const Waiter& question : questions) {
        ASSERT_TRUE(question.done);
        EXPECT_EQ(question.status, UCS_ERR_CANCELED);
    }
    ASSERT_EQ(ask(taken), UCS_INPROGRESS);
    far.runs = true;
    world.until([&] { return taken.done; });
    EXPECT_EQ(taken.status, UCS_OK);
    EXPECT_EQ(read, 0u);
    EXPECT_EQ(flush(world, staying), UCS_OK);
    EXPECT_EQ(target.text(), std::string(64, 0));
    EXPECT_EQ(count(kLater), 0u);
    EXPECT_TRUE(near.failures.empty() && far.failures.empty());
}

class TcpSessionOrder : public TcpOrder {};

TEST_P(TcpSessionOrder, TheNextConnectionBringsNoneOfThemEither) {
    fill();
    send_bcopy(world, going, kLater, "later");
    for (const int socket : world.tcp(1).sockets(0)) shutdown(socket, SHUT_RDWR);
    end();
    EXPECT_LT(arrived(), numbered);
    EXPECT_EQ(count(kLater), 0u);
    EXPECT_TRUE(near.failures.empty() && far.failures.empty());
}

const Settings kSession{{"TCP_FAILOVER", "y"}};

INSTANTIATE_TEST_SUITE_P(Plain, TcpOrder, testing::Values(Settings{{"TCP_FAILOVER", "n"}}));
INSTANTIATE_TEST_SUITE_P(OneConnection, TcpOrder,
                         testing::Values(Settings{{"TCP_FAILOVER", "n"},
                                                  {"TCP_CONNECTIONS", "1"}}));
INSTANTIATE_TEST_SUITE_P(Session, TcpOrder, testing::Values(kSession));
INSTANTIATE_TEST_SUITE_P(Uct, TcpSessionOrder, testing::Values(kSession));

}  // namespace
}  // namespace uct::test
