// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/sys/spin_lock.h"

#include <gtest/gtest.h>

#include <mutex>
#include <thread>
#include <vector>

namespace ucs {
namespace {

TEST(SpinLock, IsTakenByOneAtATime) {
    SpinLock lock;
    EXPECT_TRUE(lock.try_lock());
    EXPECT_FALSE(lock.try_lock());
    lock.unlock();
    EXPECT_TRUE(lock.try_lock());
    lock.unlock();
}

TEST(SpinLock, KeepsThreadsApart) {
    constexpr unsigned kThreads = 4, kRounds = 20'000;
    SpinLock lock;
    unsigned count = 0;
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < kThreads; ++i) {
        threads.emplace_back([&] {
            for (unsigned round = 0; round < kRounds; ++round) {
                std::lock_guard guard(lock);
                ++count;
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(count, kThreads * kRounds);
}

}  // namespace
}  // namespace ucs
