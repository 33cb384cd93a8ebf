// SPDX-License-Identifier: BSD-3-Clause
#include "uct/checked/crc32c.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string_view>
#include <vector>

namespace uct {
namespace {

// RFC 3720, appendix B.4, and the check value of catalogues of CRCs.
TEST(Crc32c, IsThatOfTheStandard) {
    std::vector<uint8_t> bytes(32, 0);
    EXPECT_EQ(crc32c(0, bytes.data(), bytes.size()), 0x8A9136AAu);
    std::ranges::fill(bytes, 0xFF);
    EXPECT_EQ(crc32c(0, bytes.data(), bytes.size()), 0x62A8AB43u);
    std::iota(bytes.begin(), bytes.end(), 0);
    EXPECT_EQ(crc32c(0, bytes.data(), bytes.size()), 0x46DD794Eu);
    std::ranges::reverse(bytes);
    EXPECT_EQ(crc32c(0, bytes.data(), bytes.size()), 0x113FDB5Cu);
    constexpr std::string_view kDigits = "123456789";
    EXPECT_EQ(crc32c(0, kDigits.data(), kDigits.size()), 0xE3069283u);
    EXPECT_EQ(crc32c(0, nullptr, 0), 0u);
}

TEST(Crc32c, GoesOnOverPieces) {
    std::vector<uint8_t> bytes(1000);
    std::iota(bytes.begin(), bytes.end(), 7);
    const uint32_t whole = crc32c(3, bytes.data(), bytes.size());
    for (const size_t cut : {0, 1, 7, 64, 500, 999, 1000}) {
        const uint32_t front = crc32c(3, bytes.data(), cut);
        EXPECT_EQ(crc32c(front, bytes.data() + cut, bytes.size() - cut), whole) << cut;
    }
    EXPECT_NE(crc32c(4, bytes.data(), bytes.size()), whole);
}

}  // namespace
}  // namespace uct
