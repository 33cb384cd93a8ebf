// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/config/values.h"

#include <gtest/gtest.h>

#include <cmath>

namespace ucs::config {

enum class Colour { kRed, kGreen };

template <>
struct EnumNames<Colour> {
    static constexpr EnumName<Colour> kNames[] = {
        {"red", Colour::kRed}, {"green", Colour::kGreen}, {"verde", Colour::kGreen}};
};

namespace {

template <typename T>
std::optional<T> parsed(std::string_view text) {
    T value{};
    return Codec<T>::parse(text, value) ? std::optional<T>(value) : std::nullopt;
}

// What the text is printed as; "-" if it is no T. A printed value must give itself again.
template <typename T>
std::string canonical(std::string_view text) {
    T value{};
    if (!Codec<T>::parse(text, value)) return "-";
    std::string printed = Codec<T>::print(value);
    T again{};
    EXPECT_TRUE(Codec<T>::parse(printed, again)) << printed;
    EXPECT_EQ(Codec<T>::print(again), printed);
    return printed;
}

TEST(ConfigValues, Bool) {
    for (const char* yes : {"y", "Yes", "ON", "true", "1"}) EXPECT_EQ(parsed<bool>(yes), true);
    for (const char* no : {"n", "no", "off", "FALSE", "0"}) EXPECT_EQ(parsed<bool>(no), false);
    for (const char* bad : {"", "2", "yess", "try", "auto"}) EXPECT_FALSE(parsed<bool>(bad));
}

TEST(ConfigValues, Ternary) {
    EXPECT_EQ(parsed<Ternary>("try"), Ternary::kTry);
    EXPECT_EQ(parsed<Ternary>("on"), Ternary::kYes);
    EXPECT_EQ(parsed<Ternary>("n"), Ternary::kNo);
    EXPECT_FALSE(parsed<Ternary>("maybe"));
}

TEST(ConfigValues, OptionalIsAuto) {
    EXPECT_EQ(canonical<std::optional<bool>>("AUTO"), "auto");
    EXPECT_EQ(canonical<std::optional<bool>>("off"), "n");
    EXPECT_EQ(canonical<std::optional<MemorySize>>("2k"), "2k");
    EXPECT_EQ(canonical<std::optional<unsigned>>("-1"), "-");
}

TEST(ConfigValues, Integers) {
    EXPECT_EQ(parsed<int>("-5"), -5);
    EXPECT_EQ(parsed<unsigned>("0x1f"), 31u);
    EXPECT_EQ(parsed<unsigned>("inf"), std::numeric_limits<unsigned>::max());
    EXPECT_EQ(parsed<uint8_t>("255"), 255);
    EXPECT_FALSE(parsed<uint8_t>("256"));
    for (const char* bad : {"", "-1", "1.5", "7x", "0x", " 7"}) {
        EXPECT_FALSE(parsed<unsigned>(bad)) << bad;
    }
}

TEST(ConfigValues, Doubles) {
    EXPECT_EQ(parsed<double>("0.25"), 0.25);
    EXPECT_EQ(parsed<double>("-1e3"), -1000);
    EXPECT_TRUE(std::isinf(*parsed<double>("inf")));
    for (const char* bad : {"", "nan", "1,5", "-inf", "1e999"}) {
        EXPECT_FALSE(parsed<double>(bad)) << bad;
    }
}

TEST(ConfigValues, MemorySizes) {
    EXPECT_EQ(*parsed<MemorySize>("512"), 512u);
    EXPECT_EQ(*parsed<MemorySize>("512b"), 512u);
    EXPECT_EQ(*parsed<MemorySize>("64K"), 65536u);
    EXPECT_EQ(*parsed<MemorySize>("2MB"), 2u << 20);
    EXPECT_EQ(*parsed<MemorySize>("2MiB"), 2u << 20);
    EXPECT_EQ(*parsed<MemorySize>("1.5g"), 3ul << 29);
    EXPECT_EQ(*parsed<MemorySize>("18446744073709551614"), SIZE_MAX - 1);
    EXPECT_EQ(*parsed<MemorySize>("inf"), MemorySize::kInfinite);
    for (const char* bad :
         {"", "k", "-1", "1kk", "1x", "16777216t", "1e3", "auto", "99999999999p"}) {
        EXPECT_FALSE(parsed<MemorySize>(bad)) << bad;
    }
    EXPECT_EQ(canonical<MemorySize>("1536"), "1536");
    EXPECT_EQ(canonical<MemorySize>("2048k"), "2m");
    EXPECT_EQ(canonical<MemorySize>("0"), "0");
}

TEST(ConfigValues, Times) {
    EXPECT_EQ(*parsed<Duration>("100ms"), Duration(100ms));
    EXPECT_EQ(*parsed<Duration>("1.5us"), Duration(1500ns));
    EXPECT_EQ(*parsed<Duration>("0.1"), Duration(100ms));
    EXPECT_EQ(*parsed<Duration>("2S"), Duration(2s));
    EXPECT_EQ(*parsed<Duration>("3m"), Duration(3min));
    EXPECT_EQ(*parsed<Duration>("inf"), kForever);
    for (const char* bad : {"", "ms", "-1s", "1 day", "1e3s", "99999999999h"}) {
        EXPECT_FALSE(parsed<Duration>(bad)) << bad;
    }
    EXPECT_EQ(canonical<Duration>("1500us"), "1500us");
    EXPECT_EQ(canonical<Duration>("0.1"), "100ms");
    EXPECT_EQ(canonical<Duration>("7ns"), "7ns");
}

TEST(ConfigValues, Enums) {
    EXPECT_EQ(parsed<Colour>("Green"), Colour::kGreen);
    EXPECT_EQ(canonical<Colour>("verde"), "green");
    EXPECT_FALSE(parsed<Colour>("blue"));
    EXPECT_EQ(Codec<Colour>::expected(), "one of red|green|verde");
}

TEST(ConfigValues, Ranges) {
    EXPECT_EQ(*parsed<Range<unsigned>>("5000-6000"), (Range<unsigned>{5000, 6000}));
    EXPECT_EQ(canonical<Range<unsigned>>("7"), "7");
    EXPECT_TRUE(parsed<Range<unsigned>>("5-6")->contains(6));
    EXPECT_FALSE(parsed<Range<unsigned>>("5-6")->contains(7));
    for (const char* bad : {"", "-", "6-5", "5-", "5-6-7"}) {
        EXPECT_FALSE(parsed<Range<unsigned>>(bad)) << bad;
    }
}

TEST(ConfigValues, Lists) {
    EXPECT_EQ(canonical<std::vector<unsigned>>("1, 2,3"), "1,2,3");
    EXPECT_EQ(canonical<std::vector<std::string>>(""), "");
    EXPECT_EQ(canonical<std::vector<Range<unsigned>>>("1-2,8"), "1-2,8");
    EXPECT_EQ(canonical<std::vector<unsigned>>("1,,2"), "-");
}

TEST(ConfigValues, AllowLists) {
    const auto all = *parsed<AllowList>("all");
    EXPECT_TRUE(all.allows("tcp"));
    const auto some = *parsed<AllowList>("rc, dc");
    EXPECT_TRUE(some.allows("dc"));
    EXPECT_FALSE(some.allows("tcp"));
    const auto but = *parsed<AllowList>("^tcp,sm");
    EXPECT_FALSE(but.allows("tcp"));
    EXPECT_TRUE(but.allows("rc"));
    EXPECT_EQ(canonical<AllowList>("^tcp,sm"), "^tcp,sm");
    EXPECT_EQ(canonical<AllowList>("all,rc"), "all");
    EXPECT_FALSE(parsed<AllowList>("^all"));
    EXPECT_FALSE(parsed<AllowList>("a,,b"));
    EXPECT_FALSE(AllowList{.negated = false}.allows("rc"));
}

}  // namespace
}  // namespace ucs::config
