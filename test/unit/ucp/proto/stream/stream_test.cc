// SPDX-License-Identifier: BSD-3-Clause

// Byte streams: what is received is what was sent, in order, however either side cuts it.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>

#include "ucs/sys/random.h"
#include "unit/ucp/cluster.h"

namespace ucp::test {
namespace {

ucp_request_param_t with_flags(uint32_t flags, ucp_datatype_t datatype = ucp_dt_make_contig(1)) {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_DATATYPE;
    param.flags = flags;
    param.datatype = datatype;
    return param;
}

void send(Cluster& cluster, size_t from, size_t to, const void* bytes, size_t length) {
    ASSERT_EQ(
        cluster.finish(ucp_stream_send_nbx(cluster.endpoint(from, to), bytes, length, &kNothing)),
        UCS_OK);
}

// Wait until the endpoint has something to read.
void await_bytes(Cluster& cluster, size_t at) {
    ucp_stream_poll_ep_t polled{};
    ASSERT_TRUE(cluster.until(
        [&] { return ucp_stream_worker_poll(cluster.worker(at), &polled, 1, 0) == 1; }));
}

TEST(Stream, GivesWhatIsThereOrFillsTheBuffer) {
    Cluster cluster(2);
    const ucp_ep_h back = cluster.endpoint(1, 0);
    char buffer[16] = {};
    size_t length = 0;
    send(cluster, 0, 1, "hello", 5);
    await_bytes(cluster, 1);
    EXPECT_EQ(ucp_stream_recv_nbx(back, buffer, sizeof(buffer), &length, &kNothing), nullptr);
    EXPECT_EQ(std::string(buffer, length), "hello");

    const ucp_request_param_t all = with_flags(UCP_STREAM_RECV_FLAG_WAITALL);
    const ucs_status_ptr_t receiving = ucp_stream_recv_nbx(back, buffer, 8, &length, &all);
    ASSERT_TRUE(UCS_PTR_IS_PTR(receiving));
    send(cluster, 0, 1, "abcde", 5);
    cluster.steps(50);
    EXPECT_EQ(ucp_stream_recv_request_test(receiving, &length), UCS_INPROGRESS);
    send(cluster, 0, 1, "fghij", 5);
    ASSERT_TRUE(cluster.until(
        [&] { return ucp_stream_recv_request_test(receiving, &length) != UCS_INPROGRESS; }));
    EXPECT_EQ(length, 8u);
    EXPECT_EQ(std::string(buffer, 8), "abcdefgh");
    ucp_request_free(receiving);
    EXPECT_EQ(ucp_stream_recv_nbx(back, buffer, 16, &length, &kNothing), nullptr);
    EXPECT_EQ(std::string(buffer, length), "ij");
}

TEST(Stream, ReceivesTakeWholeElements) {
    Cluster cluster(2);
    const ucp_ep_h back = cluster.endpoint(1, 0);
    uint32_t numbers[4] = {};
    size_t length = 0;
    const ucp_request_param_t words = with_flags(0, ucp_dt_make_contig(4));
    send(cluster, 0, 1, "\1\0\0", 3);
    await_bytes(cluster, 1);
    const ucs_status_ptr_t receiving = ucp_stream_recv_nbx(back, numbers, 4, &length, &words);
    ASSERT_TRUE(UCS_PTR_IS_PTR(receiving)) << "three bytes are no element";
    send(cluster, 0, 1, "\0\2\0\0\0\3", 6);
    ASSERT_TRUE(cluster.until(
        [&] { return ucp_stream_recv_request_test(receiving, &length) != UCS_INPROGRESS; }));
    EXPECT_EQ(length, 8u);
    EXPECT_EQ(numbers[0], 1u);
    EXPECT_EQ(numbers[1], 2u);
    ucp_request_free(receiving);
    char rest = 0;
    EXPECT_EQ(ucp_stream_recv_nbx(back, &rest, 1, &length, &kNothing), nullptr);
    EXPECT_EQ(rest, 3);
}

TEST(Stream, ReceivesEndInTheOrderOfPosting) {
    Cluster cluster(2);
    const ucp_ep_h back = cluster.endpoint(1, 0);
    struct Ended {
        std::vector<std::pair<void*, size_t>> list;
    } ended;
    ucp_request_param_t param = with_flags(UCP_STREAM_RECV_FLAG_WAITALL);
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.user_data = &ended;
    param.cb.recv_stream = [](void* request, ucs_status_t status, size_t length, void* arg) {
        EXPECT_EQ(status, UCS_OK);
        static_cast<Ended*>(arg)->list.emplace_back(request, length);
    };
    char parts[3][4] = {};
    void* requests[3];
    size_t length = 0;
    for (size_t index = 0; index < 3; ++index) {
        requests[index] = ucp_stream_recv_nbx(back, parts[index], 4, &length, &param);
        ASSERT_TRUE(UCS_PTR_IS_PTR(requests[index]));
    }
    send(cluster, 0, 1, "aaaabbbbcccc", 12);
    ASSERT_TRUE(cluster.until([&] { return ended.list.size() == 3; }));
    for (size_t index = 0; index < 3; ++index) {
        EXPECT_EQ(ended.list[index], std::make_pair(requests[index], size_t{4}));
        EXPECT_EQ(std::string(parts[index], 4), std::string(4, static_cast<char>('a' + index)));
        ucp_request_free(requests[index]);
    }
}

TEST(Stream, LendsBytesWithoutCopying) {
    Cluster cluster(2);
    const ucp_ep_h back = cluster.endpoint(1, 0);
    size_t length = 99;
    EXPECT_EQ(ucp_stream_recv_data_nb(back, &length), nullptr);
    send(cluster, 0, 1, "0123456789", 10);
    await_bytes(cluster, 1);
    char two[2];
    ASSERT_EQ(ucp_stream_recv_nbx(back, two, 2, &length, &kNothing), nullptr);
    void* data = ucp_stream_recv_data_nb(back, &length);
    ASSERT_TRUE(UCS_PTR_IS_PTR(data));
    EXPECT_EQ(std::string(static_cast<char*>(data), length), "23456789");
    // What comes meanwhile does not touch what is lent.
    send(cluster, 0, 1, "later", 5);
    await_bytes(cluster, 1);
    EXPECT_EQ(std::string(static_cast<char*>(data), length), "23456789");
    ucp_stream_data_release(back, data);
    char later[8];
    ASSERT_EQ(ucp_stream_recv_nbx(back, later, 8, &length, &kNothing), nullptr);
    EXPECT_EQ(std::string(later, length), "later");
}

TEST(Stream, PollTellsEachEndpointOnceForWhatHasCome) {
    Cluster cluster(3);
    int names[3] = {};
    ucp_ep_h endpoints[3] = {};
    for (size_t peer : {0, 2}) {
        ucp_ep_params_t params{};
        params.field_mask = UCP_EP_PARAM_FIELD_USER_DATA;
        params.user_data = &names[peer];
        endpoints[peer] = cluster.connect(1, peer, params);
        send(cluster, peer, 1, "x", 1);
    }
    ucp_stream_poll_ep_t polled[4];
    size_t seen = 0;
    ASSERT_TRUE(cluster.until([&] {
        seen += static_cast<size_t>(
            ucp_stream_worker_poll(cluster.worker(1), polled + seen, 4 - seen, 0));
        return seen == 2;
    }));
    cluster.steps(20);
    EXPECT_EQ(ucp_stream_worker_poll(cluster.worker(1), polled + 2, 2, 0), 0);
    std::sort(polled, polled + 2, [](auto& a, auto& b) { return a.user_data < b.user_data; });
    EXPECT_EQ(polled[0].ep, endpoints[0]);
    EXPECT_EQ(polled[0].user_data, &names[0]);
    EXPECT_EQ(polled[1].ep, endpoints[2]);
    EXPECT_EQ(polled[1].user_data, &names[2]);
}

TEST(Stream, WaitsForAnEndpointThatIsMadeLater) {
    Cluster cluster(2);
    send(cluster, 0, 1, "early", 5);
    cluster.steps(50);
    ucp_stream_poll_ep_t polled{};
    EXPECT_EQ(ucp_stream_worker_poll(cluster.worker(1), &polled, 1, 0), 0);
    const ucp_ep_h back = cluster.endpoint(1, 0);
    EXPECT_EQ(ucp_stream_worker_poll(cluster.worker(1), &polled, 1, 0), 1);
    EXPECT_EQ(polled.ep, back);
    char buffer[5];
    size_t length = 0;
    ASSERT_EQ(ucp_stream_recv_nbx(back, buffer, 5, &length, &kNothing), nullptr);
    EXPECT_EQ(std::string(buffer, length), "early");
}

TEST(Stream, ReceivesCanBeCancelledAndEndWithTheEndpoint) {
    Cluster cluster(2);
    const ucp_ep_h back = cluster.endpoint(1, 0);
    char buffer[4];
    size_t length = 0;
    ucs_status_ptr_t receiving = ucp_stream_recv_nbx(back, buffer, 4, &length, &kNothing);
    ucp_request_cancel(cluster.worker(1), receiving);
    EXPECT_EQ(cluster.finish(receiving), UCS_ERR_CANCELED);
    receiving = ucp_stream_recv_nbx(back, buffer, 4, &length, &kNothing);
    cluster.finish(ucp_ep_close_nbx(back, &kNothing));
    cluster.forget(1, 0);
    EXPECT_EQ(cluster.finish(receiving), UCS_ERR_CANCELED);
}

TEST(Stream, EndsWithItsPeer) {
    Cluster cluster(2);
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler = {[](void*, ucp_ep_h, ucs_status_t) {}, nullptr};
    const ucp_ep_h back = cluster.connect(1, 0, params);
    char buffer[4];
    size_t length = 0;
    const ucs_status_ptr_t receiving = ucp_stream_recv_nbx(back, buffer, 4, &length, &kNothing);
    cluster.kill(0);
    const ucs_status_ptr_t sending = ucp_stream_send_nbx(back, buffer, 4, &kNothing);
    EXPECT_NE(cluster.finish(receiving), UCS_OK);
    if (UCS_PTR_IS_PTR(sending)) ucp_request_free(sending);
}

// A generic datatype whose packed form is the bytes, each with one bit turned.
struct Turned {
    static void* start_pack(void*, const void* buffer, size_t) { return const_cast<void*>(buffer); }
    static void* start_unpack(void*, void* buffer, size_t) { return buffer; }
    static size_t packed_size(void*) { return kBytes; }
    static size_t pack(void* state, size_t offset, void* to, size_t room) {
        const size_t length = std::min<size_t>({room, kBytes - offset, 777});
        for (size_t i = 0; i < length; ++i) {
            static_cast<uint8_t*>(to)[i] = static_cast<uint8_t*>(state)[offset + i] ^ 1;
        }
        return length;
    }
    static ucs_status_t unpack(void* state, size_t offset, const void* from, size_t length) {
        for (size_t i = 0; i < length; ++i) {
            static_cast<uint8_t*>(state)[offset + i] = static_cast<const uint8_t*>(from)[i] ^ 1;
        }
        return UCS_OK;
    }
    static void finish(void*) {}

