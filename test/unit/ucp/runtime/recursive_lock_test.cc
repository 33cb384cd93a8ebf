// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/runtime/recursive_lock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

namespace ucp::test {
namespace {

TEST(RecursiveLock, AnotherThreadGetsItWhenItIsUnlockedAsOftenAsLocked) {
    RecursiveLock lock;
    std::atomic<bool> has_it{false};
    lock.lock();
    lock.lock();
    std::thread other([&] {
        const std::lock_guard guard(lock);
        has_it = true;
    });
    lock.unlock();
    // It cannot have it however long this takes.
    for (int i = 0; i < 100; ++i) std::this_thread::yield();
    EXPECT_FALSE(has_it);
    lock.unlock();
    other.join();
    EXPECT_TRUE(has_it);
}

TEST(RecursiveLock, ThreadsThatOutnumberProcessorsCountRight) {
    constexpr size_t kRounds = 20000;
    const size_t count = 4 * std::max(1u, std::thread::hardware_concurrency());
    RecursiveLock lock;
    uint64_t sum = 0;
    std::vector<std::thread> threads;
    for (size_t i = 0; i < count; ++i) {
        threads.emplace_back([&] {
            for (size_t round = 0; round < kRounds; ++round) {
                const std::lock_guard guard(lock);
                const std::lock_guard again(lock);
                ++sum;
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(sum, count * kRounds);
}

// Of as many times as it is asked, how often would a holder with nothing to do give way?
unsigned turns_of(RecursiveLock& lock, unsigned times) {
    unsigned turns = 0;
    for (unsigned i = 0; i < times; ++i) {
        const std::lock_guard guard(lock);
        turns += lock.should_give_way() ? 1 : 0;
    }
    return turns;
}

TEST(RecursiveLock, NobodyGivesWayWhereNobodyHasWaited) {
    RecursiveLock lock;
    EXPECT_EQ(turns_of(lock, 10 * RecursiveLock::kTurn), 0u);
}

// Another thread waits for some time, unless the system lets it run too late.
void let_wait(RecursiveLock& lock) {
    lock.lock();
    std::atomic<bool> has_begun{false};
    std::thread other([&] {
        has_begun = true;
        const std::lock_guard guard(lock);
    });
    while (!has_begun) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    lock.unlock();
    other.join();
}

TEST(RecursiveLock, AfterALongWaitHoldersGiveWayForAWhile) {
    RecursiveLock lock;
    unsigned turns = 0;
    for (int attempt = 0; attempt < 1000 && turns == 0; ++attempt) {
        let_wait(lock);
        const std::lock_guard guard(lock);
        // Within a call that holds the lock already nobody is asked.
        ASSERT_EQ(turns_of(lock, 10 * RecursiveLock::kTurn), 0u);
        lock.unlock();
        turns = turns_of(lock, RecursiveLock::kCrowded);
        lock.lock();
    }
    EXPECT_EQ(turns, RecursiveLock::kCrowded / RecursiveLock::kTurn + 1);
    EXPECT_EQ(turns_of(lock, 10 * RecursiveLock::kTurn), 0u);
}

}  // namespace
}  // namespace ucp::test
