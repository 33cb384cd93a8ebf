// SPDX-License-Identifier: BSD-3-Clause

// A peer of the job that speaks in another's name: the transport knows whom its messages are from.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>

#include "ucp/base/sender.h"
#include "ucp/bulk/engine/revocation.h"
#include "ucp/endpoint/endpoint.h"
#include "ucp/endpoint/lane_state.h"
#include "ucp/select/worker_address.h"
#include "ucs/log/log.h"
#include "unit/ucp/cluster.h"
#include "unit/ucp/runtime/sender_wires.h"
#include "unit/ucs/log/log_capture.h"

namespace ucp::test {
namespace {

constexpr size_t kAttacked = 0, kFriend = 1, kLiar = 2;

template <typename Message>
std::span<const std::byte> bytes_of(const Message& message) {
    return std::as_bytes(std::span(&message, 1));
}

class SenderBase {
  protected:
    explicit SenderBase(SenderWire kind)
        : kind_(std::move(kind)), wire_(kind_.make()), cluster_(3, options_for(kind_, *wire_)) {
        // The three know each other, and the victim has heard of both.
        for (const size_t peer : {kFriend, kLiar}) {
            pass(kAttacked, peer);
            pass(peer, kAttacked);
        }
        if (kind_.has_lanes) {
            join_by_lane(cluster_, kLiar, kAttacked);
            pass(kLiar, kAttacked);
        }
    }

    void pass(size_t from, size_t to) { test::pass(cluster_, from, to, 10 * from + to); }
    // From one to the victim, by its lane if it has one.
    void send(size_t from, AmId id, std::span<const std::byte> message) {
        Endpoint& endpoint = unwrap(cluster_.endpoint(from, kAttacked));
        if (from != kLiar || !kind_.has_lanes) return endpoint.send_control(id, message);
        const auto pack = [](void* to, void* arg) {
            const auto& bytes = *static_cast<std::span<const std::byte>*>(arg);
            std::memcpy(to, bytes.data(), bytes.size());
            return bytes.size();
        };
        EXPECT_EQ(
            endpoint.lane_state()->dedicated->am_bcopy(static_cast<uint8_t>(id), pack, &message),
            static_cast<ssize_t>(message.size()));
    }
    void lie(AmId id, std::span<const std::byte> message) { send(kLiar, id, message); }
    // The victim has taken what the liar had sent.
    void settle() { pass(kLiar, kAttacked); }
    bool is_well(size_t peer) { return !unwrap(cluster_.endpoint(kAttacked, peer)).is_failed(); }

