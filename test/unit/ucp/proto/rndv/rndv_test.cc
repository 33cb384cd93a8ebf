// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ucp/proto/eager/eager.h"
#include "ucp/proto/rndv/rndv.h"
#include "ucp/proto/tag/engine.h"
#include "unit/ucp/proto/cluster.h"
#include "unit/ucs/log/log_capture.h"

namespace ucp::test {
namespace {

using Kind = TypedBuffer::Kind;

ucs_status_ptr_t send(Cluster& cluster, TypedBuffer& data, uint64_t tag,
                      TagMode mode = TagMode::kNormal) {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
    param.datatype = data.type();
    return cluster.a.worker().tags().send(cluster.endpoint(), data.buffer(), data.count(), tag,
                                          mode, OpParams(&param));
}

ucs_status_ptr_t receive(Cluster& cluster, TypedBuffer& data, uint64_t tag, uint64_t mask) {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    param.datatype = data.type();
    return ucp_tag_recv_nbx(cluster.b().handle(), data.buffer(), data.count(), tag, mask, &param);
}

using Case = std::tuple<RndvScheme, Kind, Kind, bool>;

class Rendezvous : public testing::TestWithParam<Case> {};

TEST_P(Rendezvous, DataArrivesWhoeverComesFirst) {
    const auto& [scheme, from, to, loopback] = GetParam();
    for (const bool expected : {true, false}) {
        Settings settings;
        settings.scheme = scheme;
        settings.rndv_threshold = 1;
        settings.loopback = loopback;
        settings.fabric.no_resource_probability = 0.2;
        settings.fabric.stall_probability = 0.05;
        settings.fabric.seed = expected ? 1 : 2;
        Cluster cluster(settings);
        for (const size_t length : {0u, 1u, 4095u, 4096u, 70000u, 300001u}) {
            SCOPED_TRACE(testing::Message() << length << " bytes, expected " << expected);
            TypedBuffer source(from, pattern(length, length));
            TypedBuffer target(to, Bytes(length));
            ucs_status_ptr_t receiving = nullptr;
            if (expected) receiving = receive(cluster, target, 7, ~0ul);
            const ucs_status_ptr_t sending = send(cluster, source, 7);
            if (!expected) {
                ucp_tag_recv_info_t info{};
                ASSERT_TRUE(cluster.until([&] {
                    return ucp_tag_probe_nb(cluster.b().handle(), 7, ~0ul, 0, &info) != nullptr;
                }));
                EXPECT_EQ(info.length, length);
                receiving = receive(cluster, target, 7, ~0ul);
            }
            ASSERT_TRUE(UCS_PTR_IS_PTR(receiving));
            Request& request = Request::from_handle(receiving);
            ASSERT_TRUE(cluster.until([&] { return request.is_finished(); }));
            EXPECT_EQ(request.status, UCS_OK);
            EXPECT_EQ(request.tag_info.length, length);
            EXPECT_EQ(request.tag_info.sender_tag, 7u);
            cluster.b().worker().requests().free(request);
            EXPECT_EQ(cluster.wait(sending), UCS_OK);
            EXPECT_EQ(source.bytes(), target.bytes());
        }
    }
}

INSTANTIATE_TEST_SUITE_P(
    All, Rendezvous,
    testing::Combine(testing::Values(RndvScheme::kAuto, RndvScheme::kGet, RndvScheme::kPut,
                                     RndvScheme::kAm),
                     testing::Values(Kind::kContig, Kind::kIov, Kind::kGeneric),
                     testing::Values(Kind::kContig, Kind::kIov, Kind::kGeneric), testing::Bool()));

// Of one that takes longer messages where bytes are copied anyway.
TEST(RendezvousPieces, BytesThatAreCopiedGoInLongMessages) {
    constexpr size_t kLength = 300001;
    std::array<uint64_t, 2> messages{};
    for (const bool is_long : {false, true}) {
        Settings settings;
        settings.fabric.am.max_bcopy = 8192;
        if (is_long) settings.fabric.am.max_long_bcopy = 65536;
        Cluster cluster(settings);
        TypedBuffer source(Kind::kIov, pattern(kLength, 5)), target(Kind::kIov, Bytes(kLength));
        const ucs_status_ptr_t receiving = receive(cluster, target, 1, ~0ul);
        EXPECT_EQ(cluster.wait(send(cluster, source, 1)), UCS_OK);
        EXPECT_EQ(cluster.wait(receiving), UCS_OK);
        EXPECT_EQ(source.bytes(), target.bytes());
        messages[is_long ? 1 : 0] = cluster.fabric().counters(uct::mock::Kind::kScalable).am;
    }
    EXPECT_GE(messages[0], kLength / 8192);
    EXPECT_LT(messages[1], kLength / 65536 + 8);
}

class Schemes : public testing::TestWithParam<RndvScheme> {};

TEST_P(Schemes, MovesByItsOwnOperations) {
    Settings settings;
    settings.scheme = GetParam();
    Cluster cluster(settings);
    TypedBuffer source(Kind::kContig, pattern(100000, 1)), target(Kind::kContig, Bytes(100000));
    const ucs_status_ptr_t receiving = receive(cluster, target, 1, ~0ul);
    EXPECT_EQ(cluster.wait(send(cluster, source, 1)), UCS_OK);
    EXPECT_EQ(cluster.wait(receiving), UCS_OK);
    EXPECT_EQ(source.bytes(), target.bytes());
    const auto& counters = cluster.fabric().counters(uct::mock::Kind::kScalable);
    EXPECT_EQ(counters.get > 0, GetParam() == RndvScheme::kAuto || GetParam() == RndvScheme::kGet);
    EXPECT_EQ(counters.put > 0, GetParam() == RndvScheme::kPut);
}

TEST_P(Schemes, TruncationFillsWhatFits) {
    Settings settings;
    settings.scheme = GetParam();
    Cluster cluster(settings);
    TypedBuffer source(Kind::kContig, pattern(100000, 1)), target(Kind::kContig, Bytes(33333));
    const ucs_status_ptr_t receiving = receive(cluster, target, 1, ~0ul);
    EXPECT_EQ(cluster.wait(send(cluster, source, 1)), UCS_OK);
    EXPECT_EQ(cluster.wait(receiving), UCS_ERR_MESSAGE_TRUNCATED);
    EXPECT_TRUE(std::equal(target.bytes().begin(), target.bytes().end(), source.bytes().begin()));

    TypedBuffer typed(Kind::kGeneric, Bytes(10));
    const ucs_status_ptr_t again = receive(cluster, typed, 1, ~0ul);
    EXPECT_EQ(cluster.wait(send(cluster, source, 1)), UCS_OK);
    EXPECT_EQ(cluster.wait(again), UCS_ERR_MESSAGE_TRUNCATED);
}

TEST_P(Schemes, LongMessagesOfManySizes) {
    Settings settings;
    settings.scheme = GetParam();
    Cluster cluster(settings);
    for (size_t length : {size_t{1} << 20, (size_t{4} << 20) - 3, size_t{4} << 20}) {
        TypedBuffer source(Kind::kContig, pattern(length, 1)), target(Kind::kContig, Bytes(length));
        const ucs_status_ptr_t receiving = receive(cluster, target, 1, ~0ul);
        EXPECT_EQ(cluster.wait(send(cluster, source, 1)), UCS_OK);
        EXPECT_EQ(cluster.wait(receiving), UCS_OK);
        EXPECT_TRUE(source.bytes() == target.bytes());
    }
}

TEST_P(Schemes, DeadPeerFailsTheRequestOnce) {
    ucs::LogCapture log;
    // At each packet of the exchange in turn, first the sender dies, then the receiver.
    for (const bool kill_sender : {true, false}) {
        for (uint64_t moment = 0; moment < 60; ++moment) {
            SCOPED_TRACE(testing::Message() << "packet " << moment << ", sender " << kill_sender);
            Settings settings;
            settings.scheme = GetParam();
            Cluster cluster(settings);
            TypedBuffer source(Kind::kContig, pattern(60000, 1)),
                target(Kind::kContig, Bytes(60000));
            Node& dead = kill_sender ? cluster.a : cluster.b();
            Node& alive = kill_sender ? cluster.b() : cluster.a;
            bool killed = false;
            cluster.fabric().observe([&](const uct::mock::PacketEvent& event) {
                if (event.number != moment) return;
                killed = true;
                cluster.fabric().kill(dead.worker().uuid());
            });
            const ucs_status_ptr_t receiving = receive(cluster, target, 1, ~0ul);
            const ucs_status_ptr_t sending = send(cluster, source, 1);
            const ucs_status_ptr_t handle = kill_sender ? receiving : sending;
            ASSERT_TRUE(UCS_PTR_IS_PTR(handle));
            Request& request = Request::from_handle(handle);
            Endpoint& endpoint = unwrap(kill_sender ? cluster.back : cluster.ep);
            for (int i = 0; i < 3000 && !request.is_finished(); ++i) {
                cluster.clock().advance(std::chrono::microseconds(1));
                alive.worker().progress();
                if (!killed) dead.worker().progress();
                // A transport notices a dead peer when there is something to send to it.
                if (killed && i % 100 == 99 && !endpoint.is_failed())
                    endpoint.scalable()->check(nullptr);
            }
            // A receive that never met its message goes on waiting, and may be cancelled.
            if (!request.is_finished() && kill_sender) {
                EXPECT_TRUE(alive.worker().tags().cancel(request));
                for (int i = 0; i < 5; ++i) alive.worker().progress();
            }
            EXPECT_TRUE(request.is_finished());
            // What is sent as messages is done when it is sent; a receive is done with all data.
            EXPECT_TRUE(!kill_sender || request.status != UCS_OK ||
                        source.bytes() == target.bytes());
            alive.worker().requests().free(request);
            dead.worker().requests().free(Request::from_handle(kill_sender ? sending : receiving));
            dead.destroy_worker();
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, Schemes,
                         testing::Values(RndvScheme::kAuto, RndvScheme::kGet, RndvScheme::kPut,
                                         RndvScheme::kAm));

TEST(Rendezvous, SyncSendEndsWithTheReceive) {
    Cluster cluster;
    TypedBuffer source(Kind::kContig, pattern(100000, 1)), target(Kind::kContig, Bytes(100000));
    const ucs_status_ptr_t sending = send(cluster, source, 1, TagMode::kSync);
    ASSERT_TRUE(UCS_PTR_IS_PTR(sending));
    for (int i = 0; i < 500; ++i) cluster.step();
    EXPECT_FALSE(Request::from_handle(sending).is_finished());
    const ucs_status_ptr_t receiving = receive(cluster, target, 1, ~0ul);
    EXPECT_EQ(cluster.wait(sending), UCS_OK);
    EXPECT_EQ(cluster.wait(receiving), UCS_OK);
}

// A cache folder of the test's own.
class CacheFolder {
  public:
    CacheFolder() {
        if (const char* before = std::getenv("XDG_CACHE_HOME")) before_ = before;
        char name[] = "/tmp/rndv_test-XXXXXX";
        if (mkdtemp(name) != nullptr) folder_ = name;
        setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
    }
    ~CacheFolder() {
        before_ ? setenv("XDG_CACHE_HOME", before_->c_str(), 1) : unsetenv("XDG_CACHE_HOME");
        std::error_code ignored;
        if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
    }
    CacheFolder(const CacheFolder&) = delete;

  private:
    std::optional<std::string> before_;
    std::string folder_;
};

// Two workers of this process over the queues of shared memory; the first sends to the second.
class SharedQueues {
  public:
    using Variables = std::vector<std::pair<const char*, const char*>>;

    explicit SharedQueues(Variables variables = {}) {
        variables.emplace_back("TLS", "sm,self");
        for (Side& side : sides_) open(side, variables);
        ucp_address_t* address = nullptr;
        size_t length = 0;
        EXPECT_EQ(ucp_worker_get_address(sides_[1].worker, &address, &length), UCS_OK);
        ucp_ep_params_t params{};
        params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        params.address = address;
        EXPECT_EQ(ucp_ep_create(sides_[0].worker, &params, &endpoint_), UCS_OK);
        ucp_worker_release_address(sides_[1].worker, address);
    }
    ~SharedQueues() {
        for (const Side& side : sides_) {
            ucp_worker_destroy(side.worker);
            ucp_cleanup(side.context);
        }
    }
    SharedQueues(const SharedQueues&) = delete;

    ucs_status_ptr_t send(const Bytes& data) {
        const ucp_request_param_t param{};
        return ucp_tag_send_nbx(endpoint_, data.data(), data.size(), 1, &param);
    }
    ucs_status_ptr_t receive(Bytes& data) {
        const ucp_request_param_t param{};
        return ucp_tag_recv_nbx(sides_[1].worker, data.data(), data.size(), 1, ~0ul, &param);
    }
    void finish(ucs_status_ptr_t request) {
        if (request == nullptr) return;
        while (ucp_request_check_status(request) == UCS_INPROGRESS) progress();
        EXPECT_EQ(ucp_request_check_status(request), UCS_OK);
        ucp_request_free(request);
    }
    Endpoint& endpoint() { return unwrap(endpoint_); }
    DomainSet& domains(size_t side) { return unwrap(sides_[side].context).domains(); }

    ucs_status_ptr_t send_active_message(const Bytes& data, uint32_t flags = 0) {
        ucp_request_param_t param{};
        param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        param.flags = flags;
        return ucp_am_send_nbx(endpoint_, 1, nullptr, 0, data.data(), data.size(), &param);
    }
    // The second one takes them: announced ones into a buffer, others as they are.
    void receive_active_messages(size_t length) {
        target_.resize(length);
        ucp_am_handler_param_t handler{};
        handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                             UCP_AM_HANDLER_PARAM_FIELD_ARG;
        handler.id = 1;
        handler.arg = this;
        handler.cb = [](void* arg, const void*, size_t, void* data, size_t size,
                        const ucp_am_recv_param_t* param) {
            auto& self = *static_cast<SharedQueues*>(arg);
            ++self.received_;
            if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) return UCS_OK;
            ucp_request_param_t params{};
            params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK;
            params.cb.recv_am = [](void* request, ucs_status_t status, size_t, void*) {
                EXPECT_EQ(status, UCS_OK);
                ucp_request_free(request);
            };
            EXPECT_FALSE(UCS_PTR_IS_ERR(ucp_am_recv_data_nbx(self.sides_[1].worker, data,
                                                             self.target_.data(), size, &params)));
            return UCS_OK;
        };
        EXPECT_EQ(ucp_worker_set_am_recv_handler(sides_[1].worker, &handler), UCS_OK);
    }
    // And the first one hears of their times.
    void finish_active_messages(unsigned count) {
        constexpr unsigned kRounds = 1000;
        while (received_ < count) progress();
        for (unsigned i = 0; i < kRounds; ++i) progress();
    }

  private:
    void progress() {
        for (const Side& side : sides_) ucp_worker_progress(side.worker);
    }
    struct Side {
        ucp_context_h context = nullptr;
        ucp_worker_h worker = nullptr;
    };
    static void open(Side& side, const Variables& variables) {
        ucp_config_t* config = nullptr;
        EXPECT_EQ(ucp_config_read(nullptr, nullptr, &config), UCS_OK);
        for (const auto& [name, value] : variables)
            EXPECT_EQ(ucp_config_modify(config, name, value), UCS_OK);
        ucp_params_t params{};
        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features = UCP_FEATURE_TAG | UCP_FEATURE_AM;
        EXPECT_EQ(ucp_init(&params, config, &side.context), UCS_OK);
        ucp_config_release(config);
        const ucp_worker_params_t none{};
        EXPECT_EQ(ucp_worker_create(side.context, &none, &side.worker), UCS_OK);
    }

    Side sides_[2];
    ucp_ep_h endpoint_ = nullptr;
    unsigned received_ = 0;
    Bytes target_;
};

// A queue of 128 messages has 64 buffers: announcements lie in its slots.
TEST(RendezvousWithinAHost, AnnouncementsTakeNoBuffers) {
    constexpr size_t kMessages = 100;
    SharedQueues queues(SharedQueues::Variables{{"RNDV_THRESH", "64k"}, {"LANES", "scalable"}});
    const Bytes source = pattern(100000, 1);
    Bytes target(source.size());
    const ucs_status_ptr_t first = queues.receive(target);
    queues.finish(queues.send(source));
    queues.finish(first);
    std::vector<ucs_status_ptr_t> all;
    for (size_t i = 0; i < kMessages; ++i) {
        all.push_back(queues.send(source));
        ASSERT_FALSE(queues.endpoint().has_backlog()) << i;
    }
    for (size_t i = 0; i < kMessages; ++i) {
        std::ranges::fill(target, 0);
        queues.finish(queues.receive(target));
        ASSERT_EQ(target, source);
    }
    for (const ucs_status_ptr_t each : all) queues.finish(each);
}

// The sender's registration is with the domain of its lane alone: enough for each scheme.
TEST(RendezvousWithinAHost, EverySchemeMovesTheData) {
    for (const char* const scheme : {"auto", "get_zcopy", "put_zcopy", "am"}) {
        SharedQueues queues(
            SharedQueues::Variables{{"RNDV_THRESH", "8k"}, {"RNDV_SCHEME", scheme}});
        for (const size_t length : {size_t{16384}, size_t{300000}}) {
            const Bytes source = pattern(length, 1);
            Bytes target(length);
            const ucs_status_ptr_t receiving = queues.receive(target);
            queues.finish(queues.send(source));
            queues.finish(receiving);
            EXPECT_EQ(target, source) << scheme;
        }
    }
}

// Whoever has the bytes of an announcement can read while its message is under way, not later.
TEST(RendezvousWithinAHost, AKeyIsGoodForTheLengthOfAnOperation) {
    SharedQueues queues;
    DomainSet &here = queues.domains(0), &there = queues.domains(1);
    const auto is_shared = [](const Domain& domain) { return domain.component->name() == "sm"; };
    const auto place = std::ranges::find_if(here.list(), is_shared) - here.list().begin();
    ASSERT_LT(static_cast<size_t>(place), here.size());
    const auto domain = static_cast<uint8_t>(place);
    Bytes data = pattern(20000, 1);
    const auto address = reinterpret_cast<uintptr_t>(data.data());
    Registration registration;
    ASSERT_EQ(
        registration.open_for_peer(here, domain, data.data(), data.size(), uct::PeerRights::kRead),
        UCS_OK);
    Bytes bytes(packed_entry_size(here, registration));
    pack_entry(here, registration, std::as_writable_bytes(std::span(bytes)));
    PackedKey packed;
    ASSERT_EQ(
        PackedKey::parse_entries(std::as_bytes(std::span(bytes)), address, data.size(), &packed),
        UCS_OK);
    LaneKey key;
    ASSERT_EQ(key.open(there, packed, {domain, domain}), UCS_OK);
    EXPECT_NE(key.find({domain, domain}), uct::kInvalidRemoteKey);
    EXPECT_EQ(key.find({static_cast<uint8_t>(domain + 1), domain}), uct::kInvalidRemoteKey);
    key.close(there);
    EXPECT_EQ(key.find({domain, domain}), uct::kInvalidRemoteKey);
    registration.close(here);
    EXPECT_EQ(key.open(there, packed, {domain, domain}), UCS_OK);
    EXPECT_EQ(key.find({domain, domain}), uct::kInvalidRemoteKey);
}

// Both ways of active messages are timed by both ends, whoever makes them go.
TEST(RendezvousWithinAHost, CostsOfActiveMessagesAreLearned) {
    using select::Load;
    using select::Way;
    constexpr size_t kLength = 100000;
    constexpr unsigned kMessages = 64;
    CacheFolder folder;
    SharedQueues queues(SharedQueues::Variables{{"COSTS", "learn"}, {"LANES", "scalable"}});
    const LearnedLane* learned = queues.endpoint().learned(select::Operation::kActiveMessage);
    ASSERT_NE(learned, nullptr);
    // Either seems to take no time, until it was tried.
    const auto which = select::LearnedCosts::class_of(Load::kOneWay, kLength);
    for (const Way way : {Way::kEager, Way::kRendezvous})
        learned->costs->restore(which, way, 0.002F, 1);
    queues.receive_active_messages(kLength);
    const Bytes source = pattern(kLength, 1);
    // Who is to tell times has to have a way back.
    queues.finish(queues.send_active_message(source, UCP_AM_SEND_FLAG_RNDV));
    for (unsigned i = 0; i < kMessages; ++i) queues.finish(queues.send_active_message(source));
    queues.finish_active_messages(1 + kMessages);
    EXPECT_GE(learned->costs->learned(which, Way::kEager), 4u);
    EXPECT_GE(learned->costs->learned(which, Way::kRendezvous), 4u);
    EXPECT_EQ(queues.endpoint().learned()->costs->learned(which, Way::kEager), 0u);
}

// By default what is alone within a host goes by what it has cost, and nothing else does.
TEST(RendezvousWithinAHost, CostsOfMessagesThatAreAloneAreLearned) {
    using select::Load;
    constexpr size_t kLength = 100000;
    SharedQueues queues;
    const LearnedLane* learned = queues.endpoint().learned();
    ASSERT_NE(learned, nullptr);
    EXPECT_NE(learned->ways_of(Load::kAlone, kLength), nullptr);
    EXPECT_EQ(learned->ways_of(Load::kOneWay, kLength), nullptr);
    EXPECT_EQ(learned->ways_of(Load::kBothWays, kLength), nullptr);
    const Bytes source = pattern(kLength, 1);
    Bytes target(source.size());
    for (int i = 0; i < 10; ++i) {
        const ucs_status_ptr_t receiving = queues.receive(target);
        queues.finish(queues.send(source));
        queues.finish(receiving);
    }
    SharedQueues table(SharedQueues::Variables{{"COSTS", "measured"}});
    EXPECT_EQ(table.endpoint().learned(), nullptr);
}

}  // namespace
}  // namespace ucp::test
