// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/base/wire.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "ucp/base/sender.h"

namespace ucp {
namespace {

constexpr uint64_t kSender = 0x1122334455667788;

template <typename Header>
std::vector<std::byte> bytes_of(const Header& header, size_t payload) {
    std::vector<std::byte> bytes(sizeof(header) + payload);
    std::memcpy(bytes.data(), &header, sizeof(header));
    return bytes;
}

// Who a message is from is read where its header has it.
template <typename Header>
void expect_sender(AmId id, const Header& header) {
    std::vector<std::byte> bytes = bytes_of(header, 5);
    EXPECT_EQ(claimed_sender(id, bytes), kSender) << static_cast<int>(id);
    bytes.resize(7);
    EXPECT_EQ(claimed_sender(id, bytes), std::nullopt) << "cut off within the name";
}

TEST(Senders, AreReadWhereTheHeadersHaveThem) {
    const MessageId id{kSender, 1};
    expect_sender(AmId::kTagFirst, TagFirstHeader{5, id, 100, 0, 0});
    expect_sender(AmId::kTagSync, TagSyncHeader{5, kSender, 1});
    expect_sender(AmId::kFragment, FragmentHeader{id, 0});
    expect_sender(AmId::kAmSingle, AmSingleHeader{{1, 0, 0}, kSender});
    expect_sender(AmId::kAmFirst, AmFirstHeader{{1, 0, 0}, id, 100});
    expect_sender(AmId::kHello, HelloHeader{kSender});
    expect_sender(AmId::kLane, LaneHeader{kSender});
    expect_sender(AmId::kMarker, LaneHeader{kSender});
    expect_sender(AmId::kReset, ResetHeader{kSender});
    expect_sender(AmId::kOrdered, OrderedHeader{kSender, 1, 2, {}});
}

TEST(Senders, OfIdsThatNameNobodyAreNotAskedFor) {
    const std::vector<std::byte> bytes(64, std::byte{0xff});
    for (unsigned id = 0; id < uct::kMaxAmId; ++id) {
        const bool names = claimed_sender(static_cast<AmId>(id), bytes).has_value();
        EXPECT_EQ((ids_with_claims() >> id & 1) != 0, names) << id;
    }
    EXPECT_EQ(claimed_sender(AmId::kTagShort, bytes), std::nullopt);
    EXPECT_EQ(claimed_sender(AmId::kAmShort, bytes), std::nullopt);
}

TEST(Headers, AreReadWithWhatIsBehindThem) {
    std::vector<std::byte> bytes = bytes_of(FragmentHeader{{kSender, 7}, 4096}, 3);
    FragmentHeader header{};
    std::span<const std::byte> rest;
    ASSERT_TRUE(read_header(bytes.data(), bytes.size(), &header, &rest));
    EXPECT_EQ(header.id.number, 7u);
    EXPECT_EQ(header.offset, 4096u);
    EXPECT_EQ(rest.data(), bytes.data() + sizeof(header));
    EXPECT_EQ(rest.size(), 3u);
    EXPECT_TRUE(read_header(bytes.data(), sizeof(header), &header, &rest));
    EXPECT_FALSE(read_header(bytes.data(), sizeof(header) - 1, &header, &rest));
}

TEST(Headers, OfMessagesThatAreNothingElseHaveTheirLength) {
    const std::vector<std::byte> bytes = bytes_of(SyncAckHeader{9}, 1);
    SyncAckHeader message{};
    EXPECT_FALSE(read_whole(bytes.data(), sizeof(message) - 1, &message));
    EXPECT_FALSE(read_whole(bytes.data(), sizeof(message) + 1, &message));
    ASSERT_TRUE(read_whole(bytes.data(), sizeof(message), &message));
    EXPECT_EQ(message.request, 9u);
}

}  // namespace
}  // namespace ucp
