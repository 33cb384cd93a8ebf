// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/net/mac.h"

#include <gtest/gtest.h>

#include <set>

#include "common/hex.h"

namespace ucs::net {
namespace {

// RFC 4231, test case 2.
TEST(Mac, IsThatOfTheStandard) {
    const Mac whole = MacWriter("Jefe").add("what do ya want for nothing?").end();
    EXPECT_EQ(ucs::test::hex_of(whole),
              "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    const Mac pieces = MacWriter("Jefe").add("what do ya want ").add("for nothing?").end();
    EXPECT_TRUE(are_equal(whole, pieces));
}

TEST(Mac, DependsOnTheKey) {
    const Mac one = MacWriter("one").add("text").end(), two = MacWriter("two").add("text").end();
    EXPECT_FALSE(are_equal(one, two));
    Mac nearly = one;
    nearly.back() ^= std::byte{1};
    EXPECT_FALSE(are_equal(one, nearly));
}

TEST(Nonce, IsNeverTheSame) {
    std::set<Nonce> drawn;
    for (int i = 0; i < 1000; ++i) drawn.insert(new_nonce());
    EXPECT_EQ(drawn.size(), 1000u);
}

}  // namespace
}  // namespace ucs::net
