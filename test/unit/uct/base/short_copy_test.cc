// SPDX-License-Identifier: BSD-3-Clause
#include "uct/base/short_copy.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

namespace uct::test {
namespace {

constexpr size_t kBytes = 3 * kShortCopy;
using FewBytes = std::array<std::byte, kBytes>;

FewBytes distinct_bytes() {
    FewBytes bytes;
    for (size_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<std::byte>(i + 1);
    return bytes;
}

TEST(ShortCopy, IsMemmoveOfAllLengthsHoweverTheyOverlap) {
    for (size_t length = 0; length <= kShortCopy; ++length) {
        for (size_t to = 0; to <= 2 * kShortCopy; ++to) {
            FewBytes expected = distinct_bytes(), moved = distinct_bytes();
            std::memmove(expected.data() + to, expected.data() + kShortCopy, length);
            move_short(moved.data() + to, moved.data() + kShortCopy, length);
            ASSERT_EQ(moved, expected) << length << " bytes to " << to;
        }
    }
}

}  // namespace
}  // namespace uct::test
