// SPDX-License-Identifier: BSD-3-Clause

#include <gtest/gtest.h>

#include <vector>

#include "tools/program/verify.h"

namespace tools {
namespace {

constexpr PayloadKey kKey{.seed = 7, .sender = 1, .receiver = 2, .stream = 1, .sequence = 3};

TEST(Payload, IsRecognisedAtEveryLength) {
    for (size_t length = 0; length <= 70; ++length) {
        std::vector<std::byte> message(length);
        fill_payload(message, kKey);
        EXPECT_EQ(check_payload(message, kKey), length);
    }
}

TEST(Payload, EveryByteCounts) {
    std::vector<std::byte> message(29);
    fill_payload(message, kKey);
    for (size_t i = 0; i < message.size(); ++i) {
        message[i] ^= std::byte{1};
        EXPECT_EQ(check_payload(message, kKey), i);
        message[i] ^= std::byte{1};
    }
}

TEST(Payload, DependsOnEveryPartOfItsKey) {
    std::vector<std::byte> message(16);
    fill_payload(message, kKey);
    for (int part = 0; part < 5; ++part) {
        PayloadKey other = kKey;
        if (part == 0) ++other.seed;
        if (part == 1) ++other.sender;
        if (part == 2) ++other.receiver;
        if (part == 3) ++other.stream;
        if (part == 4) ++other.sequence;
        EXPECT_LT(check_payload(message, other), message.size()) << part;
    }
}

TEST(SequenceCheck, NoticesAMessageThatIsLostOrDoubled) {
    SequenceCheck sent(1, MessageKind::kHot);
    std::vector<std::vector<std::byte>> messages(3, std::vector<std::byte>(8));
    for (auto& message : messages) sent.fill(message, 0, 1);

    SequenceCheck right(1, MessageKind::kHot);
    for (const auto& message : messages) EXPECT_NO_THROW(right.check(message, 0, 1));
    SequenceCheck lost(1, MessageKind::kHot);
    EXPECT_THROW(lost.check(messages[1], 0, 1), std::runtime_error);
    SequenceCheck doubled(1, MessageKind::kHot);
    EXPECT_NO_THROW(doubled.check(messages[0], 0, 1));
    EXPECT_THROW(doubled.check(messages[0], 0, 1), std::runtime_error);
}

}  // namespace
}  // namespace tools
