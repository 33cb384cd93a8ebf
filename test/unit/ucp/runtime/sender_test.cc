// SPDX-License-Identifier: BSD-3-Clause

// A peer of the job that speaks in another's name: the transport knows whom its messages are from.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "ucp/base/sender.h"
#include "ucp/bulk/engine/revocation.h"
#include "ucp/endpoint/endpoint.h"
#include "ucp/select/worker_address.h"
#include "ucs/log/log.h"
#include "unit/ucp/cluster.h"
#include "unit/ucp/tcp_wire.h"

namespace ucp::test {
namespace {

constexpr size_t kVictim = 0, kFriend = 1, kLiar = 2;

template <typename Message>
std::span<const std::byte> bytes_of(const Message& message) {
    return std::as_bytes(std::span(&message, 1));
}

class Sender : public testing::Test {
  protected:
    Sender() : cluster_(3, options()) {
        // The three know each other, and the victim has heard of both.
        for (const size_t peer : {kFriend, kLiar}) {
            pass(kVictim, peer);
            pass(peer, kVictim);
        }
    }

    void pass(size_t from, size_t to) { test::pass(cluster_, from, to, 10 * from + to); }
    void lie(AmId id, std::span<const std::byte> message) {
        unwrap(cluster_.endpoint(kLiar, kVictim)).send_control(id, message);
    }
    /** The victim has taken what the liar had sent. */
    void settle() { pass(kLiar, kVictim); }
    bool is_well(size_t peer) { return !unwrap(cluster_.endpoint(kVictim, peer)).is_failed(); }

    Cluster::Options options() {
        Cluster::Options options;
        options.wire = &wire_;
        return options;
    }

