// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstring>
#include <span>

#include "uct/api/types.h"
#include "uct/sm/queue_layout.h"

// How messages are written into slots and buffers.
namespace uct::sm {

// Payload beside the header of 8 bytes that fits into a slot.
inline constexpr uint32_t kInlinePayload = kInline - sizeof(uint64_t);

namespace internal {

// Copy by two pieces that may overlap.
template <typename Word>
[[gnu::always_inline]] inline void copy_ends(std::byte* to, const std::byte* from, size_t length) {
    Word first, last;
    std::memcpy(&first, from, sizeof(Word));
    std::memcpy(&last, from + length - sizeof(Word), sizeof(Word));
    std::memcpy(to, &first, sizeof(Word));
    std::memcpy(to + length - sizeof(Word), &last, sizeof(Word));
}

}  // namespace internal

// Copy at most kInlinePayload bytes, without a call.
[[gnu::always_inline]] inline void copy_inline(std::byte* to, const void* payload,
                                               uint32_t length) {
    const auto* from = static_cast<const std::byte*>(payload);
    struct Sixteen {
        uint64_t words[2];
    };
    if (length == 8) [[likely]] {
        std::memcpy(to, from, 8);
    } else if (length > 64) {
        internal::copy_ends<Sixteen>(to, from, 32);
        internal::copy_ends<Sixteen>(to + 32, from + 32, 32);
        internal::copy_ends<Sixteen>(to + length - 64, from + length - 64, 32);
        internal::copy_ends<Sixteen>(to + length - 32, from + length - 32, 32);
    } else if (length > 32) {
        internal::copy_ends<Sixteen>(to, from, 32);
        internal::copy_ends<Sixteen>(to + length - 32, from + length - 32, 32);
    } else if (length >= 16) {
        internal::copy_ends<Sixteen>(to, from, length);
    } else if (length > 8) {
        internal::copy_ends<uint64_t>(to, from, length);
    } else if (length >= 4) {
        internal::copy_ends<uint32_t>(to, from, length);
    } else if (length >= 2) {
        internal::copy_ends<uint16_t>(to, from, length);
    } else if (length == 1) {
        *to = *from;
    }
}

inline std::byte* append(std::byte* to, const void* from, size_t length) {
    if (length > 0) std::memcpy(to, from, length);
    return to + length;
}

// Header and pieces one after the other. @return bytes written
inline size_t gather(std::byte* to, std::span<const std::byte> header, std::span<const Iov> iov) {
    std::byte* end = append(to, header.data(), header.size());
    for (const Iov& piece : iov) end = append(end, piece.buffer, piece.length);
    return static_cast<size_t>(end - to);
}

}  // namespace uct::sm
