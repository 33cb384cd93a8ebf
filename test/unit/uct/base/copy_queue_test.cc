// SPDX-License-Identifier: BSD-3-Clause
#include "uct/base/copy_queue.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "unit/uct/base/copy_group.h"

namespace uct::test {
namespace {

// A clock that copies move on, at so many bytes a second.
struct Machine {
    ucs::VirtualClock clock;
    double rate = 0;  // bytes a second; 0: copies take no time
    std::vector<size_t> pieces;
    ucs_status_t status = UCS_OK;  // of the next pieces
};
Machine* machine;

ucs_status_t move(CopyDirection direction, const Iov& piece, uint64_t remote, RemoteKey) {
    if (machine->status != UCS_OK) return machine->status;
    machine->pieces.push_back(piece.length);
    auto* const there = reinterpret_cast<void*>(remote);
    if (direction == CopyDirection::kPut) {
        std::memcpy(there, piece.buffer, piece.length);
    } else {
        std::memcpy(piece.buffer, there, piece.length);
    }
    const double seconds = static_cast<double>(piece.length) / machine->rate;
    if (machine->rate > 0) machine->clock.advance(ucs::from_seconds(seconds));
    return UCS_OK;
}

class CopyQueueTest : public testing::Test {
  protected:
    CopyQueueTest() { machine = &machine_; }
    ~CopyQueueTest() override { machine = nullptr; }

    // Memory here and there.
    struct Bytes {
        explicit Bytes(size_t length) : here(length, 'h'), there(length, 't') {}
        LocalCopy put() {
            const Iov piece{here.data(), here.size(), nullptr};
            return {CopyDirection::kPut, {&piece, 1}, reinterpret_cast<uintptr_t>(there.data()), 0};
        }
        std::string here, there;
    };
    // Bytes that one call of progress copies.
    size_t progress(unsigned* ended = nullptr) {
        machine_.pieces.clear();
        const unsigned count = queue.progress();
        if (ended != nullptr) *ended = count;
        return copied();
    }
    size_t copied() const {
        size_t sum = 0;
        for (const size_t piece : machine_.pieces) sum += piece;
        return sum;
    }
    // The last piece may take what is little more than a turn.
    size_t most() const { return queue.turn_bytes() + queue.turn_bytes() / 2; }