    TcpWire wire_;
    Cluster cluster_;
    ucs::LogCapture log_{ucs::LogLevel::kWarn};
};

TEST_F(Sender, NobodyEndsAnothersEndpoint) {
    const ResetHeader reset{cluster_.uuid(kFriend)};
    for (int times = 0; times < 3; ++times) lie(AmId::kReset, bytes_of(reset));
    settle();
    EXPECT_TRUE(is_well(kFriend));
    EXPECT_TRUE(is_well(kLiar));
    EXPECT_EQ(std::ranges::count_if(log_.entries(),
                                    [](const auto& entry) {
                                        return entry.text.find("is not that worker's") !=
                                               std::string::npos;
                                    }),
              1);
    pass(kFriend, kVictim);
    // His own he may.
    const ResetHeader own{cluster_.uuid(kLiar)};
    lie(AmId::kReset, bytes_of(own));
    EXPECT_TRUE(cluster_.until([&] { return !is_well(kLiar); }));
    EXPECT_TRUE(is_well(kFriend));
}

TEST_F(Sender, NobodyAcknowledgesForAnother) {
    const uint64_t number = 5;
    const ucs_status_ptr_t sending = ucp_tag_send_sync_nbx(cluster_.endpoint(kVictim, kFriend),
                                                           &number, sizeof(number), 77, &kNothing);
    ASSERT_TRUE(UCS_PTR_IS_PTR(sending));
    const SyncAckHeader ack{Request::from_handle(sending).wire_id};
    lie(AmId::kTagSyncAck, bytes_of(ack));
    settle();
    EXPECT_EQ(ucp_request_check_status(sending), UCS_INPROGRESS);
    EXPECT_TRUE(log_.contains("is not that worker's"));
    uint64_t got = 0;
    EXPECT_EQ(cluster_.finish(ucp_tag_recv_nbx(cluster_.worker(kFriend), &got, sizeof(got), 77,
                                               UINT64_MAX, &kNothing)),
              UCS_OK);
    EXPECT_EQ(cluster_.finish(sending), UCS_OK);
}

TEST_F(Sender, NobodyWritesIntoAnothersStream) {
    struct {
        StreamHeader header;
        char text[8] = "forged";
    } message{{cluster_.uuid(kFriend)}};
    lie(AmId::kStream, bytes_of(message));
    settle();
    char got[8];
    size_t length = 0;
    const ucs_status_ptr_t receiving = ucp_stream_recv_nbx(cluster_.endpoint(kVictim, kFriend), got,
                                                           sizeof(got), &length, &kNothing);
    ASSERT_TRUE(UCS_PTR_IS_PTR(receiving));
    EXPECT_EQ(ucp_request_check_status(receiving), UCS_INPROGRESS);
    ucp_request_cancel(cluster_.worker(kVictim), receiving);
    cluster_.finish(receiving);
}

TEST_F(Sender, NobodyContinuesAnothersMessage) {
    // The first part of a message of the friend's, by hand; the rest comes from the liar.
    const MessageId id{cluster_.uuid(kFriend), 1u << 20};
    struct {
        TagFirstHeader header;
        char text[8];
    } first{{9, id, 16, 0}, "genuine"};
    unwrap(cluster_.endpoint(kFriend, kVictim)).send_control(AmId::kTagFirst, bytes_of(first));
    pass(kFriend, kVictim);
    struct {
        FragmentHeader header;
        char text[8];
    } forged{{id, 8}, "forged."};
    lie(AmId::kFragment, bytes_of(forged));
    settle();
    char got[16] = {};
    const ucs_status_ptr_t receiving =
        ucp_tag_recv_nbx(cluster_.worker(kVictim), got, sizeof(got), 9, UINT64_MAX, &kNothing);
    ASSERT_TRUE(UCS_PTR_IS_PTR(receiving));
    cluster_.steps(100);
    EXPECT_EQ(ucp_request_check_status(receiving), UCS_INPROGRESS);
    std::memcpy(forged.text, "and so.", 8);
    unwrap(cluster_.endpoint(kFriend, kVictim)).send_control(AmId::kFragment, bytes_of(forged));
    EXPECT_EQ(cluster_.finish(receiving), UCS_OK);
    EXPECT_STREQ(got, "genuine");
    EXPECT_STREQ(got + 8, "and so.");
}

TEST_F(Sender, NobodyGreetsWithAnothersConnections) {
    // A new name, and the friend's way: what is sent to that name would go to the friend.
    const auto& genuine = cluster_.inner(kFriend).address();
    WorkerAddress address;
    ASSERT_EQ(unpack_address(genuine, &address), UCS_OK);
    address.uuid = 4711;
    const auto packed = pack_address(address);
    const HelloHeader header{address.uuid};
    std::vector<std::byte> hello(sizeof(header) + packed.size());
    std::memcpy(hello.data(), &header, sizeof(header));
    std::memcpy(hello.data() + sizeof(header), packed.data(), packed.size());
    lie(AmId::kHello, hello);
    settle();
    EXPECT_EQ(cluster_.inner(kVictim).endpoints().find(address.uuid), nullptr);
    EXPECT_TRUE(is_well(kFriend));
    pass(kFriend, kVictim);
}

TEST_F(Sender, NobodyCutsAnotherOff) {
    // In his own name, but of the friend's interface.
    WorkerAddress victims, friends;
    ASSERT_EQ(unpack_address(cluster_.inner(kVictim).address(), &victims), UCS_OK);
    ASSERT_EQ(unpack_address(cluster_.inner(kFriend).address(), &friends), UCS_OK);
    for (size_t index = 0; index < victims.entries.size(); ++index) {
        bulk::RevokeMessage message;
        message.device = friends.entries.at(index).device;
        message.interface = friends.entries.at(index).interface;
        message.target_device = victims.entries.at(index).device;
        message.target_interface = victims.entries.at(index).interface;
        message.header = {cluster_.uuid(kLiar),
                          index + 1,
                          0,
                          0,
                          static_cast<uint8_t>(message.device.size()),
                          static_cast<uint8_t>(message.interface.size()),
                          static_cast<uint8_t>(message.target_device.size()),
                          static_cast<uint8_t>(message.target_interface.size())};
        lie(AmId::kBulkRevoke, bulk::pack_revoke(message));
    }
    settle();
    EXPECT_TRUE(log_.contains("cut off: dropped"));
    EXPECT_TRUE(is_well(kFriend));
    EXPECT_TRUE(is_well(kLiar));
    pass(kFriend, kVictim);
    pass(kVictim, kFriend);
}

/** Short ones name nobody; the others name what only one worker may speak of. */
constexpr AmId kNameNobody[] = {AmId::kTagShort, AmId::kTagSyncAck, AmId::kAmShort, AmId::kStream};

/** Each kind of message. */
class Claims : public Sender, public testing::WithParamInterface<int> {};

TEST_P(Claims, AreCompared) {
    const auto id = static_cast<AmId>(GetParam());
    std::vector<std::byte> message(256);
    for (size_t offset = 0; offset < 16; offset += sizeof(uint64_t)) {
        const uint64_t uuid = cluster_.uuid(kFriend);
        std::memcpy(message.data() + offset, &uuid, sizeof(uuid));
    }
    const bool is_nameless = std::ranges::find(kNameNobody, id) != std::end(kNameNobody);
    ASSERT_EQ(claimed_sender(id, message).has_value(), !is_nameless);
    if (is_nameless) return;
    lie(id, message);
    settle();
    EXPECT_TRUE(log_.contains("is not that worker's"));
    EXPECT_TRUE(is_well(kFriend));
    EXPECT_TRUE(is_well(kLiar));
    pass(kFriend, kVictim);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Claims, testing::Range(0, static_cast<int>(uct::kMaxAmId)),
                         [](const auto& info) { return "id" + std::to_string(info.param); });

TEST(PeerNames, AConnectionIsItsFirstClaimantsUntilAnAddressNamesIt) {
    PeerNames names;
    uct::PeerIdentity first{.name = 1}, second{.name = 2};
    EXPECT_TRUE(names.is_from(first, 10));
    EXPECT_FALSE(names.is_from(first, 11));
    // Nobody has said where worker 10 is: the second may be another way to it.
    EXPECT_TRUE(names.is_from(second, 10));
    EXPECT_TRUE(names.learn(2, 10, false));
    EXPECT_FALSE(names.is_from(first, 10));
    EXPECT_TRUE(names.is_from(second, 10));
    EXPECT_FALSE(names.learn(2, 11, false));
    EXPECT_TRUE(names.learn(2, 11, true));
    EXPECT_FALSE(names.is_from(second, 10));
    EXPECT_TRUE(names.is_from(second, 11));
    names.forget(11);
    EXPECT_EQ(names.size(), 0u);
    EXPECT_TRUE(names.is_from(second, 11));
}

}  // namespace
}  // namespace ucp::test