    const SenderWire kind_;
    const std::unique_ptr<Wire> wire_;
    Cluster cluster_;
    ucs::LogCapture log_{ucs::LogLevel::kWarn};
};

class Sender : public SenderBase, public testing::TestWithParam<SenderWire> {
  protected:
    Sender() : SenderBase(GetParam()) {}
};

INSTANTIATE_TEST_SUITE_P(Wires, Sender, testing::ValuesIn(sender_wires()),
                         [](const auto& info) { return info.param.name; });

TEST_P(Sender, NobodyEndsAnothersEndpoint) {
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
    pass(kFriend, kAttacked);
    // His own he may.
    const ResetHeader own{cluster_.uuid(kLiar)};
    lie(AmId::kReset, bytes_of(own));
    EXPECT_TRUE(cluster_.until([&] { return !is_well(kLiar); }));
    EXPECT_TRUE(is_well(kFriend));
}

TEST_P(Sender, HasOneNameWhicheverAdapterHearsIt) {
    WorkerAddress friends;
    ASSERT_EQ(unpack_address(cluster_.inner(kFriend).address(), &friends), UCS_OK);
    InterfaceSet& interfaces = cluster_.inner(kAttacked).interfaces();
    for (const AddressEntry& entry : friends.entries) {
        std::set<uint64_t> names;
        for (const WorkerInterface& interface : interfaces.list()) {
            if (interface.kind != entry.kind) continue;
            names.insert(interface.transport->name_of({entry.device, entry.interface, {}}));
        }
        EXPECT_LE(names.size(), 1u);
    }
}

TEST_P(Sender, NobodyAcknowledgesForAnother) {
    const uint64_t number = 5;
    const ucs_status_ptr_t sending = ucp_tag_send_sync_nbx(cluster_.endpoint(kAttacked, kFriend),
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

TEST_P(Sender, NobodyWritesIntoAnothersStream) {
    struct {
        StreamHeader header;
        char text[8] = "forged";
    } message{{cluster_.uuid(kFriend)}};
    lie(AmId::kStream, bytes_of(message));
    settle();
    char got[8];
    size_t length = 0;
    const ucs_status_ptr_t receiving = ucp_stream_recv_nbx(cluster_.endpoint(kAttacked, kFriend),
                                                           got, sizeof(got), &length, &kNothing);
    ASSERT_TRUE(UCS_PTR_IS_PTR(receiving));
    EXPECT_EQ(ucp_request_check_status(receiving), UCS_INPROGRESS);
    ucp_request_cancel(cluster_.worker(kAttacked), receiving);
    cluster_.finish(receiving);
}

TEST_P(Sender, NobodyContinuesAnothersMessage) {
    // The first part of a message of the friend's, by hand; the rest comes from the liar.
    const MessageId id{cluster_.uuid(kFriend), 1u << 20};
    struct {
        TagFirstHeader header;
        char text[8];
    } first{{9, id, 16, 0, 0}, "genuine"};
    send(kFriend, AmId::kTagFirst, bytes_of(first));
    pass(kFriend, kAttacked);
    struct {
        FragmentHeader header;
        char text[8];
    } forged{{id, 8}, "forged."};
    lie(AmId::kFragment, bytes_of(forged));
    settle();
    char got[16] = {};
    const ucs_status_ptr_t receiving =
        ucp_tag_recv_nbx(cluster_.worker(kAttacked), got, sizeof(got), 9, UINT64_MAX, &kNothing);
    ASSERT_TRUE(UCS_PTR_IS_PTR(receiving));
    cluster_.steps(100);
    EXPECT_EQ(ucp_request_check_status(receiving), UCS_INPROGRESS);
    std::memcpy(forged.text, "and so.", 8);
    send(kFriend, AmId::kFragment, bytes_of(forged));
    EXPECT_EQ(cluster_.finish(receiving), UCS_OK);
    EXPECT_STREQ(got, "genuine");
    EXPECT_STREQ(got + 8, "and so.");
}

TEST_P(Sender, NobodyGreetsWithAnothersConnections) {
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
    EXPECT_EQ(cluster_.inner(kAttacked).endpoints().find(address.uuid), nullptr);
    EXPECT_TRUE(is_well(kFriend));
    pass(kFriend, kAttacked);
}

TEST_P(Sender, NobodyCutsAnotherOff) {
    // In his own name, but of the friend's interface.
    WorkerAddress victims, friends;
    ASSERT_EQ(unpack_address(cluster_.inner(kAttacked).address(), &victims), UCS_OK);
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
    pass(kFriend, kAttacked);
    pass(kAttacked, kFriend);
}

// Short ones name nobody; the others name what only one worker may speak of.
constexpr AmId kNameNobody[] = {AmId::kTagShort, AmId::kTagSyncAck, AmId::kAmShort, AmId::kStream};

// Each kind of message.
class Claims : public SenderBase, public testing::TestWithParam<std::tuple<SenderWire, int>> {
  protected:
    Claims() : SenderBase(std::get<0>(GetParam())) {}
};

TEST_P(Claims, AreCompared) {
    const auto id = static_cast<AmId>(std::get<1>(GetParam()));
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
    pass(kFriend, kAttacked);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Claims,
                         testing::Combine(testing::ValuesIn(sender_wires()),
                                          testing::Range(0, static_cast<int>(uct::kMaxAmId))),
                         [](const auto& info) {
                             return std::get<0>(info.param).name + "_id" +
                                    std::to_string(std::get<1>(info.param));
                         });

TEST(PeerNames, AConnectionIsItsFirstClaimantsUntilAnAddressNamesIt) {
    PeerNames names;
    uct::PeerIdentity first{.name = 16}, second{.name = 32};
    EXPECT_TRUE(names.is_from(first, 10));
    EXPECT_FALSE(names.is_from(first, 11));
    // Nobody has said where worker 10 is: the second may be another way to it.
    EXPECT_TRUE(names.is_from(second, 10));
    EXPECT_TRUE(names.learn(32, 10, false));
    EXPECT_FALSE(names.is_from(first, 10));
    EXPECT_TRUE(names.is_from(second, 10));
    EXPECT_FALSE(names.learn(32, 11, false));
    EXPECT_TRUE(names.learn(32, 11, true));
    EXPECT_FALSE(names.is_from(second, 10));
    EXPECT_TRUE(names.is_from(second, 11));
    names.forget(11);
    EXPECT_EQ(names.size(), 0u);
    EXPECT_TRUE(names.is_from(second, 11));
}

TEST(PeerNames, AnAddressWithoutAKindOfTransportSaysNothingOfIt) {
    PeerNames names;
    uct::PeerIdentity by_tcp{.name = uct::peer_name(uct::NameKind::kTcp, 64)};
    uct::PeerIdentity by_fifo{.name = uct::peer_name(uct::NameKind::kFifo, 64)};
    uct::PeerIdentity other{.name = uct::peer_name(uct::NameKind::kTcp, 128)};
    EXPECT_TRUE(names.learn(by_tcp.name, 10, true));
    EXPECT_TRUE(names.is_from(by_tcp, 10));
    EXPECT_TRUE(names.is_from(by_fifo, 10));
    EXPECT_FALSE(names.is_from(other, 10));
}

TEST(PeerNames, WhoPaysForMessagesIsTheConnectionUntilItsWorkerIsKnown) {
    PeerNames names;
    uct::PeerIdentity peer{.name = 16}, lane{.worker = 12, .is_lane = true};
    EXPECT_EQ(names.account_of(peer), 16u);
    EXPECT_TRUE(names.is_from(peer, 10));
    EXPECT_EQ(names.account_of(peer), 16u) << "only claimed";
    EXPECT_TRUE(names.learn(16, 11, true));
    EXPECT_EQ(names.account_of(peer), 11u);
    EXPECT_TRUE(names.learn(16, 10, true));
    EXPECT_EQ(names.account_of(peer), 10u);
    names.forget(10);
    EXPECT_EQ(names.account_of(peer), 16u);
    EXPECT_EQ(names.account_of(lane), 12u);
}

TEST(PeerNames, ALaneIsItsPeersWhateverElseIsKnown) {
    PeerNames names;
    uct::PeerIdentity lane{.worker = 10, .is_lane = true};
    EXPECT_TRUE(names.is_from(lane, 10));
    EXPECT_FALSE(names.is_from(lane, 11));
    EXPECT_TRUE(names.learn(16, 11, true));
    EXPECT_FALSE(names.is_from(lane, 11));
}

}  // namespace
}  // namespace ucp::test
