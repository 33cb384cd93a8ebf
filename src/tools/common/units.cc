// SPDX-License-Identifier: BSD-3-Clause
#include "tools/common/units.h"

#include <fmt/format.h>

#include <stdexcept>

#include "ucs/config/values.h"

namespace tools {

// As variables are read, but a size has no fraction of a byte, and nothing is infinite.
uint64_t parse_size(std::string_view text) {
    ucs::config::MemorySize size;
    const bool is_fraction =
        text.find('.') != text.npos && text.back() >= '.' && text.back() <= '9';
    if (is_fraction || !ucs::config::Codec<ucs::config::MemorySize>::parse(text, size) ||
        size.bytes == ucs::config::MemorySize::kInfinite) {
        throw std::invalid_argument(fmt::format("'{}' is no size: write 64, 4K, 1M or 2G", text));
    }
    return size.bytes;
}

int64_t parse_time(std::string_view text) {
    ucs::Duration time{};
    if (!ucs::config::Codec<ucs::Duration>::parse(text, time) || time == ucs::kForever) {
        throw std::invalid_argument(
            fmt::format("'{}' is no time: write 2s, 100ms, 20us or 300ns", text));
    }
    return time.count();
}

SizeRange parse_size_range(std::string_view text) {
    const size_t colon = text.find(':');
    const uint64_t min = parse_size(text.substr(0, colon));
    const uint64_t max = colon == text.npos ? min : parse_size(text.substr(colon + 1));
    if (min > max) {
        throw std::invalid_argument(fmt::format("'{}' is no range: write MIN:MAX", text));
    }
    return {min, max};
}

std::string format_time(double nanoseconds) {
    if (nanoseconds < 1e3) return fmt::format("{:.0f} ns", nanoseconds);
    if (nanoseconds < 1e6) return fmt::format("{:.2f} us", nanoseconds / 1e3);
    if (nanoseconds < 1e9) return fmt::format("{:.2f} ms", nanoseconds / 1e6);
    return fmt::format("{:.2f} s", nanoseconds / 1e9);
}

}  // namespace tools
