// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tools {

// All of these throw std::invalid_argument with a text for the user.

// "64", "4K", "1M", "2GiB": bytes, units of 1,024.
uint64_t parse_size(std::string_view text);

// "0.5", "0.5s", "100ms", "20us", "3ns": nanoseconds; a bare number is in seconds.
int64_t parse_time(std::string_view text);

struct SizeRange {
    uint64_t min;
    uint64_t max;
};

// "MIN:MAX" or one size.
SizeRange parse_size_range(std::string_view text);

// 1,234 ns as "1.23 us".
std::string format_time(double nanoseconds);

}  // namespace tools
