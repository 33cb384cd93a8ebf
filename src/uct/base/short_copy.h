// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

// Copies of few bytes, without a call.
namespace uct {

inline constexpr size_t kShortCopy = 32;

// By two pieces that may overlap each other. All is read before anything is written, so that `to`
// and `from` may overlap as well. @param length  from sizeof(Word) to twice that
template <typename Word>
[[gnu::always_inline]] inline void move_ends(std::byte* to, const std::byte* from, size_t length) {
    Word first, last;
    std::memcpy(&first, from, sizeof(Word));
    std::memcpy(&last, from + length - sizeof(Word), sizeof(Word));
    std::memcpy(to, &first, sizeof(Word));
    std::memcpy(to + length - sizeof(Word), &last, sizeof(Word));
}

struct SixteenBytes {
    uint64_t words[2];
};

// As memmove(). A word of 2, 4 or 8 bytes that is aligned is written as one.
// @param length  at most kShortCopy
[[gnu::always_inline]] inline void move_short(std::byte* to, const void* source, size_t length) {
    const auto* from = static_cast<const std::byte*>(source);
    if (length == 8) [[likely]] {
        uint64_t word;
        std::memcpy(&word, from, 8);
        std::memcpy(to, &word, 8);
    } else if (length >= 16) {
        move_ends<SixteenBytes>(to, from, length);
    } else if (length > 8) {
        move_ends<uint64_t>(to, from, length);
    } else if (length >= 4) {
        move_ends<uint32_t>(to, from, length);
    } else if (length >= 2) {
        move_ends<uint16_t>(to, from, length);
    } else if (length == 1) {
        *to = *from;
    }
}

}  // namespace uct
