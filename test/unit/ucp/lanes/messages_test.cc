// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/lanes/messages.h"

#include <gtest/gtest.h>

#include <charconv>
#include <random>
#include <string_view>

namespace ucp::lanes {
namespace {

Message sample(MessageType type) {
    Message message;
    message.type = type;
    if (type != MessageType::kScore) message.epoch = 0x8899aabb;
    const bool has_score = type == MessageType::kScore || type == MessageType::kRequest ||
                           type == MessageType::kAccept || type == MessageType::kDeny;
    if (has_score) message.local = 0x0102030405060708;
    if (type == MessageType::kRequest) message.estimate = 0x0203040506070809;
    if (type == MessageType::kRequest || type == MessageType::kDeny) {
        message.floor = {77, {0x1111111122222222, 0x3333333344444444, 5}};
    }
    if (type == MessageType::kRequest || type == MessageType::kAccept) message.kept = 0x0a0b0c0d;
    if (type == MessageType::kDeny) message.deny = DenyReason::kOutranked;
    if (type == MessageType::kWithdraw) message.withdraw = WithdrawReason::kClosing;
    if (type == MessageType::kLane) {
        message.window = 9;
        message.address = {1, 2, 3, 4, 5};
    }
    return message;
}

std::vector<Message> all_samples() {
    std::vector<Message> samples;
    for (auto type = static_cast<int>(MessageType::kScore);
         type <= static_cast<int>(kLastMessageType); ++type) {
        samples.push_back(sample(static_cast<MessageType>(type)));
    }
    return samples;
}

std::vector<std::uint8_t> wire(const Message& message) {
    std::vector<std::uint8_t> bytes(encoded_size(message));
    EXPECT_EQ(bytes.size(), encode(message, bytes));
    return bytes;
}

TEST(LanesMessages, EveryTypeComesBackAsItWas) {
    for (const Message& message : all_samples()) {
        Message back;
        ASSERT_EQ(UCS_OK, decode(wire(message), back)) << name(message.type);
        EXPECT_EQ(message, back) << name(message.type);
    }
}

TEST(LanesMessages, LayoutIsLittleEndianAndVersioned) {
    Message score;
    score.type = MessageType::kScore;
    score.local = 0x0807060504030201;
    EXPECT_EQ((std::vector<std::uint8_t>{2, 1, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8}), wire(score));
    Message accept = sample(MessageType::kAccept);
    EXPECT_EQ((std::vector<std::uint8_t>{2, 3, 16, 0, 0xbb, 0xaa, 0x99, 0x88, 8,    7,
                                         6, 5, 4,  3, 2,    1,    0x0d, 0x0c, 0x0b, 0x0a}),
              wire(accept));
}

// Two versions of the library understand each other's messages, or refuse them: what a version has
// written is kept here, from SCORE on, and not made anew by the library that is tested.
constexpr std::string_view kRecordedVersion2[] = {
    "020108000807060504030201",
    ("02023400bbaa9988080706050403020109080706050403024d0000000000000022222222111111114444"
     "444433333333050000000d0c0b0a"),
    "02031000bbaa998808070605040302010d0c0b0a",
    ("02042900bbaa99880807060504030201024d000000000000002222222211111111444444443333333305"
     "000000"),
    "02050500bbaa998803",
    "02060f00bbaa99880900000005000102030405",
    "02070400bbaa9988",
    "02080400bbaa9988",
    "02090400bbaa9988",
    "020a0400bbaa9988",
    "020b0400bbaa9988",
    "020c0400bbaa9988",
    "020d0400bbaa9988",
    "020e0400bbaa9988",
    "020f0400bbaa9988",
};

TEST(LanesMessages, RecordedOnesOfVersion2AreRead) {
    ASSERT_EQ(std::size(kRecordedVersion2), all_samples().size());
    for (std::size_t index = 0; index < std::size(kRecordedVersion2); ++index) {
        const std::string_view digits = kRecordedVersion2[index];
        std::vector<std::uint8_t> bytes(digits.size() / 2);
        for (std::size_t at = 0; at < bytes.size(); ++at)
            std::from_chars(&digits[2 * at], &digits[2 * at] + 2, bytes[at], 16);
        const Message expected = all_samples()[index];
        Message message;
        ASSERT_EQ(UCS_OK, decode(bytes, message)) << name(expected.type);
        EXPECT_EQ(expected, message) << name(expected.type);
        EXPECT_EQ(bytes, wire(expected)) << name(expected.type);
    }
}

TEST(LanesMessages, TruncatedOrLongerIsAnError) {
    for (const Message& message : all_samples()) {
        std::vector<std::uint8_t> bytes = wire(message);
        Message back;
        for (std::size_t size = 0; size < bytes.size(); ++size) {
            EXPECT_EQ(UCS_ERR_INVALID_PARAM, decode(std::span(bytes).first(size), back))
                << name(message.type) << " cut to " << size;
        }
        bytes.push_back(0);
        EXPECT_EQ(UCS_ERR_INVALID_PARAM, decode(bytes, back)) << name(message.type);
        // Also where the header agrees with the size.
        bytes[2] = static_cast<std::uint8_t>(bytes.size() - 4);
        bytes[3] = static_cast<std::uint8_t>((bytes.size() - 4) >> 8);
        EXPECT_EQ(UCS_ERR_INVALID_PARAM, decode(bytes, back)) << name(message.type);
    }
}

TEST(LanesMessages, OutOfRangeIsAnError) {
    const struct {
        MessageType type;
        void (*spoil)(Message&);
    } cases[] = {
        {MessageType::kScore, [](Message& m) { m.local = kMaxLocalScore + 1; }},
        {MessageType::kRequest, [](Message& m) { m.local = ~Score{0}; }},
        {MessageType::kRequest, [](Message& m) { m.estimate = kMaxScore + 1; }},
        {MessageType::kRequest, [](Message& m) { m.floor.score = kMaxFloor + 1; }},
        {MessageType::kRequest, [](Message& m) { std::swap(m.floor.id.low, m.floor.id.high); }},
        {MessageType::kRequest, [](Message& m) { m.epoch = 0; }},
        {MessageType::kFlushed, [](Message& m) { m.epoch = 0; }},
        {MessageType::kPing, [](Message& m) { m.epoch = 0; }},
        {MessageType::kPong, [](Message& m) { m.epoch = 0; }},
        {MessageType::kGone, [](Message& m) { m.epoch = 0; }},
        {MessageType::kDeny, [](Message& m) { m.deny = DenyReason{0}; }},
        {MessageType::kDeny, [](Message& m) { m.deny = DenyReason{4}; }},
        {MessageType::kWithdraw, [](Message& m) { m.withdraw = WithdrawReason{0}; }},
        {MessageType::kWithdraw, [](Message& m) { m.withdraw = WithdrawReason{5}; }},
    };
    for (const auto& test : cases) {
        Message message = sample(test.type);
        test.spoil(message);
        Message back;
        EXPECT_EQ(UCS_ERR_INVALID_PARAM, decode(wire(message), back))
            << name(test.type) << " case " << &test - cases;
    }
}

TEST(LanesMessages, UnknownVersionOrTypeIsAnError) {
    std::vector<std::uint8_t> bytes = wire(sample(MessageType::kReady));
    Message back;
    for (int value = 0; value < 256; ++value) {
        bytes[0] = static_cast<std::uint8_t>(value);
        EXPECT_EQ(value == kProtocolVersion, decode(bytes, back) == UCS_OK);
    }
    bytes[0] = kProtocolVersion;
    for (const int type : {0, static_cast<int>(kLastMessageType) + 1, 255}) {
        bytes[1] = static_cast<std::uint8_t>(type);
        EXPECT_EQ(UCS_ERR_INVALID_PARAM, decode(bytes, back));
    }
}

TEST(LanesMessages, AddressIsBounded) {
    Message lane = sample(MessageType::kLane);
    lane.address.assign(kMaxLaneAddress, 7);
    Message back;
    EXPECT_EQ(UCS_OK, decode(wire(lane), back));
    EXPECT_EQ(lane, back);
    lane.address.push_back(7);
    std::vector<std::uint8_t> bytes(kMaxMessageSize + 16);
    EXPECT_EQ(0u, encode(lane, bytes));
    // The address claims more than the message has, and more than is allowed.
    bytes = wire(sample(MessageType::kLane));
    for (const int length : {4, 6, 0x0500, 0xffff}) {
        bytes[12] = static_cast<std::uint8_t>(length);
        bytes[13] = static_cast<std::uint8_t>(length >> 8);
        EXPECT_EQ(UCS_ERR_INVALID_PARAM, decode(bytes, back)) << length;
    }
}

TEST(LanesMessages, EncodeRefusesAShortBuffer) {
    for (const Message& message : all_samples()) {
        std::vector<std::uint8_t> bytes(encoded_size(message) - 1);
        EXPECT_EQ(0u, encode(message, bytes)) << name(message.type);
    }
}

// Whatever decodes is what encode() would have written.
TEST(LanesMessages, RandomChangesDecodeExactlyOrNotAtAll) {
    std::mt19937_64 random(1);
    const auto samples = all_samples();
    for (int i = 0; i < 200000; ++i) {
        std::vector<std::uint8_t> bytes = wire(samples[random() % samples.size()]);
        for (std::uint64_t changes = 1 + random() % 4; changes > 0; --changes) {
            bytes[random() % bytes.size()] = static_cast<std::uint8_t>(random());
        }
        if (random() % 4 == 0) bytes.resize(random() % (bytes.size() + 1));
        Message back;
        if (decode(bytes, back) == UCS_OK) {
            ASSERT_EQ(bytes, wire(back));
        }
    }
}

}  // namespace
}  // namespace ucp::lanes