    Machine machine_;
    CopyQueue queue{machine_.clock, move};
    Group group;
};

TEST_F(CopyQueueTest, ShortCopiesAreDoneAtOnce) {
    Bytes bytes(CopyQueue::kSlice);
    Done done;
    EXPECT_EQ(queue.start(group, bytes.put(), &done), UCS_OK);
    EXPECT_EQ(bytes.there, bytes.here);
    EXPECT_FALSE(done.is_done);
    EXPECT_FALSE(group.has_copies());
}

TEST_F(CopyQueueTest, ShortCopiesOfOnePieceCountAsPartsOfTheTurn) {
    Bytes bytes(CopyQueue::kSlice - 1);
    const auto copy = [&] {
        return queue.copy_short(CopyDirection::kPut,
                                {bytes.here.data(), bytes.here.size(), nullptr},
                                reinterpret_cast<uintptr_t>(bytes.there.data()), 0);
    };
    ASSERT_EQ(copy(), UCS_OK);
    EXPECT_EQ(bytes.there, bytes.here);
    while (copy() == UCS_OK) ASSERT_LE(copied(), most());
    EXPECT_EQ(copy(), UCS_ERR_NO_RESOURCE);
    EXPECT_TRUE(queue.needs_progress());
    progress();
    EXPECT_EQ(copy(), UCS_OK);
    machine_.status = UCS_ERR_INVALID_ADDR;
    progress();
    EXPECT_EQ(copy(), UCS_ERR_INVALID_ADDR);
    // Longer ones are timed, cut, and offered to the other process.
    Bytes longer(CopyQueue::kSlice);
    EXPECT_EQ(
        queue.copy_short(CopyDirection::kPut, {longer.here.data(), longer.here.size(), nullptr},
                         reinterpret_cast<uintptr_t>(longer.there.data()), 0),
        UCS_ERR_NO_RESOURCE);
}

TEST_F(CopyQueueTest, NoCallCopiesMoreThanATurn) {
    Bytes bytes(64 << 20);
    Done done;
    EXPECT_EQ(queue.start(group, bytes.put(), &done), UCS_INPROGRESS);
    EXPECT_LE(copied(), most());
    size_t all = copied();
    for (int calls = 0; !done.is_done; ++calls) {
        ASSERT_LT(calls, 1000);
        const size_t bytes_of_call = progress();
        EXPECT_LE(bytes_of_call, most());
        EXPECT_EQ(machine_.pieces.size(), 1u);
        all += bytes_of_call;
    }
    EXPECT_EQ(all, bytes.here.size());
    EXPECT_EQ(bytes.there, bytes.here);
    EXPECT_EQ(done.status, UCS_OK);
    EXPECT_FALSE(queue.needs_progress() && progress() != 0);
}

TEST_F(CopyQueueTest, ATurnFollowsTheMeasuredRate) {
    for (const double rate : {2e9, 10e9, 40e9, 1e12}) {
        machine_.rate = rate;
        Bytes bytes(64 << 20);
        Done done;
        EXPECT_EQ(queue.start(group, bytes.put(), &done), UCS_INPROGRESS);
        for (int call = 0; !done.is_done; ++call) {
            const ucs::Time begin = machine_.clock.now();
            progress();
            // A slice is the least, at 2e9 bytes a second.
            if (call > 20) {
                EXPECT_LE(machine_.clock.now() - begin, std::chrono::microseconds(100)) << rate;
            }
        }
        const double wanted = std::min(rate * ucs::seconds(CopyQueue::kTurn),
                                       static_cast<double>(CopyQueue::kMostBytes));
        EXPECT_NEAR(static_cast<double>(queue.turn_bytes()),
                    std::max(wanted, static_cast<double>(CopyQueue::kSlice)), 0.1 * wanted);
    }
}

TEST_F(CopyQueueTest, SeveralShareTurnsByBytes) {
    Bytes large(64 << 20), small(1 << 20);
    Done large_done, small_done;
    Group other;
    EXPECT_EQ(queue.start(group, large.put(), &large_done), UCS_INPROGRESS);
    progress();
    EXPECT_EQ(queue.start(other, small.put(), &small_done), UCS_INPROGRESS);
    size_t meanwhile = 0;
    while (!small_done.is_done) meanwhile += progress();
    // What the large one got meanwhile is as much, and what one call is about.
    EXPECT_LE(meanwhile - small.here.size(), small.here.size() + queue.turn_bytes());
    EXPECT_FALSE(large_done.is_done);
    while (!large_done.is_done) progress();
    EXPECT_EQ(large.there, large.here);
    EXPECT_EQ(small.there, small.here);
}

TEST_F(CopyQueueTest, FastCopiesAreNotCutSmall) {
    machine_.rate = 40e9;
    Bytes timed(64 << 20);
    Done timed_done;
    EXPECT_EQ(queue.start(group, timed.put(), &timed_done), UCS_INPROGRESS);
    while (!timed_done.is_done) progress();
    // As much as before takes a quarter of a turn now, so several of 256 KiB go in one piece each.
    std::vector<std::unique_ptr<Bytes>> bytes;
    std::vector<std::unique_ptr<Done>> done;
    size_t under_way = 0;
    for (int i = 0; i < 16; ++i) {
        bytes.push_back(std::make_unique<Bytes>(256 << 10));
        done.push_back(std::make_unique<Done>());
        if (queue.start(group, bytes.back()->put(), done.back().get()) == UCS_INPROGRESS)
            ++under_way;
    }
    ASSERT_GT(under_way, 2u);
    machine_.pieces.clear();
    while (!queue.empty()) queue.progress();
    EXPECT_EQ(machine_.pieces.size(), under_way);
    for (const auto& each : bytes) EXPECT_EQ(each->there, each->here);
}

TEST_F(CopyQueueTest, ShortCopiesDoNotWaitForLongOnes) {
    Bytes large(64 << 20), small(64 << 10);
    Done large_done, small_done;
    EXPECT_EQ(queue.start(group, large.put(), &large_done), UCS_INPROGRESS);
    // The turn is used up: it takes part in the next.
    EXPECT_FALSE(queue.has_room());
    EXPECT_EQ(queue.start(group, small.put(), &small_done), UCS_INPROGRESS);
    progress();
    EXPECT_TRUE(small_done.is_done);
    // Nor do those who wait for room, and what is started between two calls of progress.
    EXPECT_FALSE(large_done.is_done);
    EXPECT_TRUE(queue.has_room());
    EXPECT_EQ(queue.start(group, small.put(), &small_done), UCS_OK);
    queue.cancel(group);
    EXPECT_EQ(large_done.status, UCS_ERR_CANCELED);
}

// What one copy has left of a turn does not cut the next in two.
TEST_F(CopyQueueTest, ATurnIsRenewedBetweenCopies) {
    machine_.rate = 6e9;
    Bytes timed(64 << 20), bytes(256 << 10);
    Done timed_done, done;
    EXPECT_EQ(queue.start(group, timed.put(), &timed_done), UCS_INPROGRESS);
    while (!timed_done.is_done) progress();
    for (int message = 0; message < 10; ++message) {
        for (int calls = 0; queue.wants_progress(); ++calls) {
            ASSERT_LT(calls, 3);
            queue.progress();
        }
        machine_.pieces.clear();
        EXPECT_EQ(queue.start(group, bytes.put(), &done), UCS_OK) << message;
        EXPECT_EQ(machine_.pieces.size(), 1u);
    }
}

// Handlers of the same call of progress may have copied before the queue has its turn.
TEST_F(CopyQueueTest, WhatWasCopiedSinceIsAPartOfTheTurn) {
    Bytes large(64 << 20);
    Done large_done;
    EXPECT_EQ(queue.start(group, large.put(), &large_done), UCS_INPROGRESS);
    progress();
    const size_t plain = progress();
    queue.spend(queue.turn_bytes());
    EXPECT_EQ(progress(), CopyQueue::kSlice);
    EXPECT_EQ(progress(), plain);
    queue.cancel(group);
}

TEST_F(CopyQueueTest, ManyShortCopiesInOneCallAreNoLongOne) {
    std::vector<std::unique_ptr<Bytes>> bytes;
    std::vector<std::unique_ptr<Done>> done;
    size_t under_way = 0;
    for (int i = 0; i < 100; ++i) {
        bytes.push_back(std::make_unique<Bytes>(64 << 10));
        done.push_back(std::make_unique<Done>());
        if (queue.start(group, bytes.back()->put(), done.back().get()) == UCS_INPROGRESS)
            ++under_way;
    }
    EXPECT_LE(copied(), queue.turn_bytes() + CopyQueue::kSlice);
    EXPECT_GT(under_way, 80u);
    unsigned ended = 0;
    while (!queue.empty()) {
        unsigned now;
        EXPECT_LE(progress(&now), queue.turn_bytes() + CopyQueue::kSlice);
        ended += now;
    }
    EXPECT_EQ(ended, under_way);
    for (const auto& each : bytes) EXPECT_EQ(each->there, each->here);
}

TEST_F(CopyQueueTest, FlushWaitsForTheCopiesBeforeIt) {
    Bytes before(1 << 20), after(16 << 20), others(32 << 20);
    Done before_done, after_done, others_done, flushed, all_flushed;
    Group other;
    EXPECT_EQ(queue.flush(group, &flushed), UCS_OK);
    EXPECT_EQ(queue.start(group, before.put(), &before_done), UCS_INPROGRESS);
    EXPECT_EQ(queue.flush(group, nullptr), UCS_INPROGRESS);
    EXPECT_EQ(queue.flush(group, &flushed), UCS_INPROGRESS);
    EXPECT_EQ(queue.start(group, after.put(), &after_done), UCS_INPROGRESS);
    EXPECT_EQ(queue.start(other, others.put(), &others_done), UCS_INPROGRESS);
    EXPECT_EQ(queue.flush_all(&all_flushed), UCS_INPROGRESS);
    while (!flushed.is_done) progress();
    EXPECT_TRUE(before_done.is_done);
    EXPECT_FALSE(after_done.is_done);
    while (!all_flushed.is_done) progress();
    EXPECT_TRUE(after_done.is_done);
    EXPECT_TRUE(others_done.is_done);
    EXPECT_EQ(queue.flush_all(nullptr), UCS_OK);
    EXPECT_EQ(group.times_done, 1);
}

TEST_F(CopyQueueTest, AnErrorEndsOneCopy) {
    Bytes bytes(16 << 20), second(16 << 20);
    Done done, second_done;
    machine_.status = UCS_ERR_INVALID_ADDR;
    EXPECT_EQ(queue.start(group, bytes.put(), &done), UCS_ERR_INVALID_ADDR);
    machine_.status = UCS_OK;
    EXPECT_EQ(queue.start(group, bytes.put(), &done), UCS_INPROGRESS);
    EXPECT_EQ(queue.start(group, second.put(), &second_done), UCS_INPROGRESS);
    machine_.status = UCS_ERR_ENDPOINT_TIMEOUT;
    queue.progress();
    EXPECT_EQ(done.status, UCS_ERR_ENDPOINT_TIMEOUT);
    EXPECT_EQ(group.failure, UCS_ERR_ENDPOINT_TIMEOUT);
    EXPECT_TRUE(queue.empty());
    EXPECT_EQ(second_done.status, UCS_ERR_ENDPOINT_TIMEOUT);
}

TEST_F(CopyQueueTest, GroupsMayGoInsideCompletions) {
    auto going = std::make_unique<Group>();
    Bytes first(1 << 20), second(64 << 20), others(64 << 20);
    Done first_done, second_done, others_done, flushed;
    EXPECT_EQ(queue.start(*going, first.put(), &first_done), UCS_INPROGRESS);
    EXPECT_EQ(queue.start(*going, second.put(), &second_done), UCS_INPROGRESS);
    EXPECT_EQ(queue.flush(*going, &flushed), UCS_INPROGRESS);
    EXPECT_EQ(queue.start(group, others.put(), &others_done), UCS_INPROGRESS);
    first_done.then = [&] {
        queue.cancel(*going);
        going.reset();
    };
    while (!others_done.is_done) progress();
    EXPECT_EQ(first_done.status, UCS_OK);
    EXPECT_EQ(second_done.status, UCS_ERR_CANCELED);
    EXPECT_EQ(flushed.status, UCS_ERR_CANCELED);
    EXPECT_EQ(others.there, others.here);
}

TEST_F(CopyQueueTest, PiecesOfLocalMemoryFollowEachOther) {
    std::string one(300000, '1'), none, two(400000, '2'), there(700000, '.');
    const Iov pieces[] = {{one.data(), one.size(), nullptr},
                          {none.data(), 0, nullptr},
                          {two.data(), two.size(), nullptr}};
    Done done;
    const LocalCopy put(CopyDirection::kPut, pieces, reinterpret_cast<uintptr_t>(there.data()), 0);
    EXPECT_EQ(queue.start(group, put, &done), UCS_INPROGRESS);
    while (!done.is_done) progress();
    EXPECT_EQ(there, one + two);
    one.assign(one.size(), 'x');
    const LocalCopy get(CopyDirection::kGet, pieces, reinterpret_cast<uintptr_t>(there.data()), 0);
    Done got;
    EXPECT_EQ(queue.start(group, get, &got), UCS_INPROGRESS);
    while (!got.is_done) progress();
    EXPECT_EQ(there, one + two);
}

// Long copies are offered to a partner, which helps between the calls of progress.
class JointQueueTest : public CopyQueueTest {
  protected:
    static JointCopyBoard board;
    static JointCopy offer(const LocalCopy& copy, const Iov& piece) {
        return {board,
                {.owner = ucs::Process::self(),
                 .local = reinterpret_cast<uint64_t>(piece.buffer),
                 .remote = copy.remote(),
                 .length = piece.length,
                 .chunk = 0,
                 .key = 0,
                 .key_slot = 0,
                 .direction = copy.direction()},
                ucs::Process::self()};
    }
    size_t help(size_t most) {
        JointCopyPartner partner(
            [](const void* self, const JointCopyTerms&) {
                return static_cast<const JointQueueTest*>(self)->may_help;
            },
            this);
        return partner.help(board, most);
    }
    // Calls of progress until the copy is done, with so many bytes by the partner in between.
    unsigned calls_until(const Done& done, size_t helped) {
        unsigned calls = 0;
        for (; !done.is_done && calls < 1000; ++calls) {
            help(helped);
            queue.progress();
        }
        return calls;
    }

