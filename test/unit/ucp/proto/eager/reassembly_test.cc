// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/proto/eager/reassembly.h"

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "unit/ucs/log/log_capture.h"

namespace ucp {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t kPeer = 10, kOther = 11;
constexpr ucs::Time kStart = ucs::Time{} + 1h;

// A message that comes in fragments, as its taker sees it.
struct Taker {
    Reassembly::Sink sink() {
        return {[](void* self, size_t offset, const void* data, size_t length) {
                    auto& taker = *static_cast<Taker*>(self);
                    EXPECT_EQ(offset, taker.offset + taker.bytes.size());
                    taker.bytes.append(static_cast<const char*>(data), length);
                    return taker.answer;
                },
                [](void* self, ucs_status_t status) {
                    auto& taker = *static_cast<Taker*>(self);
                    EXPECT_FALSE(taker.end) << "it had ended";
                    taker.end = status;
                },
                this};
    }
    explicit Taker(size_t arrived) : offset(arrived) {}
    size_t offset;
    std::string bytes;
    ucs_status_t answer = UCS_OK;
    std::optional<ucs_status_t> end;
};

class ReassemblyTest : public testing::Test {
  protected:
    void arrive(MessageId id, uint64_t offset, const std::string& text) {
        const FragmentHeader header{id, offset};
        std::vector<char> bytes(sizeof(header) + text.size());
        std::memcpy(bytes.data(), &header, sizeof(header));
        std::memcpy(bytes.data() + sizeof(header), text.data(), text.size());
        interfaces_.deliver(id.sender, static_cast<uint8_t>(AmId::kFragment), bytes.data(),
                            bytes.size());
    }

    InterfaceSet interfaces_;
    Reassembly reassembly_{interfaces_};
    ucs::LogCapture log_;
};

TEST_F(ReassemblyTest, MessagesOfTwoSendersDoNotMix) {
    Taker one(3), two(1);
    reassembly_.begin({kPeer, 1}, 9, 3, one.sink());
    reassembly_.begin({kOther, 1}, 3, 1, two.sink());
    arrive({kPeer, 1}, 3, "abc");
    arrive({kOther, 1}, 1, "xy");
    EXPECT_EQ(two.end, UCS_OK);
    EXPECT_EQ(one.end, std::nullopt);
    arrive({kPeer, 1}, 6, "def");
    EXPECT_EQ(one.end, UCS_OK);
    EXPECT_EQ(one.bytes, "abcdef");
    EXPECT_EQ(two.bytes, "xy");
}

TEST_F(ReassemblyTest, FragmentsOutOfTheirPlaceAreDropped) {
    Taker taker(2);
    reassembly_.begin({kPeer, 1}, 6, 2, taker.sink());
    arrive({kPeer, 1}, 3, "gap");
    arrive({kPeer, 1}, 2, "too long");
    arrive({kPeer, 1}, 2, "");
    arrive({kPeer, 2}, 2, "nobody's");
    EXPECT_EQ(log_.entries().size(), 3u) << "what belongs to no message may be late";
    arrive({kPeer, 1}, 2, "ab");
    arrive({kPeer, 1}, 2, "ab");
    arrive({kPeer, 1}, 4, "cd");
    EXPECT_EQ(taker.end, UCS_OK);
    EXPECT_EQ(taker.bytes, "abcd");
}

TEST_F(ReassemblyTest, ATakersErrorEndsItsMessage) {
    Taker taker(1);
    reassembly_.begin({kPeer, 1}, 9, 1, taker.sink());
    taker.answer = UCS_ERR_MESSAGE_TRUNCATED;
    arrive({kPeer, 1}, 1, "abc");
    EXPECT_EQ(taker.end, UCS_ERR_MESSAGE_TRUNCATED);
    arrive({kPeer, 1}, 4, "def");
    EXPECT_EQ(taker.bytes, "abc");
}

TEST_F(ReassemblyTest, TheRestGoesToWhoeverTakesItThen) {
    Taker first(1), second(3);
    reassembly_.begin({kPeer, 1}, 5, 1, first.sink());
    arrive({kPeer, 1}, 1, "ab");
    reassembly_.redirect({kPeer, 1}, second.sink());
    arrive({kPeer, 1}, 3, "cd");
    EXPECT_EQ(second.bytes, "cd");
    EXPECT_EQ(second.end, UCS_OK);
    EXPECT_EQ(first.end, std::nullopt);
}

TEST_F(ReassemblyTest, AMessageThatBeginsTwiceEndsTheSecond) {
    Taker first(1), second(1);
    reassembly_.begin({kPeer, 1}, 5, 1, first.sink());
    reassembly_.begin({kPeer, 1}, 5, 1, second.sink());
    EXPECT_EQ(second.end, UCS_ERR_IO_ERROR);
    EXPECT_EQ(first.end, std::nullopt);
    reassembly_.clear();
    EXPECT_EQ(first.end, UCS_ERR_CANCELED);
}

// What has arrived of a peer that failed may lie in queues still: time alone ends nothing, nor do
// looks alone, and whatever comes begins both anew.
TEST_F(ReassemblyTest, WhoFailedIsGivenUpOnceNothingComesForASecondOfLooks) {
    Taker taker(1), other(1);
    reassembly_.begin({kPeer, 1}, 9, 1, taker.sink());
    reassembly_.begin({kOther, 1}, 9, 1, other.sink());
    EXPECT_EQ(reassembly_.next_deadline(), ucs::kNever);
    reassembly_.sender_failed(kPeer, UCS_ERR_ENDPOINT_TIMEOUT);
    for (int look = 0; look < 20; ++look) reassembly_.advance(kStart);
    EXPECT_EQ(reassembly_.next_deadline(), kStart + 1s);
    arrive({kPeer, 1}, 1, "abc");
    reassembly_.advance(kStart + 2s);
    EXPECT_EQ(taker.end, std::nullopt) << "the second begins anew";
    reassembly_.advance(kStart + 4s);
    EXPECT_EQ(taker.end, std::nullopt) << "there were two looks";
    for (int look = 0; look < 20; ++look) reassembly_.advance(kStart + 4s);
    EXPECT_EQ(taker.end, UCS_ERR_ENDPOINT_TIMEOUT);
    EXPECT_EQ(other.end, std::nullopt);
    EXPECT_EQ(reassembly_.next_deadline(), ucs::kNever);
    reassembly_.end_all_of(kOther, UCS_ERR_NO_MEMORY);
    EXPECT_EQ(other.end, UCS_ERR_NO_MEMORY);
}

// A sender must have sent an eighth of what it has memory taken for.
TEST(ReassemblyRoom, GrowsWithWhatHasCome) {
    EXPECT_EQ(Reassembly::room_for(1000, 1000), 1000u);
    EXPECT_EQ(Reassembly::room_for(1000, 8000), 8000u);
    EXPECT_EQ(Reassembly::room_for(1000, ~size_t{0}), 8000u);
    EXPECT_LE(Reassembly::room_for(0, 100), 100u);
}

}  // namespace
}  // namespace ucp
