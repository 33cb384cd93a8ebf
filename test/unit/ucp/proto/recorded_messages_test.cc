// SPDX-License-Identifier: BSD-3-Clause

// Two versions of the library understand each other's messages, or refuse each other by their
// addresses (RecordedAddresses): what a version has written is kept here, and not made anew by the
// library that is tested. Messages of the lanes have a version of their own (LanesMessages).

#include <algorithm>
#include <charconv>
#include <set>
#include <string_view>

#include "ucp/bulk/engine/notification.h"
#include "ucp/bulk/engine/revocation.h"
#include "ucp/bulk/queue_pairs/queue_pair_set.h"
#include "ucp/proto/match/message_times.h"
#include "ucp/proto/rma/emulation.h"
#include "ucp/proto/rndv/rndv_wire.h"
#include "unit/ucp/proto/cluster.h"

namespace ucp::test {
namespace {

constexpr uint64_t kSender = 0x1122334455667788;
constexpr MessageId kId{kSender, 7};
constexpr RemoteAccess kMemory{1, 2, 0x1000};

template <typename Message>
Bytes header_bytes(const Message& message) {
    const auto* data = reinterpret_cast<const uint8_t*>(&message);
    return {data, data + sizeof(message)};
}

Bytes recorded(std::string_view digits) {
    Bytes bytes(digits.size() / 2);
    for (size_t at = 0; at < bytes.size(); ++at)
        std::from_chars(&digits[2 * at], &digits[2 * at] + 2, bytes[at], 16);
    return bytes;
}

// What goes before the first bytes of a notification's payload.
struct PackedPayload {
    NotifyHeader header;
    NotifyPayload payload;
};

#pragma pack(push, 1)
struct ReferringRts {
    RndvRts rts;
    DescribedBefore where;
};
struct FurtherDone {
    RndvDone done;
    uint64_t further[2];
};
#pragma pack(pop)

TEST(RecordedMessages, HaveTheirIdsAndLayouts) {
    const struct {
        int number;
        AmId id;
        Bytes today;
        std::string_view digits;
    } messages[] = {
        {1, AmId::kTagFirst, header_bytes(TagFirstHeader{5, kId, 12, 3, 4}),
         "0500000000000000887766554433221107000000000000000c00000000000000030000000000000004"
         "00000000000000"},
        {2, AmId::kTagSync, header_bytes(TagSyncHeader{5, kSender, 9}),
         "050000000000000088776655443322110900000000000000"},
        {3, AmId::kTagSyncAck, header_bytes(SyncAckHeader{9}), "0900000000000000"},
        {4, AmId::kFragment, header_bytes(FragmentHeader{kId, 4}),
         "887766554433221107000000000000000400000000000000"},
        {5, AmId::kAmShort, header_bytes(AmHeader{3, 1, 2}), "0300010002000000"},
        {6, AmId::kAmSingle, header_bytes(AmSingleHeader{{3, 1, 2}, kSender}),
         "03000100020000008877665544332211"},
        {7, AmId::kAmFirst, header_bytes(AmFirstHeader{{3, 1, 2}, kId, 12}),
         "0300010002000000887766554433221107000000000000000c00000000000000"},
        {8, AmId::kRndvRts, header_bytes(RndvRts{5, kSender, 9, 100, 0x1000, 4, 1, 2, 3}),
         "0500000000000000887766554433221109000000000000006400000000000000001000000000000004"
         "00000000000000010000000200000003000000"},
        {8, AmId::kRndvRts,
         header_bytes(ReferringRts{{5, kSender, 9, 100, 0, 4, 0, 0, 16}, {7, 0x1000}}),
         "0500000000000000887766554433221109000000000000006400000000000000000000000000000004"
         "00000000000000000000000000000010000000"
         "07000000000000000010000000000000"},
        {9, AmId::kRndvAts, header_bytes(RndvDone{9, kSender, -3}),
         "09000000000000008877665544332211fd"},
        {9, AmId::kRndvAts, header_bytes(FurtherDone{{9, kSender, 0}, {10, 11}}),
         "0900000000000000887766554433221100"
         "0a000000000000000b00000000000000"},
        {10, AmId::kRndvRtr, header_bytes(RndvRtr{9, kSender, 8, 16, 100, 0x1000, 1, 2}),
         "0900000000000000887766554433221108000000000000001000000000000000640000000000000000"
         "100000000000000100000002000000"},
        {11, AmId::kRndvAtp, header_bytes(RndvDone{8, kSender, 0}),
         "0800000000000000887766554433221100"},
        {12, AmId::kRndvData, header_bytes(RndvData{8, kSender, 16}),
         "080000000000000088776655443322111000000000000000"},
        {14, AmId::kStream, header_bytes(StreamHeader{kSender}), "8877665544332211"},
        {15, AmId::kMemoryNews, header_bytes(MemoryNews{kSender, 1, 2, 3, 4, MemoryNews::kInUse}),
         "88776655443322110100000002000000000000000300000000000000040000000000000001"},
        {16, AmId::kPut, header_bytes(EmulatedPut{kSender, 9, kMemory, 1}),
         "8877665544332211090000000000000001000000000000000200000000000000001000000000000001"},
        {17, AmId::kGetRequest, header_bytes(EmulatedGet{kSender, 9, kMemory, 8}),
         "8877665544332211090000000000000001000000000000000200000000000000001000000000000008"
         "00000000000000"},
        {17, AmId::kGetRequest,
         header_bytes(
             CopyMessage{{kSender, 9, kMemory, 8},
                         {CopyRequest::kGet, {1, 2, 1, 3, 4, 5, 6, 7, "dev", 8, 9, "way"}}}),
         "8877665544332211090000000000000001000000000000000200000000000000001000000000000008"
         "00000000000000"
         "01"
         "01000000020001000300000000000000040000000000000005000000000000000600000000000000070000000"
         "0"
         "00000064657600000000000000000000000000080000000000000009000000000000007761790000000000000"
         "000"
         "00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
         "0"
         "0000000000000000"},
        {18, AmId::kGetReply, header_bytes(EmulatedGetReply{kSender, 9, 16}),
         "887766554433221109000000000000001000000000000000"},
        {19, AmId::kAtomicRequest, header_bytes(EmulatedAtomic{kSender, 9, kMemory, 32, 8, 6, 7}),
         "8877665544332211090000000000000001000000000000000200000000000000001000000000000020"
         "0806000000000000000700000000000000"},
        {20, AmId::kAtomicReply, header_bytes(EmulatedAtomicReply{kSender, 9, 6}),
         "887766554433221109000000000000000600000000000000"},
        {21, AmId::kRmaAck, header_bytes(EmulatedDone{kSender, 9, -3}),
         "88776655443322110900000000000000fd"},
        {22, AmId::kNotify, header_bytes(NotifyMessage{kSender, 6}),
         "88776655443322110600000000000000"},
        {22, AmId::kNotify,
         header_bytes(PackedPayload{{kSender, 6, NotifyHeader::kPayload, 12}, {7}}),
         "8877665544332211060000000000000001000000"
         "0c0000000700000000000000"},
        {22, AmId::kNotify, header_bytes(NotifyHeader{kSender, 6, NotifyHeader::kCredit, 0}),
         "887766554433221106000000000000000200000000000000"},
        {23, AmId::kReset, header_bytes(ResetHeader{kSender}), "8877665544332211"},
        {24, AmId::kHello, header_bytes(HelloHeader{kSender}), "8877665544332211"},
        {25, AmId::kLane, header_bytes(LaneHeader{kSender}), "8877665544332211"},
        {27, AmId::kBulkRevoke, header_bytes(bulk::RevokeHeader{kSender, 7, 8, 1, 2, 3, 4, 5}),
         "8877665544332211070000000000000008000000000000000102030405"},
        {28, AmId::kBulkRevokeDone, header_bytes(bulk::RevokeDoneMessage{kSender, 7}),
         "88776655443322110700000000000000"},
        {29, AmId::kBulkQueuePair, header_bytes(bulk::QueuePairHeader{kSender, 6}),
         "88776655443322110600000000000000"},
        {30, AmId::kOrdered, header_bytes(OrderedHeader{kSender, 6, 1, {}}),
         "88776655443322110600000001000000"},
        {31, AmId::kTook, header_bytes(TookMessage{kSender, 4, 5, 6, 7}),
         "88776655443322110400000000000000050000000000000006000000000000000700000000000000"},
    };
    // These have no header, or that of kRndvRts, or of kLane.
    std::set<int> ids{0, 13, 26};
    for (const auto& message : messages) {
        EXPECT_EQ(static_cast<int>(message.id), message.number);
        EXPECT_EQ(message.today, recorded(message.digits)) << message.number;
        ids.insert(message.number);
    }
    EXPECT_EQ(ids.size(), uct::kMaxAmId) << "one that is not recorded";
}

// As a peer of the version of addresses 3 has sent it, whose uuid takes the recorded one's place.
void deliver_recorded(Cluster& cluster, AmId id, std::string_view digits) {
    Bytes bytes = recorded(digits);
    const Bytes written = header_bytes(kSender);
    const auto name = std::search(bytes.begin(), bytes.end(), written.begin(), written.end());
    const uint64_t uuid = cluster.a.worker().uuid();
    if (name != bytes.end()) std::ranges::copy(header_bytes(uuid), name);
    cluster.b().worker().interfaces().deliver(uuid, static_cast<uint8_t>(id), bytes.data(),
                                              bytes.size());
}

void expect_tagged(Cluster& cluster, std::string_view text) {
    std::string got(text.size() + 1, '?');
    const ucp_request_param_t param{};
    EXPECT_EQ(cluster.wait(ucp_tag_recv_nbx(cluster.b().handle(), got.data(), got.size(), 5,
                                            ~uint64_t{0}, &param)),
              UCS_OK);
    EXPECT_EQ(got, std::string(text) + '?');
}

TEST(RecordedMessages, WithTagsAreReceived) {
    Cluster cluster;
    deliver_recorded(cluster, AmId::kTagShort, "050000000000000073686f7274");
    expect_tagged(cluster, "short");
    deliver_recorded(cluster, AmId::kTagFirst,
                     "050000000000000088776655443322110700000000000000"
                     "0c0000000000000000000000000000000000000000000000696e2066");
    deliver_recorded(cluster, AmId::kFragment,
                     "8877665544332211070000000000000004000000000000007261676d656e7473");
    expect_tagged(cluster, "in fragments");
}

TEST(RecordedMessages, ThatAreActiveAreHandled) {
    Cluster cluster;
    std::vector<std::string> handled;
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                         UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = 3;
    handler.arg = &handled;
    handler.cb = [](void* arg, const void* header, size_t header_length, void* data, size_t length,
                    const ucp_am_recv_param_t*) {
        static_cast<std::vector<std::string>*>(arg)->push_back(
            std::string(static_cast<const char*>(header), header_length) + ":" +
            std::string(static_cast<const char*>(data), length));
        return UCS_OK;
    };
    ASSERT_EQ(ucp_worker_set_am_recv_handler(cluster.b().handle(), &handler), UCS_OK);
    deliver_recorded(cluster, AmId::kAmShort, "030000000000000073686f7274");
    deliver_recorded(cluster, AmId::kAmSingle, "0300000002000000887766554433221173696e676c656162");
    EXPECT_EQ(handled, (std::vector<std::string>{":short", "ab:single"}));
}

}  // namespace
}  // namespace ucp::test