    bool may_help = true;
    CopyQueue queue{machine_.clock, move, nullptr, offer};
};
JointCopyBoard JointQueueTest::board;

TEST_F(JointQueueTest, APartnerHalvesTheCalls) {
    Bytes bytes(32 * queue.turn_bytes());
    unsigned calls[2];
    for (const bool is_helped : {false, true}) {
        std::memset(bytes.there.data(), 't', bytes.there.size());
        Done done;
        ASSERT_EQ(queue.start(group, bytes.put(), &done), UCS_INPROGRESS);
        calls[is_helped] = calls_until(done, is_helped ? queue.turn_bytes() : 0);
        EXPECT_TRUE(bytes.there == bytes.here);
        EXPECT_EQ(board.open, 0u);
    }
    EXPECT_LE(calls[1], calls[0] * 6 / 10);
}

TEST_F(JointQueueTest, OneThatIsAlmostDoneWaitsForThePartnersPart) {
    Bytes bytes(CopyQueue::kSlice * 2);
    Done done;
    JointCopyOffer* place = nullptr;
    queue.spend(queue.turn_bytes());  // nothing is done in the call
    ASSERT_EQ(queue.start(group, bytes.put(), &done), UCS_INPROGRESS);
    for (JointCopyOffer& each : board.places) {
        if (each.owner != 0) place = &each;
    }
    ASSERT_NE(place, nullptr);
    // The partner has a chunk, and takes its time.
    const uint64_t taken = place->chunks--;
    unsigned ended = 0;
    for (int i = 0; i < 10; ++i) ended += queue.progress();
    EXPECT_EQ(ended, 0u);
    EXPECT_TRUE(group.has_copies());
    EXPECT_FALSE(queue.sleep());
    Done flushed;
    EXPECT_EQ(queue.flush_all(&flushed), UCS_INPROGRESS);
    const uint64_t chunk = (taken & 0xfffff) - 1;
    std::memcpy(bytes.there.data() + chunk * place->terms.chunk,
                bytes.here.data() + chunk * place->terms.chunk, place->terms.chunk);
    --place->left;
    EXPECT_EQ(queue.progress(), 1u);
    EXPECT_TRUE(done.is_done && flushed.is_done);
    EXPECT_TRUE(bytes.there == bytes.here);
    EXPECT_TRUE(queue.empty());
}

TEST_F(JointQueueTest, WhatThePartnerCannotCopyIsDoneHere) {
    Bytes bytes(16 * queue.turn_bytes() + 5);
    Done done;
    ASSERT_EQ(queue.start(group, bytes.put(), &done), UCS_INPROGRESS);
    EXPECT_NE(help(queue.turn_bytes()), 0u);
    may_help = false;
    calls_until(done, 1);
    EXPECT_TRUE(done.is_done);
    EXPECT_TRUE(bytes.there == bytes.here);
}

TEST_F(JointQueueTest, CancelledOnesAreOfferedNoLonger) {
    Bytes bytes(16 * queue.turn_bytes());
    Done done;
    ASSERT_EQ(queue.start(group, bytes.put(), &done), UCS_INPROGRESS);
    queue.cancel(group);
    EXPECT_TRUE(done.is_done);
    EXPECT_EQ(help(SIZE_MAX), 0u);
    EXPECT_EQ(board.open, 0u);
}

TEST_F(JointQueueTest, AnErrorEndsTheOffer) {
    Bytes bytes(16 * queue.turn_bytes());
    Done done;
    ASSERT_EQ(queue.start(group, bytes.put(), &done), UCS_INPROGRESS);
    machine_.status = UCS_ERR_INVALID_ADDR;
    EXPECT_EQ(queue.progress(), 1u);
    EXPECT_EQ(done.status, UCS_ERR_INVALID_ADDR);
    EXPECT_EQ(help(SIZE_MAX), 0u);
}

}  // namespace
}  // namespace uct::test
