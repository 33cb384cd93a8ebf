// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/config/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

namespace ucs::config {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Unit {
    std::string_view name;
    double factor;
};

constexpr Unit kTimeUnits[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3},
                               {"s", 1},     {"m", 60},    {"h", 3600}};
constexpr Unit kBinaryUnits[] = {
    {"k", 0x1p10}, {"m", 0x1p20}, {"g", 0x1p30}, {"t", 0x1p40}, {"p", 0x1p50}};

bool is_infinite(std::string_view text) {
    return internal::equal_ignoring_case(text, "inf");
}

}  // namespace

namespace internal {

bool equal_ignoring_case(std::string_view left, std::string_view right) {
    return std::equal(left.begin(), left.end(), right.begin(), right.end(), [](char a, char b) {
        return std::tolower(static_cast<unsigned char>(a)) ==
               std::tolower(static_cast<unsigned char>(b));
    });
}

std::string_view trim(std::string_view text) {
    constexpr std::string_view kBlanks = " \t\r\n";
    const size_t first = text.find_first_not_of(kBlanks);
    if (first == text.npos) return {};
    return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    if (trim(text).empty()) return parts;
    for (;;) {
        const size_t end = text.find(separator);
        parts.push_back(trim(text.substr(0, end)));
        if (end == text.npos) return parts;
        text.remove_prefix(end + 1);
    }
}

bool take_number(std::string_view& text, double& value) {
    if (text.empty() || (text[0] != '.' && !std::isdigit(static_cast<unsigned char>(text[0])))) {
        return false;
    }
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
    if (error != std::errc()) return false;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    return true;
}

}  // namespace internal

bool AllowList::allows(std::string_view name) const {
    return (std::find(names.begin(), names.end(), name) != names.end()) != negated;
}

bool Codec<bool>::parse(std::string_view text, bool& value) {
    for (const std::string_view yes : {"y", "yes", "on", "true", "1"}) {
        if (internal::equal_ignoring_case(text, yes)) {
            value = true;
            return true;
        }
    }
    for (const std::string_view no : {"n", "no", "off", "false", "0"}) {
        if (internal::equal_ignoring_case(text, no)) {
            value = false;
            return true;
        }
    }
    return false;
}

bool Codec<Ternary>::parse(std::string_view text, Ternary& value) {
    bool decided = false;
    if (Codec<bool>::parse(text, decided)) {
        value = decided ? Ternary::kYes : Ternary::kNo;
    } else if (internal::equal_ignoring_case(text, "try")) {
        value = Ternary::kTry;
    } else {
        return false;
    }
    return true;
}

std::string Codec<Ternary>::print(Ternary value) {
    return value == Ternary::kTry ? "try" : value == Ternary::kYes ? "y" : "n";
}

bool Codec<double>::parse(std::string_view text, double& value) {
    if (is_infinite(text)) {
        value = kInfinity;
        return true;
    }
    double parsed = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parsed);
    if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(parsed)) {
        return false;
    }
    value = parsed;
    return true;
}

std::string Codec<double>::print(double value) {
    return fmt::format("{}", value);
}

bool Codec<MemorySize>::parse(std::string_view text, MemorySize& value) {
    if (is_infinite(text)) {
        value.bytes = MemorySize::kInfinite;
        return true;
    }
    // Whole numbers stay integers: a double holds no size above 2^53 exactly.
    size_t whole = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), whole);
    double number = 0;
    std::string_view rest = text;
    if (!internal::take_number(rest, number)) return false;
    const bool is_whole = error == std::errc() && end == rest.data();

    unsigned shift = 0;
    if (!rest.empty()) {
        for (unsigned index = 0; index < std::size(kBinaryUnits); ++index) {
            if (std::tolower(static_cast<unsigned char>(rest[0])) == kBinaryUnits[index].name[0]) {
                shift = 10 * (index + 1);
                rest.remove_prefix(1);
                break;
            }
        }
    }
    if (shift != 0 && internal::equal_ignoring_case(rest.substr(0, 1), "i")) rest.remove_prefix(1);
    if (!rest.empty() && !internal::equal_ignoring_case(rest, "b")) return false;

    if (is_whole) {
        if (whole > (MemorySize::kInfinite - 1) >> shift) return false;
        value.bytes = whole << shift;
    } else {
        number *= std::ldexp(1.0, static_cast<int>(shift));
        if (number >= 0x1p63) return false;
        value.bytes = static_cast<size_t>(number);
    }
    return true;
}

std::string Codec<MemorySize>::print(MemorySize value) {
    if (value.bytes == MemorySize::kInfinite) return "inf";
    size_t number = value.bytes;
    std::string_view unit;
    for (const Unit& next : kBinaryUnits) {
        if (number == 0 || number % 1024 != 0) break;
        number /= 1024;
        unit = next.name;
    }
    return fmt::format("{}{}", number, unit);
}

bool Codec<Duration>::parse(std::string_view text, Duration& value) {
    if (is_infinite(text)) {
        value = kForever;
        return true;
    }
    double number = 0;
    if (!internal::take_number(text, number)) return false;
    double factor = text.empty() ? 1 : 0;
    for (const Unit& unit : kTimeUnits) {
        if (internal::equal_ignoring_case(text, unit.name)) factor = unit.factor;
    }
    if (factor == 0) return false;
    const double nanoseconds = std::round(number * factor * 1e9);
    if (nanoseconds >= 0x1p63) return false;
    value = Duration(static_cast<Duration::rep>(nanoseconds));
    return true;
}

std::string Codec<Duration>::print(Duration value) {
    if (value == kForever) return "inf";
    struct Scale {
        std::string_view name;
        int64_t nanoseconds;
    };
    constexpr Scale kScales[] = {{"s", 1000000000}, {"ms", 1000000}, {"us", 1000}};
    for (const Scale& scale : kScales) {
        if (value.count() % scale.nanoseconds == 0) {
            return fmt::format("{}{}", value.count() / scale.nanoseconds, scale.name);
        }
    }
    return fmt::format("{}ns", value.count());
}

bool Codec<std::string>::parse(std::string_view text, std::string& value) {
    value = text;
    return true;
}

bool Codec<AllowList>::parse(std::string_view text, AllowList& value) {
    AllowList parsed{.negated = text.starts_with('^')};
    if (parsed.negated) text.remove_prefix(1);
    for (const std::string_view name : internal::split(text, ',')) {
        if (name.empty()) return false;
        parsed.names.emplace_back(name);
    }
    const auto all = std::find(parsed.names.begin(), parsed.names.end(), "all");
    if (all != parsed.names.end()) {
        // "all" beside other names adds nothing; "all but all" would be a slip.
        if (parsed.negated) return false;
        parsed = {};
    }
    value = std::move(parsed);
    return true;
}

std::string Codec<AllowList>::print(const AllowList& value) {
    if (value.negated && value.names.empty()) return "all";
    std::string text = value.negated ? "^" : "";
    for (size_t index = 0; index < value.names.size(); ++index) {
        if (index != 0) text += ',';
        text += value.names[index];
    }
    return text;
}

}  // namespace ucs::config
