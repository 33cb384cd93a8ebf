// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/wire/format.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <numeric>
#include <set>
#include <string_view>

#include "common/hex.h"
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
        EXPECT_EQ(is_sound({length, type, 0, kBurstMark}, kMaxMessage),
                  type == FrameType::kMessage);
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

// --- what version 3 has said (ucs::test: as tests keep it), and what is said today

using ucs::test::hex_of_object;

template <typename Array>
Array counted_from(uint8_t first) {
    Array array;
    std::iota(reinterpret_cast<uint8_t*>(array.data()),
              reinterpret_cast<uint8_t*>(array.data()) + sizeof(array), first);
    return array;
}

Hello recorded_hello() {
    return {.magic = kMagic,
            .version = 3,
            .oldest = 3,
            .connection = 1,
            .reserved = {},
            .flags = kCanResume | kManyWays,
            .sender = 0x1122334455667788,
            .receiver = 0x99aabbccddeeff00,
            .max_frame = 8192,
            .association = 5,
            .bulk_epoch = 6,
            .peer_association = 7,
            .attempt = 8,
            .reserved_too = 0,
            .received = 9,
            .nonce = counted_from<ucs::net::Nonce>(0x10)};
}

Challenge recorded_challenge() {
    return {.magic = kMagic,
            .version = 3,
            .oldest = 3,
            .answer = Answer::kProve,
            .reserved = {},
            .nonce = counted_from<ucs::net::Nonce>(0x40)};
}

Welcome recorded_welcome() {
    return {.magic = kMagic,
            .version = 3,
            .connection = 1,
            .answer = Answer::kWelcome,
            .max_frame = 4096,
            .association = 2,
            .received = 3,
            .flags = kCanResume,
            .reserved = {},
            .attempt = 4,
            .seal = {}};
}

TEST(RecordedTcp, HandshakesOfVersion3AreThoseOfToday) {
    EXPECT_EQ(kVersion, 3) << "record another version beside this one";
    EXPECT_EQ(kOldestVersion, 3);
    EXPECT_EQ(hex_of_object(recorded_hello()),
              "534c5450030003000100000003000000887766554433221100ffeeddccbbaa990020000005000000"
              "060000000700000008000000000000000900000000000000101112131415161718191a1b1c1d1e1f"
              "202122232425262728292a2b2c2d2e2f");
    EXPECT_EQ(hex_of_object(recorded_challenge()),
              "534c5450030003000700000000000000404142434445464748494a4b4c4d4e4f5051525354555657"
              "58595a5b5c5d5e5f");
    EXPECT_EQ(hex_of_object(recorded_welcome()),
              "534c5450030001010010000002000000030000000000000001000000040000000000000000000000"
              "000000000000000000000000000000000000000000000000");
}

// Else two versions that speak the same words could not prove anything to each other.
TEST(RecordedTcp, ProofsOfVersion3AreThoseOfToday) {
    const Key key = key_of(Secret{1, 2}, "our common word");
    EXPECT_EQ(hex_of_object(key),
              "aac8fb952d0aefa4eb27310508b6112cfaec6b6ab29183ea5a0d04e1739c8e1f");
    EXPECT_EQ(hex_of_object(client_proof(key, recorded_hello(), recorded_challenge())),
              "b3caddaa5c7a0020d1b06ab2e884ae8794313b05f2d5e7c3825de5703c0604ac");
    EXPECT_EQ(hex_of_object(
                  server_proof(key, recorded_hello(), recorded_challenge(), recorded_welcome())),
              "a7471514d76ed06239cdcd45a1a82b4986f023659a572a9494bab3eb754eb85d");
    EXPECT_EQ(hex_of_object(session_key(key, recorded_hello(), recorded_challenge())),
              "8bbc508086038df8122e55e0b615f8e100642a69f40221764d9a12964f1adbe0");
    EXPECT_EQ(hex_of_object(encryption_key(key, recorded_hello(), recorded_challenge())),
              "df2f7240c4d5741c9e3d6109b11533a0ee1b8a7816c483b42fc7316f062d2e67");
}

TEST(RecordedTcp, FramesOfVersion3AreThoseOfToday) {
    const FrameHeader message{300, FrameType::kMessage, 7, kMark};
    EXPECT_EQ(hex_of_object(message), "2c0100000107776c");
    const Put put{0x1000, 2, 3, 0};
    EXPECT_EQ(hex_of_object(head_of(FrameType::kPut, put, 16)),
              "280000000200776c001000000000000002000000000000000300000000000000");
    const Get get{0x1000, 2, 100, 3, 4, 0};
    EXPECT_EQ(hex_of_object(head_of(FrameType::kGet, get, 0)),
              "200000000300776c0010000000000000020000000000000064000000030000000400000000000000");
    const Reply reply{4, 0};
    EXPECT_EQ(hex_of_object(head_of(FrameType::kGetReply, reply, 100)),
              "6c0000000400776c0400000000000000");
    const Atomic atomic{0x1000, 2, 5, 6, 3, 4, 1, 8, 1, {}};
    EXPECT_EQ(hex_of_object(head_of(FrameType::kAtomic, atomic, 0)),
              "300000000500776c0010000000000000020000000000000005000000000000000600000000000000"
              "03000000040000000108010000000000");
    const AtomicReply old{{4, 0}, 5};
    EXPECT_EQ(hex_of_object(head_of(FrameType::kAtomicReply, old, 0)),
              "100000000600776c04000000000000000500000000000000");
    EXPECT_EQ(hex_of_object(head_of(FrameType::kFlush, reply, 0)),
              "080000000700776c0400000000000000");
    EXPECT_EQ(hex_of_object(head_of(FrameType::kFlushReply, reply, 0)),
              "080000000800776c0400000000000000");
    const Refused refused{3, 4};
    EXPECT_EQ(hex_of_object(head_of(FrameType::kRefused, refused, 0)),
              "080000000900776c0300000004000000");
    EXPECT_EQ(hex_of_object(FrameHeader{0, FrameType::kLeave, 0, kMark}), "000000000a00776c");
    Route route{};
    route.device[0] = std::byte{9};
    route.port = 4000;
    EXPECT_EQ(hex_of_object(head_of(FrameType::kRoutes, route, 0)),
              "200000000b00776c0900000000000000000000000000000000000000000000000000a00f00000000");
    const Cut cut{6, 0};
    EXPECT_EQ(hex_of_object(head_of(FrameType::kCut, cut, 0)), "080000000c00776c0600000000000000");
    EXPECT_EQ(hex_of_object(head_of(FrameType::kCutDone, cut, 0)),
              "080000000d00776c0600000000000000");
    EXPECT_EQ(hex_of_object(FrameHeader{0, FrameType::kHere, 0, kMark}), "000000000e00776c");
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
