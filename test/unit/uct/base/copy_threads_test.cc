// SPDX-License-Identifier: BSD-3-Clause
#include "uct/base/copy_threads.h"

#include <gtest/gtest.h>

#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <system_error>
#include <thread>

#include "unit/uct/base/copy_group.h"

namespace uct::test {
namespace {

using namespace std::chrono_literals;

// What copies do in threads, in real time.
struct ThreadMachine {
    std::thread::id program = std::this_thread::get_id();
    std::atomic<bool> holds_threads{false};  // they stay in the piece that they copy
    std::atomic<unsigned> held{0};
    std::atomic<size_t> by_program{0};
    std::atomic<ucs_status_t> status{UCS_OK};  // of threads' pieces
};
ThreadMachine* thread_machine;

ucs_status_t move_in_threads(CopyDirection direction, const Iov& piece, uint64_t remote,
                             RemoteKey) {
    const bool is_thread = std::this_thread::get_id() != thread_machine->program;
    if (is_thread) {
        ++thread_machine->held;
        while (thread_machine->holds_threads) std::this_thread::yield();
        if (thread_machine->status != UCS_OK) {
            --thread_machine->held;
            return thread_machine->status;
        }
    } else {
        thread_machine->by_program += piece.length;
    }
    auto* const there = reinterpret_cast<void*>(remote);
    const bool is_put = direction == CopyDirection::kPut;
    std::memcpy(is_put ? there : piece.buffer, is_put ? piece.buffer : there, piece.length);
    if (is_thread) --thread_machine->held;
    return UCS_OK;
}

// Memory here and there.
struct Bytes {
    explicit Bytes(size_t length) : here(length, 'h'), there(length, 't') {
        for (size_t at = 0; at < length; at += 4096) here[at] = static_cast<char>('a' + at % 23);
    }
    LocalCopy put() {
        const Iov piece{here.data(), here.size(), nullptr};
        return {CopyDirection::kPut, {&piece, 1}, reinterpret_cast<uintptr_t>(there.data()), 0};
    }
    std::string here, there;
};

class CopyThreadsTest : public testing::TestWithParam<unsigned> {
  protected:
    CopyThreadsTest() { thread_machine = &machine_; }
    ~CopyThreadsTest() override {
        machine_.holds_threads = false;
        queue.cancel(group);
    }

    template <typename Condition>
    static bool await(Condition condition) {
        const auto end = std::chrono::steady_clock::now() + 60s;
        while (!condition()) {
            if (std::chrono::steady_clock::now() > end) return false;
            std::this_thread::yield();
        }
        return true;
    }
    bool finish(const Done& done) {
        return await([&] {
            queue.progress();
            return done.is_done;
        });
    }

