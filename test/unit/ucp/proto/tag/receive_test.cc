// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstring>
#include <deque>
#include <stdexcept>

#include "ucp/proto/eager/eager.h"
#include "ucp/proto/tag/engine.h"
#include "unit/ucp/proto/cluster.h"

namespace ucp::test {
namespace {

ucs_status_ptr_t send_tagged(Cluster& cluster, const Bytes& data, uint64_t tag) {
    const ucp_request_param_t param{};
    return cluster.a.worker().tags().send(cluster.endpoint(), data.data(), data.size(), tag,
                                          TagMode::kNormal, OpParams(&param));
}

ucs_status_ptr_t receive_tagged(Cluster& cluster, Bytes& data, uint64_t tag, uint64_t mask) {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    return ucp_tag_recv_nbx(cluster.b().handle(), data.data(), data.size(), tag, mask, &param);
}

TEST(TagReceive, InfoOfAnImmediateReceive) {
    Cluster cluster;
    const Bytes data = pattern(100, 1);
    EXPECT_EQ(cluster.wait(send_tagged(cluster, data, 0x1234)), UCS_OK);
    cluster.settle();
    Bytes target(200);
    ucp_tag_recv_info_t info{};
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_RECV_INFO;
    param.recv_info.tag_info = &info;
    EXPECT_EQ(
        ucp_tag_recv_nbx(cluster.b().handle(), target.data(), target.size(), 0x34, 0xff, &param),
        nullptr);
    EXPECT_EQ(info.sender_tag, 0x1234u);
    EXPECT_EQ(info.length, 100u);
    EXPECT_TRUE(std::equal(data.begin(), data.end(), target.begin()));
}

// Open MPI looks only at its request, not at what the call returns.
TEST(TagReceive, RequestOfTheUserTellsAnImmediateEnd) {
    Cluster cluster;
    EXPECT_EQ(cluster.wait(send_tagged(cluster, pattern(100, 1), 7)), UCS_OK);
    cluster.settle();
    alignas(Request) std::byte memory[sizeof(Request) + 8];
    Bytes target(100);
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_REQUEST;
    param.request = memory + sizeof(Request);
    EXPECT_EQ(ucp_tag_recv_nbx(cluster.b().handle(), target.data(), target.size(), 7, ~0ul, &param),
              nullptr);
    ucp_tag_recv_info_t info{};
    EXPECT_EQ(ucp_request_test(param.request, &info), UCS_OK);
    EXPECT_EQ(info.sender_tag, 7u);
    EXPECT_EQ(info.length, 100u);
}

// A posted receive writes as little as it can into its request: what it leaves out must not be
// read.
// A receive of a message that is there, whose callback receives the next one.
struct Following {
    Cluster& cluster;
    Bytes target = Bytes(100);
    unsigned ended = 0, left = 2;
    bool is_within_call = false;

