// SPDX-License-Identifier: BSD-3-Clause
#include "softhca/adapter/pin.h"

#include "common/locked_memory.h"

namespace softhca {
namespace {

char* page(size_t number) {
    return reinterpret_cast<char*>(number * static_cast<size_t>(sysconf(_SC_PAGESIZE)));
}

TEST(Pin, TakesWholePagesUpToTheLimit) {
    ucs::test::with_little_locked_memory([](rlim_t) {
        const auto size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        ucs::test::lock_at_most(4 * size - 1);
        std::optional<Pin> first = Pin::take(page(10) + 1, size);  // two pages
        ASSERT_TRUE(first);
        {
            const std::optional<Pin> same = Pin::take(page(10), 1);
            EXPECT_TRUE(same);
            EXPECT_FALSE(Pin::take(page(20), 1)) << "the same page counts twice";
        }
        EXPECT_FALSE(Pin::take(page(20), 2 * size)) << "what was refused is not kept";
        EXPECT_TRUE(Pin::take(page(20), size));
        EXPECT_TRUE(Pin::take(page(20), 0));
        *first = Pin();
        const std::optional<Pin> all = Pin::take(page(20), 3 * size);
        EXPECT_TRUE(all);
        EXPECT_FALSE(Pin::take(page(30), 1));
        ucs::test::lock_at_most(4 * size);
        EXPECT_TRUE(Pin::take(page(30), 1));
    });
}

TEST(Pin, HasNoLimitWithTheRightToLock) {
    if (!ucs::test::LockingRight().is_held()) GTEST_SKIP() << "this process has it not";
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &before), 0);
    ucs::test::lock_at_most(0);
    EXPECT_TRUE(Pin::take(page(10), 1));
    ucs::test::lock_at_most(before.rlim_cur);
}

}  // namespace
}  // namespace softhca