    ThreadMachine machine_;
    ucs::WallClock clock;
    CopyThreads threads{GetParam()};
    CopyQueue queue{clock, move_in_threads, &threads};
    Group group;
};

INSTANTIATE_TEST_SUITE_P(Counts, CopyThreadsTest, testing::Values(1u, 3u));

TEST_P(CopyThreadsTest, CopyWhileTheProgramMakesNoCall) {
    Bytes bytes(16 << 20);
    Done done;
    ASSERT_EQ(queue.start(group, bytes.put(), &done), UCS_INPROGRESS);
    ASSERT_TRUE(await([&] { return threads.bytes() == bytes.here.size(); }));
    EXPECT_EQ(machine_.by_program, 0u);
    EXPECT_FALSE(done.is_done);
    ASSERT_TRUE(finish(done));
    EXPECT_EQ(done.status, UCS_OK);
    EXPECT_TRUE(bytes.there == bytes.here);
    EXPECT_EQ(group.times_done, 1);
    EXPECT_TRUE(queue.empty());
}

TEST_P(CopyThreadsTest, WhatIsATurnsWorkIsDoneAtOnce) {
    Bytes bytes(CopyQueue::kSlice);
    Done done;
    EXPECT_EQ(queue.start(group, bytes.put(), &done), UCS_OK);
    EXPECT_TRUE(bytes.there == bytes.here);
    EXPECT_EQ(threads.bytes(), 0u);
}

TEST_P(CopyThreadsTest, TheProgramTakesItsPartIfItCallsProgress) {
    machine_.holds_threads = true;
    Bytes bytes(16 << 20);
    Done done;
    ASSERT_EQ(queue.start(group, bytes.put(), &done), UCS_INPROGRESS);
    ASSERT_TRUE(await([&] { return machine_.held == GetParam(); }));
    // All but what the threads hold.
    const size_t rest = bytes.here.size() - GetParam() * CopyThreads::kPiece;
    for (int calls = 0; machine_.by_program < rest; ++calls) {
        ASSERT_LT(calls, 1000);
        const size_t before = machine_.by_program;
        queue.progress();
        EXPECT_LE(machine_.by_program - before, 2 * queue.turn_bytes());
    }
    EXPECT_EQ(machine_.by_program, rest);
    EXPECT_EQ(queue.progress(), 0u);
    EXPECT_FALSE(done.is_done);
    machine_.holds_threads = false;
    ASSERT_TRUE(finish(done));
    EXPECT_TRUE(bytes.there == bytes.here);
}

// What was canceled may be freed at once.
TEST_P(CopyThreadsTest, NothingIsCopiedBehindACancel) {
    for (int round = 0; round < 50; ++round) {
        auto bytes = std::make_unique<Bytes>(4 << 20), others = std::make_unique<Bytes>(4 << 20);
        Done first, second;
        const uint64_t before = threads.bytes();
        ASSERT_EQ(queue.start(group, bytes->put(), &first), UCS_INPROGRESS);
        ASSERT_EQ(queue.start(group, others->put(), &second), UCS_INPROGRESS);
        const bool is_begun = round % 3 != 0;
        if (is_begun) {
            ASSERT_TRUE(await([&] { return threads.bytes() > before; }));
        }
        queue.cancel(group);
        EXPECT_EQ(machine_.held, 0u);
        const bool both = first.is_done && second.is_done;
        EXPECT_TRUE(both);
        bytes.reset();
        others.reset();
    }
    EXPECT_TRUE(queue.empty());
}

TEST_P(CopyThreadsTest, ACancelWaitsForThePieceUnderWay) {
    machine_.holds_threads = true;
    Bytes bytes(4 << 20);
    Done done;
    ASSERT_EQ(queue.start(group, bytes.put(), &done), UCS_INPROGRESS);
    ASSERT_TRUE(await([&] { return machine_.held == GetParam(); }));
    std::thread later([&] {
        std::this_thread::sleep_for(20ms);
        machine_.holds_threads = false;
    });
    queue.cancel(group);
    EXPECT_FALSE(machine_.holds_threads);
    EXPECT_EQ(machine_.held, 0u);
    EXPECT_EQ(done.status, UCS_ERR_CANCELED);
    later.join();
}

TEST_P(CopyThreadsTest, AnErrorEndsTheCopyOnce) {
    machine_.status = UCS_ERR_ENDPOINT_TIMEOUT;
    Bytes bytes(16 << 20);
    Done done;
    ASSERT_EQ(queue.start(group, bytes.put(), &done), UCS_INPROGRESS);
    ASSERT_TRUE(await([&] { return threads.bytes() != 0; }));
    ASSERT_TRUE(finish(done));
    EXPECT_EQ(done.status, UCS_ERR_ENDPOINT_TIMEOUT);
    EXPECT_EQ(group.failure, UCS_ERR_ENDPOINT_TIMEOUT);
    EXPECT_TRUE(queue.empty());
    // Nothing of it is left to the threads.
    machine_.status = UCS_OK;
    Bytes next(8 << 20);
    Done next_done;
    ASSERT_EQ(queue.start(group, next.put(), &next_done), UCS_INPROGRESS);
    ASSERT_TRUE(finish(next_done));
    EXPECT_EQ(next_done.status, UCS_OK);
    EXPECT_TRUE(next.there == next.here);
}

TEST_P(CopyThreadsTest, FlushesWaitForThem) {
    machine_.holds_threads = true;
    Bytes bytes(4 << 20), others(4 << 20);
    Done done, others_done, flushed, all_flushed;
    Group other;
    ASSERT_EQ(queue.start(group, bytes.put(), &done), UCS_INPROGRESS);
    ASSERT_EQ(queue.start(other, others.put(), &others_done), UCS_INPROGRESS);
    EXPECT_EQ(queue.flush(group, &flushed), UCS_INPROGRESS);
    EXPECT_EQ(queue.flush_all(&all_flushed), UCS_INPROGRESS);
    ASSERT_TRUE(await([&] { return machine_.held == GetParam(); }));
    for (int calls = 0; calls < 100; ++calls) queue.progress();
    EXPECT_FALSE(flushed.is_done && all_flushed.is_done);
    machine_.holds_threads = false;
    ASSERT_TRUE(finish(all_flushed));
    EXPECT_TRUE(done.is_done && others_done.is_done && flushed.is_done);
    EXPECT_EQ(queue.flush_all(nullptr), UCS_OK);
}

TEST_P(CopyThreadsTest, WakeUpWhoSleeps) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    queue.set_wake_descriptor(ends[1]);
    machine_.holds_threads = true;
    Bytes bytes(4 << 20);
    Done done;
    ASSERT_EQ(queue.start(group, bytes.put(), &done), UCS_INPROGRESS);
    ASSERT_TRUE(queue.sleep());
    pollfd source{ends[0], POLLIN, 0};
    EXPECT_EQ(poll(&source, 1, 20), 0);
    machine_.holds_threads = false;
    EXPECT_EQ(poll(&source, 1, 60000), 1);
    EXPECT_FALSE(queue.sleep());
    EXPECT_EQ(queue.progress(), 1u);
    EXPECT_TRUE(done.is_done);
    EXPECT_TRUE(queue.sleep());
    close(ends[0]);
    close(ends[1]);
}

// Where there may be no more threads copies go on without.
TEST_P(CopyThreadsTest, NoThreadsAreNoFailure) {
    threads.set_spawn([](const std::function<void()>&) -> std::thread {
        throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
    });
    Bytes bytes(16 << 20);
    Done done;
    ASSERT_EQ(queue.start(group, bytes.put(), &done), UCS_INPROGRESS);
    ASSERT_TRUE(finish(done));
    EXPECT_EQ(threads.bytes(), 0u);
    EXPECT_TRUE(bytes.there == bytes.here);
}

// The program has bound itself meanwhile, to where it computes.
TEST_P(CopyThreadsTest, RunElsewhereThanWhoIsBound) {
    cpu_set_t before, one, others;
    ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
    if (CPU_COUNT(&before) < 2) GTEST_SKIP() << "one processor";
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    CPU_XOR(&others, &before, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    machine_.holds_threads = true;
    Bytes bytes(4 << 20);
    Done done;
    EXPECT_EQ(queue.start(group, bytes.put(), &done), UCS_INPROGRESS);
    EXPECT_TRUE(await([&] { return machine_.held == GetParam(); }));
    EXPECT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
    for (const std::thread::native_handle_type thread : threads.handles()) {
        cpu_set_t its;
        ASSERT_EQ(pthread_getaffinity_np(thread, sizeof(its), &its), 0);
        EXPECT_TRUE(CPU_EQUAL(&its, &others));
    }
    machine_.holds_threads = false;
    queue.cancel(group);
}

}  // namespace
}  // namespace uct::test
