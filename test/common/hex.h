// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

// What a version of the library has written, as tests keep it: two digits a byte.
namespace ucs::test {

inline std::string hex_of(std::span<const std::byte> bytes) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string digits;
    for (const std::byte byte : bytes) {
        digits += kDigits[std::to_integer<unsigned>(byte >> 4)];
        digits += kDigits[std::to_integer<unsigned>(byte & std::byte{0xf})];
    }
    return digits;
}

// Of an object without padding.
template <typename Object>
requires std::has_unique_object_representations_v<Object> std::string hex_of_object(
    const Object& object) {
    return hex_of(std::as_bytes(std::span(&object, 1)));
}

inline std::vector<std::byte> bytes_of_hex(std::string_view digits) {
    std::vector<std::byte> bytes(digits.size() / 2);
    for (size_t at = 0; at < bytes.size(); ++at) {
        uint8_t byte = 0;
        std::from_chars(&digits[2 * at], &digits[2 * at] + 2, byte, 16);
        bytes[at] = std::byte{byte};
    }
    return bytes;
}

}  // namespace ucs::test
