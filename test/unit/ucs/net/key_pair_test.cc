// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/net/key_pair.h"

#include <gtest/gtest.h>

namespace ucs::net {
namespace {

TEST(KeyPair, TwoShareWhatNoThirdKnows) {
    const KeyPair one, other, third;
    const auto shared = one.share_with(other.public_key());
    ASSERT_TRUE(shared.has_value());
    EXPECT_EQ(shared, other.share_with(one.public_key()));
    EXPECT_NE(shared, third.share_with(one.public_key()));
    EXPECT_NE(shared, third.share_with(other.public_key()));
}

// RFC 7748, section 6.1: what follows from a point of small order is known to everybody.
TEST(KeyPair, SharesNothingWithAPointOfSmallOrder) {
    EXPECT_EQ(KeyPair().share_with(PublicKey{}), std::nullopt);
}

TEST(KeyPair, CanAuthenticate) {
    EXPECT_TRUE(can_authenticate());
}

}  // namespace
}  // namespace ucs::net