    void receive() {
        ucp_request_param_t param{};
        param.op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
        param.user_data = this;
        param.cb.recv = [](void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                           void* self) {
            auto& following = *static_cast<Following*>(self);
            EXPECT_EQ(status, UCS_OK);
            EXPECT_EQ(info->length, 100u);
            EXPECT_FALSE(following.is_within_call) << "the stack grows with each message";
            following.is_within_call = true;
            ++following.ended;
            if (--following.left != 0) following.receive();
            following.is_within_call = false;
            ucp_request_free(request);
        };
        EXPECT_TRUE(UCS_PTR_IS_PTR(
            ucp_tag_recv_nbx(cluster.b().handle(), target.data(), target.size(), 7, ~0ul, &param)));
    }
};

TEST(TagReceive, TheCallbackOfAnImmediateEndRunsWithinTheCall) {
    Cluster cluster;
    for (int i = 0; i < 2; ++i)
        EXPECT_EQ(cluster.wait(send_tagged(cluster, pattern(100, 1), 7)), UCS_OK);
    cluster.settle();
    Following following{cluster};
    following.receive();
    EXPECT_EQ(following.ended, 1u);
    EXPECT_EQ(following.target, pattern(100, 1));
    cluster.settle();
    EXPECT_EQ(following.ended, 2u);
}

TEST(TagReceive, PostedInMemoryThatHoldsAnything) {
    Cluster cluster;
    alignas(Request) std::byte memory[sizeof(Request) + 8];
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_REQUEST;
    param.request = memory + sizeof(Request);
    const auto post = [&](Bytes& target) {
        std::memset(memory, 0xa5, sizeof(memory));
        ASSERT_EQ(
            ucp_tag_recv_nbx(cluster.b().handle(), target.data(), target.size(), 7, ~0ul, &param),
            param.request);
        char text[128];
        ucp_request_attr_t attributes{};
        attributes.field_mask =
            UCP_REQUEST_ATTR_FIELD_INFO_STRING | UCP_REQUEST_ATTR_FIELD_INFO_STRING_SIZE;
        attributes.debug_string = text;
        attributes.debug_string_size = sizeof(text);
        EXPECT_EQ(ucp_request_query(param.request, &attributes), UCS_OK);
        const std::string length = "recv length " + std::to_string(target.size()) + " host memory";
        EXPECT_NE(std::string(text).find(length), std::string::npos) << text;
    };
    for (const TagMode mode : {TagMode::kNormal, TagMode::kSync}) {
        for (const size_t length : {10u, 3000u, 50000u}) {  // one piece, fragments, rendezvous
            for (const size_t room : {length, length / 2}) {
                const Bytes data = pattern(length, 1);
                Bytes target(room);
                post(target);
                const ucp_request_param_t sent{};
                const ucs_status_ptr_t sending = cluster.a.worker().tags().send(
                    cluster.endpoint(), data.data(), length, 7, mode, OpParams(&sent));
                ucp_tag_recv_info_t info{};
                ASSERT_TRUE(cluster.until(
                    [&] { return ucp_request_test(param.request, &info) != UCS_INPROGRESS; }));
                EXPECT_EQ(ucp_request_test(param.request, &info),
                          room < length ? UCS_ERR_MESSAGE_TRUNCATED : UCS_OK);
                EXPECT_EQ(info.sender_tag, 7u);
                EXPECT_EQ(info.length, length);
                EXPECT_EQ(cluster.wait(sending), UCS_OK);
                if (room == length) {
                    EXPECT_EQ(target, data);
                }
            }
        }
    }
    Bytes target(10);
    post(target);
    ucp_request_cancel(cluster.b().handle(), param.request);
    ucp_tag_recv_info_t info{};
    ASSERT_TRUE(
        cluster.until([&] { return ucp_request_test(param.request, &info) != UCS_INPROGRESS; }));
    EXPECT_EQ(ucp_request_test(param.request, &info), UCS_ERR_CANCELED);
}

TEST(TagReceive, ProbeTakesTheMessageOutOfMatching) {
    Cluster cluster;
    for (const size_t length : {10u, 3000u, 50000u}) {  // one piece, fragments, rendezvous
        const Bytes first = pattern(length, 1), second = pattern(length, 2);
        const ucs_status_ptr_t sends[] = {send_tagged(cluster, first, 5),
                                          send_tagged(cluster, second, 5)};
        ucp_tag_recv_info_t info{};
        ASSERT_TRUE(cluster.until(
            [&] { return ucp_tag_probe_nb(cluster.b().handle(), 5, ~0ul, 0, &info) != nullptr; }));
        ucp_tag_message_h message = ucp_tag_probe_nb(cluster.b().handle(), 5, ~0ul, 1, &info);
        ASSERT_NE(message, nullptr);
        EXPECT_EQ(info.length, length);
        Bytes target(length), other(length);
        const ucs_status_ptr_t receiving = receive_tagged(cluster, other, 5, ~0ul);
        int calls = 0;
        static int* counter;
        counter = &calls;
        const ucs_status_ptr_t taking =
            ucp_tag_msg_recv_nb(cluster.b().handle(), target.data(), length, ucp_dt_make_contig(1),
                                message, [](void*, ucs_status_t status, ucp_tag_recv_info_t* got) {
                                    EXPECT_EQ(status, UCS_OK);
                                    EXPECT_EQ(got->sender_tag, 5u);
                                    ++*counter;
                                });
        EXPECT_EQ(cluster.wait(taking), UCS_OK);
        EXPECT_EQ(cluster.wait(receiving), UCS_OK);
        EXPECT_EQ(target, first);
        EXPECT_EQ(other, second);
        EXPECT_EQ(calls, 1);
        for (ucs_status_ptr_t sending : sends) EXPECT_EQ(cluster.wait(sending), UCS_OK);
    }
}

// A receive that takes a long message that was kept copies nothing in its call, and a piece in each
// progress, so that none of them takes long.
TEST(TagReceive, ALongKeptMessageIsCopiedInPieces) {
    Settings settings;
    settings.rndv_threshold = 1 << 30;
    Cluster cluster(settings);
    const Bytes data(16 << 20, 7);
    for (const size_t room : {data.size(), data.size() / 2}) {
        for (const bool is_probed : {false, true}) {
            const ucs_status_ptr_t sending = send_tagged(cluster, data, 5);
            EXPECT_EQ(cluster.wait(sending), UCS_OK);
            cluster.settle();
            Bytes target(room);
            ucs_status_ptr_t receiving = nullptr;
            if (is_probed) {
                ucp_tag_recv_info_t info{};
                const ucp_request_param_t param{};
                ucp_tag_message_h message =
                    ucp_tag_probe_nb(cluster.b().handle(), 5, ~0ul, 1, &info);
                ASSERT_NE(message, nullptr);
                receiving = ucp_tag_msg_recv_nbx(cluster.b().handle(), target.data(), room, message,
                                                 &param);
            } else {
                receiving = receive_tagged(cluster, target, 5, ~0ul);
            }
            size_t copied = 0, calls = 0;
            while (ucp_request_check_status(receiving) == UCS_INPROGRESS) {
                const size_t before = copied;
                while (copied < room && target[copied] != 0) ++copied;
                ASSERT_LE(copied - before, calls == 0 ? 0 : TagEngine::kPiece);
                ASSERT_LE(++calls, 2 * data.size() / TagEngine::kPiece);
                ucp_worker_progress(cluster.b().handle());
            }
            EXPECT_GE(calls, data.size() / TagEngine::kPiece);
            EXPECT_EQ(cluster.wait(receiving),
                      room < data.size() ? UCS_ERR_MESSAGE_TRUNCATED : UCS_OK);
            EXPECT_TRUE(std::ranges::all_of(target, [](uint8_t byte) { return byte == 7; }));
        }
    }
}

// What asks for its end in the call gets it.
TEST(TagReceive, ALongKeptMessageIsCopiedAtOnceForWhoAsksForThat) {
    Settings settings;
    settings.rndv_threshold = 1 << 30;
    Cluster cluster(settings);
    const Bytes data(1 << 20, 7);
    EXPECT_EQ(cluster.wait(send_tagged(cluster, data, 5)), UCS_OK);
    cluster.settle();
    Bytes target(data.size());
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL;
    EXPECT_EQ(ucp_tag_recv_nbx(cluster.b().handle(), target.data(), target.size(), 5, ~0ul, &param),
              nullptr);
    EXPECT_EQ(target, data);
}

// A worker may go, and fragments may come, while a kept message is copied.
TEST(TagReceive, FragmentsMayComeWhileAKeptMessageIsCopied) {
    for (const bool is_left : {false, true}) {
        Settings settings;
        settings.rndv_threshold = 1 << 30;
        settings.fabric.poll_batch = 1;
        Cluster cluster(settings);
        const Bytes data = pattern(2 << 20, 3);
        const ucs_status_ptr_t sending = send_tagged(cluster, data, 5);
        ASSERT_TRUE(cluster.until([&] {
            const auto* message = cluster.b().worker().tags().probe(5, ~0ul, false);
            return message != nullptr && message->arrived > 3 * TagEngine::kPiece;
        }));
        Bytes target(data.size());
        const ucs_status_ptr_t receiving = receive_tagged(cluster, target, 5, ~0ul);
        EXPECT_EQ(ucp_request_check_status(receiving), UCS_INPROGRESS);
        if (is_left) {
            ucp_worker_progress(cluster.b().handle());
            EXPECT_EQ(target[0], data[0]);
            ucp_request_free(receiving);
            ucp_request_free(sending);
            continue;
        }
        EXPECT_EQ(cluster.wait(receiving), UCS_OK);
        EXPECT_TRUE(target == data);
        EXPECT_EQ(cluster.wait(sending), UCS_OK);
    }
}

Settings one_at_a_time() {
    Settings settings;
    settings.rndv_threshold = 1 << 20;
    settings.fabric.poll_batch = 1;
    return settings;
}

void close_by_force(Cluster& cluster, ucp_ep_h endpoint) {
    ucp_request_param_t force{};
    force.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    force.flags = UCP_EP_CLOSE_FLAG_FORCE;
    EXPECT_EQ(cluster.wait(ucp_ep_close_nbx(endpoint, &force)), UCS_OK);
}

// Who sends goes on: it knows nothing of the receiver's endpoint.
TEST(TagReceive, AMessageIsNotOvertakenWhenTheReceiverHasClosedItsEndpoint) {
    const Bytes first = pattern(50000, 1), second = pattern(10, 2);
    for (const bool is_expected : {false, true}) {
        Cluster cluster(one_at_a_time());
        Bytes targets[] = {Bytes(first.size()), Bytes(second.size())};
        ucs_status_ptr_t receives[2];
        if (is_expected) receives[0] = receive_tagged(cluster, targets[0], 5, ~0ul);
        const ucs_status_ptr_t sends[] = {send_tagged(cluster, first, 5),
                                          send_tagged(cluster, second, 5)};
        ASSERT_TRUE(cluster.until(
            [&] { return cluster.fabric().counters(uct::mock::Kind::kScalable).delivered > 3; }));
        close_by_force(cluster, cluster.back);
        for (const ucs_status_ptr_t sending : sends) EXPECT_EQ(cluster.wait(sending), UCS_OK);
        if (!is_expected) receives[0] = receive_tagged(cluster, targets[0], 5, ~0ul);
        receives[1] = receive_tagged(cluster, targets[1], 5, ~0ul);
        for (const ucs_status_ptr_t receiving : receives) {
            EXPECT_EQ(cluster.wait(receiving), UCS_OK);
        }
        EXPECT_TRUE(targets[0] == first);
        EXPECT_TRUE(targets[1] == second);
    }
}

TEST(TagReceive, AMessageThatNeverBecomesWholeIsAnErrorInItsPlace) {
    const Bytes data = pattern(1000000, 1);  // more than is under way at once
    for (const bool is_expected : {false, true}) {
        Cluster cluster(one_at_a_time());
        Bytes target(data.size());
        ucs_status_ptr_t receiving = nullptr;
        if (is_expected) receiving = receive_tagged(cluster, target, 5, ~0ul);
        const ucs_status_ptr_t sending = send_tagged(cluster, data, 5);
        ASSERT_TRUE(cluster.until(
            [&] { return cluster.fabric().counters(uct::mock::Kind::kScalable).delivered > 3; }));
        cluster.fabric().kill(cluster.a.worker().uuid());
        close_by_force(cluster, cluster.back);
        // Others keep the receiver busy: something is found at every look.
        const ucp_ep_h busy = cluster.b().connect(cluster.b());
        const ucp_request_param_t param{};
        for (int i = 0; i < 1000; ++i) {
            cluster.b().worker().tags().send(unwrap(busy), "", 0, 6, TagMode::kNormal,
                                             OpParams(&param));
            cluster.clock().advance(std::chrono::milliseconds(2));
            cluster.step();
        }
        if (!is_expected) receiving = receive_tagged(cluster, target, 5, ~0ul);
        EXPECT_LT(cluster.wait(receiving), UCS_OK);
        ucp_request_free(sending);
    }
}

// Packs no part of an element, as MPICH's structures do.
struct Elements {
    static constexpr size_t kSize = 23;
    static void* start_pack(void* context, const void*, size_t) { return context; }
    static void* start_unpack(void* context, void*, size_t) { return context; }
    static size_t packed_size(void* state) { return static_cast<Bytes*>(state)->size(); }
    static size_t pack(void* state, size_t offset, void* to, size_t room) {
        const Bytes& bytes = *static_cast<Bytes*>(state);
        const size_t length = std::min(room, bytes.size() - offset) / kSize * kSize;
        std::memcpy(to, bytes.data() + offset, length);
        return length;
    }
    static ucs_status_t unpack(void*, size_t, const void*, size_t) { return UCS_ERR_UNSUPPORTED; }
    static void finish(void*) {}
};

TEST(TagReceive, TypesMayPackWholeElementsOnly) {
    for (const size_t threshold : {size_t{100}, size_t{1} << 20}) {  // rendezvous, fragments
        Settings settings;
        settings.rndv_threshold = threshold;
        Cluster cluster(settings);
        Bytes data = pattern(400 * Elements::kSize, 3);
        const ucp_generic_dt_ops_t ops = {Elements::start_pack,  Elements::start_unpack,
                                          Elements::packed_size, Elements::pack,
                                          Elements::unpack,      Elements::finish};
        ucp_datatype_t type;
        ASSERT_EQ(ucp_dt_create_generic(&ops, &data, &type), UCS_OK);
        Bytes target(data.size());
        const ucs_status_ptr_t receiving = receive_tagged(cluster, target, 5, ~0ul);
        ucp_request_param_t param{};
        param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
        param.datatype = type;
        const ucs_status_ptr_t sending = cluster.a.worker().tags().send(
            cluster.endpoint(), data.data(), 1, 5, TagMode::kNormal, OpParams(&param));
        EXPECT_EQ(cluster.wait(receiving), UCS_OK);
        EXPECT_EQ(cluster.wait(sending), UCS_OK);
        EXPECT_EQ(target, data);
        ucp_dt_destroy(type);
    }
}

TEST(TagReceive, CancelEndsOnlyWhatIsNotMatched) {
    Cluster cluster;
    Bytes target(10);
    const ucs_status_ptr_t receiving = receive_tagged(cluster, target, 5, ~0ul);
    Request& request = Request::from_handle(receiving);
    EXPECT_TRUE(cluster.b().worker().tags().cancel(request));
    EXPECT_FALSE(request.is_finished());  // callbacks come from progress
    EXPECT_EQ(cluster.wait(receiving), UCS_ERR_CANCELED);

    const ucs_status_ptr_t matched = receive_tagged(cluster, target, 5, ~0ul);
    EXPECT_EQ(cluster.wait(send_tagged(cluster, pattern(10, 1), 5)), UCS_OK);
    cluster.settle();
    EXPECT_FALSE(cluster.b().worker().tags().cancel(Request::from_handle(matched)));
    EXPECT_EQ(cluster.wait(matched), UCS_OK);
}

TEST(TagReceive, OldCallsInUserMemory) {
    Cluster cluster;
    std::vector<std::byte> memory(sizeof(Request) + 64 + 16);
    void* aligned = memory.data();
    size_t room = memory.size();
    std::align(alignof(Request), sizeof(Request) + 8, aligned, room);
    void* handle = static_cast<Request*>(aligned) + 1;
    const Bytes data = pattern(10, 1);
    Bytes target(10);
    EXPECT_EQ(ucp_tag_recv_nbr(cluster.b().handle(), target.data(), 10, ucp_dt_make_contig(1), 5,
                               ~0ul, handle),
              UCS_INPROGRESS);
    EXPECT_EQ(cluster.wait(send_tagged(cluster, data, 5)), UCS_OK);
    Request& request = Request::from_handle(handle);
    EXPECT_TRUE(cluster.until([&] { return request.is_finished(); }));
    EXPECT_EQ(target, data);
}

TEST(TagReceive, BadBuffersAreRefused) {
    Cluster cluster;
    ucp_request_param_t param{};
    EXPECT_EQ(
        UCS_PTR_RAW_STATUS(ucp_tag_recv_nbx(cluster.b().handle(), nullptr, 8, 1, ~0ul, &param)),
        UCS_ERR_INVALID_PARAM);
    param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
    param.datatype = UCP_DATATYPE_STRIDED;
    Bytes target(8);
    EXPECT_EQ(UCS_PTR_RAW_STATUS(
                  ucp_tag_recv_nbx(cluster.b().handle(), target.data(), 8, 1, ~0ul, &param)),
              UCS_ERR_INVALID_PARAM);
}

// Random sends, receives, probes and cancels; messages carry their number. Whatever the protocols,
// the pairs must be those of two plain lists.
class TagModel : public testing::TestWithParam<unsigned> {};

TEST_P(TagModel, PairsAreThoseOfPlainLists) {
    std::mt19937_64 random(GetParam());
    Settings settings;
    settings.fabric.seed = GetParam();
    settings.fabric.no_resource_probability = 0.1;
    settings.rndv_threshold = 5000;
    settings.scheme = static_cast<RndvScheme>(GetParam() % 4);
    Cluster cluster(settings);

    struct Send {
        Bytes data;
        uint64_t tag;
        ucs_status_ptr_t operation;
    };
    struct Receive {
        Bytes data;
        uint64_t tag, mask;
        void* handle;
        int message = -1;
    };
    std::deque<Send> sends;
    std::deque<Receive> receives;
    std::deque<int> arrived;  // unmatched messages, by number
    std::deque<int> posted;   // unmatched receives, by number
    const size_t lengths[] = {8, 60, 700, 3000, 6000, 20000};

    for (int step = 0; step < 300; ++step) {
        const uint64_t tag = random() % 4;
        const uint64_t choice = random() % 10;
        if (choice < 5) {
            const int number = static_cast<int>(sends.size());
            sends.push_back(
                {pattern(lengths[random() % 6], static_cast<uint64_t>(number)), tag, nullptr});
            sends.back().operation = send_tagged(cluster, sends.back().data, tag);
            ASSERT_FALSE(UCS_PTR_IS_ERR(sends.back().operation));
            cluster.settle();
            bool matched = false;
            for (auto it = posted.begin(); it != posted.end() && !matched; ++it) {
                Receive& receive = receives[static_cast<size_t>(*it)];
                if (((receive.tag ^ tag) & receive.mask) != 0) continue;
                receive.message = number;
                posted.erase(it);
                matched = true;
                break;
            }
            if (!matched) arrived.push_back(number);
        } else if (choice < 9) {
            const int number = static_cast<int>(receives.size());
            const uint64_t masks[] = {~0ul, ~0ul, 0, 1};
            receives.push_back({Bytes(20000), tag, masks[random() % 4], nullptr});
            Receive& made = receives.back();
            made.handle = receive_tagged(cluster, made.data, made.tag, made.mask);
            ASSERT_TRUE(UCS_PTR_IS_PTR(made.handle));
            for (auto it = arrived.begin(); it != arrived.end(); ++it) {
                if (((sends[static_cast<size_t>(*it)].tag ^ made.tag) & made.mask) != 0) continue;
                made.message = *it;
                arrived.erase(it);
                break;
            }
            if (made.message < 0) posted.push_back(number);
        } else if (!posted.empty()) {
            const size_t victim = random() % posted.size();
            Receive& receive = receives[static_cast<size_t>(posted[victim])];
            ASSERT_TRUE(cluster.b().worker().tags().cancel(Request::from_handle(receive.handle)));
            EXPECT_EQ(cluster.wait(receive.handle), UCS_ERR_CANCELED);
            receive.handle = nullptr;
            posted.erase(posted.begin() + static_cast<ptrdiff_t>(victim));
        }
    }
    for (Receive& receive : receives) {
        if (receive.handle == nullptr) continue;
        Request& request = Request::from_handle(receive.handle);
        if (receive.message < 0) {
            EXPECT_FALSE(request.is_finished());
            ASSERT_TRUE(cluster.b().worker().tags().cancel(request));
            EXPECT_EQ(cluster.wait(receive.handle), UCS_ERR_CANCELED);
            continue;
        }
        const Send& send = sends[static_cast<size_t>(receive.message)];
        ASSERT_TRUE(cluster.until([&] { return request.is_finished(); }));
        EXPECT_EQ(request.status, UCS_OK);
        EXPECT_EQ(request.tag_info.sender_tag, send.tag);
        ASSERT_EQ(request.tag_info.length, send.data.size());
        EXPECT_TRUE(std::equal(send.data.begin(), send.data.end(), receive.data.begin()));
        cluster.b().worker().requests().free(request);
    }
    // Messages that nobody received: their senders still wait, or are done.
    for (const int number : arrived) {
        Bytes sink(20000);
        EXPECT_EQ(cluster.wait(
                      receive_tagged(cluster, sink, sends[static_cast<size_t>(number)].tag, ~0ul)),
                  UCS_OK);
    }
    for (Send& send : sends) EXPECT_EQ(cluster.wait(send.operation), UCS_OK);
}

INSTANTIATE_TEST_SUITE_P(Seeds, TagModel, testing::Range(1u, 13u));

ucs_status_ptr_t send_typed(Cluster& cluster, const void* buffer, size_t count, ucp_datatype_t type,
                            uint64_t tag) {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
    param.datatype = type;
    return ucp_tag_send_nbx(cluster.ep, buffer, count, tag, &param);
}

TEST(TagSend, WhatMustBePackedEndsInTheCallWhereItIsShort) {
    for (const auto kind : {TypedBuffer::Kind::kIov, TypedBuffer::Kind::kGeneric}) {
        for (const size_t length : {size_t{0}, size_t{1}, size_t{40}}) {
            Cluster cluster;
            TypedBuffer sent(kind, pattern(length, 1));
            Bytes target(length);
            const ucs_status_ptr_t receiving = receive_tagged(cluster, target, 5, ~0ul);
            EXPECT_EQ(send_typed(cluster, sent.buffer(), sent.count(), sent.type(), 5), nullptr);
            EXPECT_EQ(cluster.wait(receiving), UCS_OK);
            EXPECT_EQ(target, sent.bytes());
        }
    }
}

// Its pack throws as often as it is told to.
struct Throwing {
    static void* start(void* context, const void*, size_t) { return context; }
    static void* start_unpack(void* context, void*, size_t) { return context; }
    static size_t packed_size(void*) { return 8; }
    static size_t pack(void* state, size_t, void* to, size_t) {
        auto& self = *static_cast<Throwing*>(state);
        if (self.times-- > 0) throw std::runtime_error("cannot be packed");
        std::memset(to, 7, 8);
        return 8;
    }
    static ucs_status_t unpack(void*, size_t, const void*, size_t) { return UCS_ERR_UNSUPPORTED; }
    static void finish(void* state) { ++static_cast<Throwing*>(state)->finished; }

    int times;
    int finished = 0;
};

TEST(TagSend, APackThatThrowsSendsNothingAndKeepsNoState) {
    Cluster cluster;
    Throwing state{1};
    const ucp_generic_dt_ops_t ops = {Throwing::start,       Throwing::start_unpack,
                                      Throwing::packed_size, Throwing::pack,
                                      Throwing::unpack,      Throwing::finish};
    ucp_datatype_t type;
    ASSERT_EQ(ucp_dt_create_generic(&ops, &state, &type), UCS_OK);
    EXPECT_THROW((void)send_typed(cluster, nullptr, 1, type, 5), std::runtime_error);
    EXPECT_EQ(state.finished, 1);
    Bytes target(8);
    const ucs_status_ptr_t receiving = receive_tagged(cluster, target, 5, ~0ul);
    EXPECT_EQ(send_typed(cluster, nullptr, 1, type, 5), nullptr);
    EXPECT_EQ(cluster.wait(receiving), UCS_OK);
    EXPECT_EQ(target, Bytes(8, 7));
    EXPECT_EQ(state.finished, 2);
    ucp_dt_destroy(type);
}

}  // namespace
}  // namespace ucp::test
