// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ucs/sys/time.h"

// The types that a configuration variable may have, and how each is read from and written as text.
//
//   bool                     y n yes no on off true false 1 0
//   Ternary                  a bool, or "try": if it can be had
//   int, unsigned, ...       digits; "inf" is the largest value
//   double                   digits with fraction and exponent; "inf"
//   MemorySize               512, 64k, 2MB, 1.5g; "inf"
//   Duration                 10us, 1.5ms, 2s, 1m; a bare number is seconds; "inf"
//   std::string              as it is
//   an enumeration           the names that EnumNames gives
//   Range<T>                 5000-6000, or one value
//   std::vector<T>           comma-separated
//   AllowList                "all", "a,b", or "^a,b": all but these
//   std::optional<T>         a T, or "auto": the library decides
namespace ucs::config {

enum class Ternary { kNo, kYes, kTry };

struct MemorySize {
    size_t bytes = 0;

    static constexpr size_t kInfinite = std::numeric_limits<size_t>::max();

    constexpr operator size_t() const { return bytes; }  // NOLINT(google-explicit-constructor)
};

// Both ends belong to it.
template <typename T>
struct Range {
    T first{};
    T last{};

    constexpr bool contains(T value) const { return first <= value && value <= last; }
    friend bool operator==(const Range&, const Range&) = default;
};

struct AllowList {
    bool negated = true;
    std::vector<std::string> names{};

    bool allows(std::string_view name) const;
    friend bool operator==(const AllowList&, const AllowList&) = default;
};

template <typename E>
struct EnumName {
    std::string_view name;
    E value;
};

// Specialise it with a `static constexpr EnumName<E> kNames[]`. The first name of a value is the
// one that is printed; matching ignores case.
template <typename E>
struct EnumNames;

// Codec<T>: parse() leaves `value` alone and returns false if `text` is no T; print() gives text
// that parses to the same value; expected() completes "expected ...".
template <typename T>
struct Codec;

namespace internal {

bool equal_ignoring_case(std::string_view left, std::string_view right);
std::string_view trim(std::string_view text);
std::vector<std::string_view> split(std::string_view text, char separator);

// A non-negative decimal number with an optional fraction at the start of `text`; removes it.
bool take_number(std::string_view& text, double& value);

template <typename E>
std::string join_names() {
    std::string names;
    for (const auto& entry : EnumNames<E>::kNames) {
        if (!names.empty()) names += '|';
        names += entry.name;
    }
    return names;
}

}  // namespace internal

template <>
struct Codec<bool> {
    static bool parse(std::string_view text, bool& value);
    static std::string print(bool value) { return value ? "y" : "n"; }
    static std::string expected() { return "y|n"; }
};

template <>
struct Codec<Ternary> {
    static bool parse(std::string_view text, Ternary& value);
    static std::string print(Ternary value);
    static std::string expected() { return "y|n|try"; }
};

template <>
struct Codec<double> {
    static bool parse(std::string_view text, double& value);
    static std::string print(double value);
    static std::string expected() { return "a number, or inf"; }
};

template <>
struct Codec<MemorySize> {
    static bool parse(std::string_view text, MemorySize& value);
    static std::string print(MemorySize value);
    static std::string expected() { return "a size in bytes such as 512, 64k, 2m, 1g, or inf"; }
};

template <>
struct Codec<Duration> {
    static bool parse(std::string_view text, Duration& value);
    static std::string print(Duration value);
    static std::string expected() { return "a time such as 10us, 1.5ms, 2s, 1m, or inf"; }
};

template <>
struct Codec<std::string> {
    static bool parse(std::string_view text, std::string& value);
    static std::string print(const std::string& value) { return value; }
    static std::string expected() { return "text"; }
};

template <>
struct Codec<AllowList> {
    static bool parse(std::string_view text, AllowList& value);
    static std::string print(const AllowList& value);
    static std::string expected() { return "all, or names separated by commas (^ in front: but)"; }
};

template <typename T>
requires std::integral<T>
struct Codec<T> {
    static bool parse(std::string_view text, T& value) {
        if (internal::equal_ignoring_case(text, "inf")) {
            value = std::numeric_limits<T>::max();
            return true;
        }
        int base = 10;
        if (text.starts_with("0x")) {
            text.remove_prefix(2);
            base = 16;
        }
        T parsed{};
        const auto [end, error] =
            std::from_chars(text.data(), text.data() + text.size(), parsed, base);
        if (error != std::errc() || end != text.data() + text.size()) return false;
        value = parsed;
        return true;
    }
    static std::string print(T value) {
        return value == std::numeric_limits<T>::max() ? "inf" : std::to_string(value);
    }
    static std::string expected() {
        return std::is_signed_v<T> ? "an integer, or inf"
                                   : "an integer from 0 to " +
                                         std::to_string(std::numeric_limits<T>::max()) + ", or inf";
    }
};

template <typename E>
requires std::is_enum_v<E>
struct Codec<E> {
    static bool parse(std::string_view text, E& value) {
        for (const auto& entry : EnumNames<E>::kNames) {
            if (internal::equal_ignoring_case(text, entry.name)) {
                value = entry.value;
                return true;
            }
        }
        return false;
    }
    static std::string print(E value) {
        for (const auto& entry : EnumNames<E>::kNames) {
            if (entry.value == value) return std::string(entry.name);
        }
        return std::to_string(static_cast<std::underlying_type_t<E>>(value));
    }
    static std::string expected() { return "one of " + internal::join_names<E>(); }
};

template <typename T>
struct Codec<std::optional<T>> {
    static bool parse(std::string_view text, std::optional<T>& value) {
        if (internal::equal_ignoring_case(text, "auto")) {
            value.reset();
            return true;
        }
        T parsed{};
        if (!Codec<T>::parse(text, parsed)) return false;
        value = std::move(parsed);
        return true;
    }
    static std::string print(const std::optional<T>& value) {
        return value ? Codec<T>::print(*value) : "auto";
    }
    static std::string expected() { return Codec<T>::expected() + ", or auto"; }
};

template <typename T>
struct Codec<Range<T>> {
    static bool parse(std::string_view text, Range<T>& value) {
        const size_t dash = text.find('-');
        Range<T> parsed;
        if (!Codec<T>::parse(internal::trim(text.substr(0, dash)), parsed.first)) return false;
        if (dash == text.npos) {
            parsed.last = parsed.first;
        } else if (!Codec<T>::parse(internal::trim(text.substr(dash + 1)), parsed.last)) {
            return false;
        }
        if (parsed.last < parsed.first) return false;
        value = parsed;
        return true;
    }
    static std::string print(const Range<T>& value) {
        const std::string first = Codec<T>::print(value.first);
        return value.first == value.last ? first : first + "-" + Codec<T>::print(value.last);
    }
    static std::string expected() { return "a range such as 5000-6000, or one value"; }
};

// An empty text is an empty list.
template <typename T>
struct Codec<std::vector<T>> {
    static bool parse(std::string_view text, std::vector<T>& value) {
        std::vector<T> parsed;
        for (const std::string_view part : internal::split(text, ',')) {
            if (!Codec<T>::parse(part, parsed.emplace_back())) return false;
        }
        value = std::move(parsed);
        return true;
    }
    static std::string print(const std::vector<T>& value) {
        std::string text;
        for (const T& element : value) {
            if (!text.empty()) text += ',';
            text += Codec<T>::print(element);
        }
        return text;
    }
    static std::string expected() {
        return "a list, separated by commas, of: " + Codec<T>::expected();
    }
};

}  // namespace ucs::config
