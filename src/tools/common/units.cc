// SPDX-License-Identifier: BSD-3-Clause
#include "tools/common/units.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <stdexcept>

namespace tools {
namespace {

struct Quantity {
    double value;
    std::string_view unit;
};

Quantity split(std::string_view text, std::string_view what) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || value < 0 || !std::isfinite(value)) {
        throw std::invalid_argument(fmt::format("'{}' is no {}", text, what));
    }
    return {value, text.substr(end - text.data())};
}

}  // namespace

uint64_t parse_size(std::string_view text) {
    auto [value, unit] = split(text, "size");
    constexpr std::string_view kPrefixes = "KMGT";
    if (!unit.empty()) {
        const char prefix = static_cast<char>(std::toupper(static_cast<unsigned char>(unit[0])));
        if (const size_t power = kPrefixes.find(prefix); power != kPrefixes.npos) {
            value *= std::pow(1024.0, static_cast<double>(power + 1));
            unit.remove_prefix(1);
        }
    }
    if (!unit.empty() && unit != "B" && unit != "b" && unit != "iB") {
        throw std::invalid_argument(fmt::format("'{}' is no size: write 64, 4K, 1M or 2G", text));
    }
    if (value != std::floor(value) || value > 0x1p53) {
        throw std::invalid_argument(fmt::format("'{}' is no whole number of bytes", text));
    }
    return static_cast<uint64_t>(value);
}

int64_t parse_time(std::string_view text) {
    const auto [value, unit] = split(text, "time");
    struct Unit {
        std::string_view name;
        double nanoseconds;
    };
    constexpr std::array<Unit, 6> kUnits{
        {{"", 1e9}, {"s", 1e9}, {"ms", 1e6}, {"us", 1e3}, {"ns", 1}, {"m", 60e9}}};
    for (const Unit& known : kUnits) {
        if (unit != known.name) continue;
        if (value * known.nanoseconds > 0x1p62) break;
        return static_cast<int64_t>(value * known.nanoseconds);
    }
    throw std::invalid_argument(
        fmt::format("'{}' is no time: write 2s, 100ms, 20us or 300ns", text));
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
