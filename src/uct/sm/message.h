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

// Write a message of that header and at most kInlinePayload bytes into a slot, all but its control
// word, without a call. The second line first: the receiver looks at the first one, and may take it
// again between two stores that have another line's in between.
[[gnu::always_inline]] inline void write_inline(Slot& slot, uint64_t header, const void* payload,
                                                uint32_t length) {
    constexpr uint32_t kFirst = kLine - 2 * sizeof(uint64_t);  // of the payload
    std::byte* const to = slot.data + sizeof(header);
    const auto* from = static_cast<const std::byte*>(payload);
    if (length == sizeof(uint64_t)) [[likely]] {
        std::memcpy(to, from, sizeof(uint64_t));
    } else if (length <= kShortCopy) {
        move_short(to, from, length);
    } else {
        if (length > kFirst) {
            const uint32_t rest = length - kFirst;
            if (rest <= kShortCopy) {
                move_short(to + kFirst, from + kFirst, rest);
            } else {
                move_ends<SixteenBytes>(to + kFirst, from + kFirst, 32);
                move_ends<SixteenBytes>(to + length - 32, from + length - 32, 32);
            }
        }
        const uint32_t first = length < kFirst ? length : kFirst;
        move_ends<SixteenBytes>(to, from, 32);
        move_ends<SixteenBytes>(to + first - 32, from + first - 32, 32);
    }
    std::memcpy(slot.data, &header, sizeof(header));
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
