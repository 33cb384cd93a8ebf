// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/engine/revocation.h"

#include <gtest/gtest.h>

namespace ucp::bulk::test {
namespace {

std::vector<std::byte> bytes(size_t length, uint8_t fill) {
    return std::vector<std::byte>(length, std::byte{fill});
}

TEST(RevokeMessage, ComesBackAsItWasPackedAndNoOtherLengthIsTaken) {
    const auto device = bytes(3, 1), interface = bytes(5, 2), there = bytes(2, 3),
               port = bytes(4, 4);
    RevokeMessage message;
    message.header.from = 7;
    message.header.number = 9;
    message.device = device;
    message.interface = interface;
    message.target_device = there;
    message.target_interface = port;
    const std::vector<std::byte> packed = pack_revoke(message);
    RevokeMessage read;
    ASSERT_TRUE(parse_revoke(packed, &read));
    EXPECT_EQ(read.header.from, 7u);
    EXPECT_EQ(read.header.number, 9u);
    EXPECT_TRUE(std::ranges::equal(read.device, device));
    EXPECT_TRUE(std::ranges::equal(read.interface, interface));
    EXPECT_TRUE(std::ranges::equal(read.target_device, there));
    EXPECT_TRUE(std::ranges::equal(read.target_interface, port));
    for (size_t length = 0; length < packed.size(); ++length) {
        EXPECT_FALSE(parse_revoke(std::span(packed).first(length), &read)) << length;
    }
    std::vector<std::byte> longer = packed;
    longer.push_back({});
    EXPECT_FALSE(parse_revoke(longer, &read));
}

TEST(RevokeMessage, IsCarriedOutOnceForEachFailureOfAPath) {
    const auto here = bytes(4, 1), there = bytes(4, 2);
    RevokeMessage first;
    first.header.from = 1;
    first.header.number = 5;
    first.device = here;
    RevokeMessage other = first;
    other.device = there;
    RevocationRecord record;
    EXPECT_FALSE(record.is_done(first));
    record.done(first);
    EXPECT_TRUE(record.is_done(first));
    EXPECT_FALSE(record.is_done(other));
    RevokeMessage later = first;
    later.header.number = 6;
    EXPECT_FALSE(record.is_done(later));
    record.done(later);
    EXPECT_TRUE(record.is_done(first));
    RevokeMessage of_another = first;
    of_another.header.from = 2;
    EXPECT_FALSE(record.is_done(of_another));
}

}  // namespace
}  // namespace ucp::bulk::test
