// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/queue_pairs/negotiation.h"

#include <gtest/gtest.h>

#include "ucp/bulk/schedule/rules.h"

namespace ucp::bulk {
namespace {

std::vector<RailAddresses> two_rails() {
    const auto bytes = [](size_t length, int fill) {
        return std::vector<std::byte>(length, std::byte(fill));
    };
    return {{7, 1, 2, bytes(5, 1), {bytes(8, 2), bytes(8, 3)}}, {8, 3, 4, bytes(4, 9), {}}};
}

std::vector<RailAddresses> one_rail() {
    return {two_rails().front()};
}

TEST(QueuePairEnds, ComeOverAsTheyWere) {
    const auto rails = two_rails();
    const auto read = decode_rail_addresses(encode(rails));
    ASSERT_TRUE(read);
    ASSERT_EQ(read->size(), 2u);
    for (size_t i = 0; i < 2; ++i) {
        EXPECT_EQ((*read)[i].kind, rails[i].kind);
        EXPECT_EQ((*read)[i].domain, rails[i].domain);
        EXPECT_EQ((*read)[i].partner_domain, rails[i].partner_domain);
        EXPECT_EQ((*read)[i].device, rails[i].device);
        EXPECT_EQ((*read)[i].addresses, rails[i].addresses);
    }
}

TEST(QueuePairEnds, CutAnywhereButBetweenRailsTheyAreRefused) {
    const auto bytes = encode(two_rails());
    const size_t first = encode(one_rail()).size();
    for (size_t length = 1; length < bytes.size(); ++length) {
        EXPECT_EQ(decode_rail_addresses(std::span(bytes).first(length)).has_value(),
                  length == first)
            << length;
    }
}

TEST(QueuePairEnds, NumbersBeyondTheLimitAreRefused) {
    constexpr size_t kCount = 6, kLength = 8;  // places in a rail's header
    auto bytes = encode(one_rail());
    bytes.resize(4096);
    bytes[kCount] = std::byte(kMaxQueuePairsPerRail + 1);
    EXPECT_FALSE(decode_rail_addresses(bytes));
    bytes = encode(one_rail());
    bytes[kLength] = std::byte(0);
    EXPECT_FALSE(decode_rail_addresses(bytes));
}

}  // namespace
}  // namespace ucp::bulk
