// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstring>
#include <span>

#include "uct/api/types.h"
#include "uct/base/short_copy.h"
#include "uct/sm/queue_layout.h"

// How messages are written into slots and buffers.
namespace uct::sm {

// Payload beside the header of 8 bytes that fits into a slot.
inline constexpr uint32_t kInlinePayload = kInline - sizeof(uint64_t);

// Copy at most kInlinePayload bytes, without a call.
[[gnu::always_inline]] inline void copy_inline(std::byte* to, const void* payload,
                                               uint32_t length) {
    const auto* from = static_cast<const std::byte*>(payload);
    if (length == 8) [[likely]] {
        std::memcpy(to, from, 8);
        return;
    }
    if (length <= kShortCopy) return move_short(to, payload, length);
    if (length > 64) {
        move_ends<SixteenBytes>(to + 32, from + 32, 32);
        move_ends<SixteenBytes>(to + length - 64, from + length - 64, 32);
    }
    move_ends<SixteenBytes>(to, from, 32);
    move_ends<SixteenBytes>(to + length - 32, from + length - 32, 32);
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
