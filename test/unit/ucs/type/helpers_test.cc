// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <vector>

#include "ucs/type/bits.h"
#include "ucs/type/function_ref.h"

namespace ucs {
namespace {

TEST(Bits, Align) {
    EXPECT_EQ(align_up(0u, 64), 0u);
    EXPECT_EQ(align_up(1u, 64), 64u);
    EXPECT_EQ(align_up(64u, 64), 64u);
    EXPECT_EQ(align_down(size_t{127}, 64), 64u);
    EXPECT_TRUE(is_aligned(reinterpret_cast<void*>(128), 64));
    EXPECT_FALSE(is_aligned(reinterpret_cast<void*>(130), 64));
}

int apply(FunctionRef<int(int)> function) {
    return function(5);
}

TEST(FunctionRef, CallsWhatItRefersTo) {
    int calls = 0;
    EXPECT_EQ(apply([&](int value) { return ++calls, value * 2; }), 10);
    EXPECT_EQ(calls, 1);
    const auto twice = [](int value) { return value + value; };
    EXPECT_EQ(apply(twice), 10);
}

}  // namespace
}  // namespace ucs
