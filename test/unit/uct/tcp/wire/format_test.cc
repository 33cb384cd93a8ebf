// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/wire/format.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <set>

#include "uct/tcp/wire/proof.h"

namespace uct::tcp::wire {
namespace {

constexpr size_t kMaxMessage = 8192;

TEST(TcpFormat, BothEndsSpeakTheNewestVersionThatBothKnow) {
    EXPECT_EQ(common_version(kVersion, kOldestVersion), kVersion);
    EXPECT_EQ(common_version(kVersion + 5, kOldestVersion), kVersion);
    EXPECT_EQ(common_version(kVersion + 5, kVersion + 1), 0);
    EXPECT_EQ(common_version(kOldestVersion - 1, 1), 0);
}

TEST(TcpFormat, FramesOfEveryTypeHaveTheLengthOfTheirHeaderAtLeast) {
    for (auto type = FrameType::kMessage; type <= kLastFrameType;
         type = static_cast<FrameType>(static_cast<int>(type) + 1)) {
        const Shape shape = shape_of(type);
        const auto length = static_cast<uint32_t>(shape.fixed);
        EXPECT_TRUE(is_sound({length, type, 0, kMark}, kMaxMessage)) << static_cast<int>(type);
        EXPECT_FALSE(is_sound({length, type, 0, kMark + 1}, kMaxMessage));
        if (length > 0) {
            EXPECT_FALSE(is_sound({length - 1, type, 0, kMark}, kMaxMessage));
        }
        // Whatever of it a sender may choose, there is a limit.
        EXPECT_FALSE(is_sound({~uint32_t{0}, type, 0, kMark}, kMaxMessage));
        if (!shape.payload) {
            EXPECT_FALSE(is_sound({length + 8, type, 0, kMark}, kMaxMessage));
        }
        // Only messages have an id.
        EXPECT_EQ(is_sound({length, type, 1, kMark}, kMaxMessage), type == FrameType::kMessage);
    }
    const auto behind = static_cast<FrameType>(static_cast<int>(kLastFrameType) + 1);
    EXPECT_FALSE(is_sound({0, behind, 0, kMark}, kMaxMessage));
    EXPECT_FALSE(is_sound({0, FrameType{}, 0, kMark}, kMaxMessage));
}

TEST(TcpFormat, PayloadIsBounded) {
    EXPECT_TRUE(is_sound({kMaxMessage, FrameType::kMessage, 3, kMark}, kMaxMessage));
    EXPECT_FALSE(is_sound({kMaxMessage + 1, FrameType::kMessage, 3, kMark}, kMaxMessage));
    constexpr uint32_t kMost = sizeof(Put) + kMaxPayload;
    EXPECT_TRUE(is_sound({kMost, FrameType::kPut, 0, kMark}, kMaxMessage));
    EXPECT_FALSE(is_sound({kMost + 1, FrameType::kPut, 0, kMark}, kMaxMessage));
    EXPECT_TRUE(is_sound({kMaxRoutes * sizeof(Route), FrameType::kRoutes, 0, kMark}, kMaxMessage));
    EXPECT_FALSE(is_sound({sizeof(Route) + 1, FrameType::kRoutes, 0, kMark}, kMaxMessage));
}

TEST(TcpFormat, PaddingAlignsEveryLength) {
    for (size_t length = 0; length < 40; ++length) {
        EXPECT_EQ((length + padding(length)) % kAlignment, 0u);
        EXPECT_LT(padding(length), kAlignment);
    }
}

// What one end proves is worth nothing in the other direction, for another key, or once a byte of
// what was said is another.
TEST(TcpProofs, HoldForWhatWasSaidAlone) {
    const Secret secret{1, 2};
    const Key key = key_of(secret, "job");
    Hello hello{};
    Challenge challenge{};
    Welcome welcome{};
    std::set<ucs::net::Mac> proofs;
    const auto add = [&](const ucs::net::Mac& proof) { EXPECT_TRUE(proofs.insert(proof).second); };
    add(key);
    add(key_of(secret, "jo"));
    add(key_of({1, 3}, "job"));
    add(session_key(key, hello, challenge));
    add(encryption_key(key, hello, challenge));
    add(client_proof(key, hello, challenge));
    add(server_proof(key, hello, challenge, welcome));
    welcome.received = 1;
    add(server_proof(key, hello, challenge, welcome));
    hello.flags = kEncrypts;
    add(client_proof(key, hello, challenge));
    challenge.nonce[0] = std::byte{1};
    add(client_proof(key, hello, challenge));
    // The seal is where the proof goes.
    const ucs::net::Mac sealed = server_proof(key, hello, challenge, welcome);
    welcome.seal[0] = std::byte{1};
    EXPECT_EQ(server_proof(key, hello, challenge, welcome), sealed);
}

}  // namespace
}  // namespace uct::tcp::wire