    static constexpr size_t kBytes = 10000;
    static constexpr ucp_generic_dt_ops_t kOperations{start_pack, start_unpack, packed_size,
                                                      pack,       unpack,       finish};
};

TEST(Stream, TakesEveryKindOfDatatype) {
    Cluster cluster(2);
    const ucp_ep_h there = cluster.endpoint(0, 1), back = cluster.endpoint(1, 0);
    ucp_datatype_t generic;
    ASSERT_EQ(ucp_dt_create_generic(&Turned::kOperations, nullptr, &generic), UCS_OK);
    auto sent = pattern(Turned::kBytes, 3);
    std::vector<uint8_t> received(Turned::kBytes);
    size_t length = 0;

    const ucp_request_param_t packed = with_flags(UCP_STREAM_RECV_FLAG_WAITALL, generic);
    ucs_status_ptr_t receiving = ucp_stream_recv_nbx(back, received.data(), 1, &length, &packed);
    ASSERT_EQ(cluster.finish(ucp_stream_send_nb(there, sent.data(), 1, generic, nullptr, 0)),
              UCS_OK);
    ASSERT_EQ(cluster.finish(receiving), UCS_OK);
    EXPECT_EQ(received, sent);

    std::fill(received.begin(), received.end(), 0);
    const ucp_dt_iov_t out[] = {{sent.data(), 3}, {nullptr, 0}, {sent.data() + 3, sent.size() - 3}};
    const ucp_dt_iov_t in[] = {{received.data(), 4000},
                               {received.data() + 4000, received.size() - 4000}};
    receiving = ucp_stream_recv_nb(back, const_cast<ucp_dt_iov_t*>(in), 2, ucp_dt_make_iov(),
                                   nullptr, &length, UCP_STREAM_RECV_FLAG_WAITALL);
    ASSERT_EQ(cluster.finish(ucp_stream_send_nb(there, out, 3, ucp_dt_make_iov(), nullptr, 0)),
              UCS_OK);
    ASSERT_EQ(cluster.finish(receiving), UCS_OK);
    EXPECT_EQ(received, sent);
    ucp_dt_destroy(generic);
}

// Both directions at once, cut at random at either side, while lanes are switched to and fro.
class Segmentation : public testing::TestWithParam<uint64_t> {};

TEST_P(Segmentation, KeepsTheOrderAcrossLaneSwitches) {
    constexpr size_t kBytes = 2000000;
    ucs::Random random(GetParam());
    Cluster::Options options;
    options.seed = GetParam();
    Cluster cluster(2, options);
    struct Direction {
        std::vector<uint8_t> bytes;
        size_t sent = 0, received = 0;
        std::deque<ucs_status_ptr_t> sending;
        std::vector<uint8_t> buffer;
        ucs_status_ptr_t receiving = nullptr;
    } directions[2];
    for (size_t side : {0, 1}) directions[side].bytes = pattern(kBytes, GetParam() * 2 + side);
    const auto draw = [&](size_t limit) { return random() % limit; };
    const auto length_of = [&] {
        return draw(8) == 0 ? draw(40000) : draw(4) == 0 ? draw(3000) : draw(64);
    };
    unsigned step = 0;
    const auto advance = [&](size_t side) {
        Direction& way = directions[side];
        const ucp_ep_h from = cluster.endpoint(side, 1 - side);
        const ucp_ep_h to = cluster.endpoint(1 - side, side);
        if (way.sending.size() < 16 && way.sent < kBytes) {
            const size_t length = std::min(length_of(), kBytes - way.sent);
            const ucs_status_ptr_t sending =
                ucp_stream_send_nbx(from, way.bytes.data() + way.sent, length, &kNothing);
            ASSERT_FALSE(UCS_PTR_IS_ERR(sending));
            if (sending != nullptr) way.sending.push_back(sending);
            way.sent += length;
        }
        while (!way.sending.empty() &&
               ucp_request_check_status(way.sending.front()) != UCS_INPROGRESS) {
            ASSERT_EQ(ucp_request_check_status(way.sending.front()), UCS_OK);
            ucp_request_free(way.sending.front());
            way.sending.pop_front();
        }
        const auto check = [&](const void* data, size_t length) {
            ASSERT_LE(length, kBytes - way.received);
            ASSERT_EQ(std::memcmp(data, way.bytes.data() + way.received, length), 0)
                << "at byte " << way.received;
            way.received += length;
        };
        size_t length = 0;
        if (way.receiving != nullptr) {
            const ucs_status_t status = ucp_stream_recv_request_test(way.receiving, &length);
            if (status == UCS_INPROGRESS) return;
            ASSERT_EQ(status, UCS_OK);
            ucp_request_free(std::exchange(way.receiving, nullptr));
            check(way.buffer.data(), length);
        } else if (draw(3) == 0) {
            void* data = ucp_stream_recv_data_nb(to, &length);
            if (data == nullptr) return;
            check(data, length);
            ucp_stream_data_release(to, data);
        } else if (way.received < kBytes) {
            const bool all = draw(2) == 0;
            const size_t element = size_t{1} << (all ? 0 : draw(3));
            // The end of the stream need not be a whole element.
            const size_t left = kBytes - way.received;
            const size_t count = left < 64 ? left : std::min(length_of() / element + 1, left / 8);
            const size_t size = left < 64 ? 1 : element;
            way.buffer.resize(count * size);
            const ucp_request_param_t param =
                with_flags(all ? UCP_STREAM_RECV_FLAG_WAITALL : 0, ucp_dt_make_contig(size));
            const ucs_status_ptr_t receiving =
                ucp_stream_recv_nbx(to, way.buffer.data(), count, &length, &param);
            ASSERT_FALSE(UCS_PTR_IS_ERR(receiving));
            if (receiving != nullptr) {
                way.receiving = receiving;
            } else {
                check(way.buffer.data(), length);
            }
        }
    };
    ASSERT_TRUE(cluster.until([&] {
        advance(0);
        advance(1);
        const ucpx_lane_state_t state = cluster.lane_state(cluster.endpoint(0, 1));
        if (++step % 16 == 0 && state == UCPX_LANE_STATE_SCALABLE) {
            ucpx_ep_lanes_request(cluster.endpoint(0, 1), UCPX_LANE_POLICY_DEDICATED);
        } else if (step % 16 == 0 && state == UCPX_LANE_STATE_ESTABLISHED) {
            ucpx_ep_lanes_request(cluster.endpoint(0, 1), UCPX_LANE_POLICY_SCALABLE);
        }
        return testing::Test::HasFatalFailure() ||
               (directions[0].received == kBytes && directions[1].received == kBytes);
    }));
    EXPECT_GE(cluster.counters(0).promotions, 5u);
    EXPECT_GE(cluster.counters(0).demotions, 5u);
    ASSERT_TRUE(cluster.until([&] {
        for (Direction& way : directions) {
            for (const ucs_status_ptr_t sending : way.sending) {
                if (ucp_request_check_status(sending) == UCS_INPROGRESS) return false;
            }
        }
        return true;
    }));
    for (Direction& way : directions) {
        for (const ucs_status_ptr_t sending : way.sending) ucp_request_free(sending);
        if (way.receiving != nullptr) ucp_request_free(way.receiving);
    }
}

INSTANTIATE_TEST_SUITE_P(Seeds, Segmentation, testing::Range<uint64_t>(1, 9));

}  // namespace
}  // namespace ucp::test
