// SPDX-License-Identifier: BSD-3-Clause
#include "tools/common/units.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "tools/program/options.h"

namespace tools {
namespace {

TEST(Units, Sizes) {
    EXPECT_EQ(parse_size("0"), 0u);
    EXPECT_EQ(parse_size("4K"), 4096u);
    EXPECT_EQ(parse_size("1.5m"), 1536u * 1024);
    EXPECT_EQ(parse_size("2GiB"), uint64_t{2} << 30);
    for (const char* wrong : {"", "x", "-1", "4Q", "1.5", "nan", "4K x", "inf", "1E"}) {
        EXPECT_THROW(parse_size(wrong), std::invalid_argument) << wrong;
    }
}

TEST(Units, Times) {
    EXPECT_EQ(parse_time("2"), 2'000'000'000);
    EXPECT_EQ(parse_time("0.5s"), 500'000'000);
    EXPECT_EQ(parse_time("20us"), 20'000);
    EXPECT_EQ(parse_time("2m"), 120'000'000'000);
    for (const char* wrong : {"", "ms", "-1s", "3 s", "1e300", "inf"}) {
        EXPECT_THROW(parse_time(wrong), std::invalid_argument) << wrong;
    }
}

TEST(Units, Ranges) {
    EXPECT_EQ(parse_size_range("8:4K").max, 4096u);
    EXPECT_EQ(parse_size_range("64").min, 64u);
    EXPECT_THROW(parse_size_range("9:8"), std::invalid_argument);
    EXPECT_THROW(parse_size_range("8:"), std::invalid_argument);
}

TEST(BenchOptions, SizesArePowersOfTwoAndTheLargest) {
    const BenchOptions options{.size_min = 0, .size_max = 6};
    EXPECT_EQ(options.sizes(), (std::vector<uint64_t>{0, 1, 2, 4, 6}));
}

TEST(Pacer, CountsOrFillsTheTime) {
    Pacer counted = Pacer::by_count(12);
    EXPECT_EQ(counted.next(0, 0), 12u);
    EXPECT_EQ(counted.next(1, 12), 0u);

    Pacer timed = Pacer::by_time(1'000'000);
    EXPECT_EQ(timed.next(0, 0), 1u);
    uint64_t done = 1;
    constexpr int64_t kRound = 100;
    while (const uint64_t more = timed.next(static_cast<int64_t>(done) * kRound, done)) {
        EXPECT_LE(more * kRound, 50'000u);
        done += more;
    }
    EXPECT_GE(done, 10'000u);
    EXPECT_LE(done, 10'500u);
    EXPECT_EQ(Pacer::by_time(0).next(0, 0), 0u);
}

}  // namespace
}  // namespace tools
