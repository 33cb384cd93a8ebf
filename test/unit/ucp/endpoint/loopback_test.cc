// SPDX-License-Identifier: BSD-3-Clause

// Endpoints to the own worker: by default each reaches that worker; with
// UCP_EP_PARAMS_FLAGS_NO_LOOPBACK two are each other's other end.

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "ucp/endpoint/loopbacks.h"
#include "ucp/proto/am/am_handlers.h"
#include "unit/ucp/cluster.h"

namespace ucp::test {
namespace {

class Loopback : public testing::Test {
  protected:
    Loopback() : cluster_(1) {}

    ucp_ep_h make() {
        ucp_ep_params_t params{};
        params.field_mask = UCP_EP_PARAM_FIELD_FLAGS;
        params.flags = UCP_EP_PARAMS_FLAGS_NO_LOOPBACK;
        return cluster_.connect(0, 0, params);
    }
    void send(ucp_ep_h endpoint, const std::string& text) {
        EXPECT_EQ(
            cluster_.finish(ucp_stream_send_nbx(endpoint, text.data(), text.size(), &kNothing)),
            UCS_OK);
    }
    std::string receive(ucp_ep_h endpoint, size_t length) {
        std::string text(length, '?');
        ucp_request_param_t param{};
        param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        param.flags = UCP_STREAM_RECV_FLAG_WAITALL;
        size_t got = 0;
        EXPECT_EQ(
            cluster_.finish(ucp_stream_recv_nbx(endpoint, text.data(), text.size(), &got, &param)),
            UCS_OK);
        return text;
    }
    // Where the answer to an active message that is sent there goes.
    ucp_ep_h reply_to(ucp_ep_h endpoint, size_t length) {
        struct Seen {
            ucp_ep_h reply = nullptr;
            bool came = false;
        } seen;
        ucp_am_handler_param_t handler{};
        handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                             UCP_AM_HANDLER_PARAM_FIELD_ARG;
        handler.id = 3;
        handler.arg = &seen;
        handler.cb = [](void* arg, const void*, size_t, void*, size_t,
                        const ucp_am_recv_param_t* param) {
            static_cast<Seen*>(arg)->reply = param->reply_ep;
            static_cast<Seen*>(arg)->came = true;
            return UCS_OK;
        };
        EXPECT_EQ(ucp_worker_set_am_recv_handler(cluster_.worker(0), &handler), UCS_OK);
        const std::vector<char> data(length, 'x');
        ucp_request_param_t param{};
        param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        param.flags = UCP_AM_SEND_FLAG_REPLY;
        const ucs_status_ptr_t sending =
            ucp_am_send_nbx(endpoint, 3, nullptr, 0, data.data(), data.size(), &param);
        EXPECT_TRUE(cluster_.until([&] { return seen.came; }));
        EXPECT_EQ(cluster_.finish(sending), UCS_OK);
        handler.cb = nullptr;
        ucp_worker_set_am_recv_handler(cluster_.worker(0), &handler);
        return seen.reply;
    }

    Cluster cluster_;
};

TEST_F(Loopback, AStreamComesOnThePartner) {
    const ucp_ep_h first = make();
    send(first, "before there was a second");
    cluster_.steps(10);
    const ucp_ep_h second = make();
    send(first, " one");
    send(second, "hello");
    EXPECT_EQ(receive(second, 29), "before there was a second one");
    EXPECT_EQ(receive(first, 5), "hello");
    // Another pair is another one.
    const ucp_ep_h third = make(), fourth = make();
    send(fourth, "to the third");
    send(first, "to the second");
    EXPECT_EQ(receive(third, 12), "to the third");
    EXPECT_EQ(receive(second, 13), "to the second");
}

TEST_F(Loopback, APieceForAPartnerThatIsToComeIsSeenByPolling) {
    const ucp_ep_h first = make();
    send(first, "early");
    cluster_.steps(10);
    const ucp_ep_h second = make();
    ucp_stream_poll_ep_t ready[2] = {};
    EXPECT_EQ(ucp_stream_worker_poll(cluster_.worker(0), ready, 2, 0), 1);
    EXPECT_EQ(ready[0].ep, second);
}

TEST_F(Loopback, AnAnswerGoesToThePartner) {
    const ucp_ep_h first = make(), second = make();
    for (const size_t length : {size_t{0}, size_t{100}, size_t{100000}, size_t{10000000}}) {
        EXPECT_EQ(reply_to(first, length), second) << length;
        EXPECT_EQ(reply_to(second, length), first) << length;
    }
    const ucp_ep_h plain = cluster_.connect(0, 0);
    EXPECT_EQ(reply_to(plain, 8), first);  // the worker's primary one to itself
}

TEST_F(Loopback, APartnerThatWentIsNobody) {
    const ucp_ep_h first = make(), second = make();
    EXPECT_EQ(cluster_.finish(ucp_ep_close_nbx(second, &kNothing)), UCS_OK);
    cluster_.steps(10);
    send(first, "lost");
    const ucp_ep_h third = make();
    send(third, "kept");
    cluster_.steps(10);
    const ucp_ep_h fourth = make();
    EXPECT_EQ(receive(fourth, 4), "kept");
}

TEST(Loopbacks, NumbersAreUsedAgain) {
    Loopbacks loopbacks;
    const auto endpoint = [](uintptr_t value) { return reinterpret_cast<Endpoint*>(value * 64); };
    std::vector<uint16_t> partners;
    for (uintptr_t i = 1; i <= Loopbacks::kMaxNumber; ++i) {
        partners.push_back(loopbacks.add(*endpoint(i)));
        ASSERT_NE(partners.back(), 0);
    }
    EXPECT_EQ(loopbacks.add(*endpoint(1)), 0);
    EXPECT_EQ(loopbacks.find(partners[6]), endpoint(8));
    EXPECT_EQ(loopbacks.find(partners[7]), endpoint(7));
    loopbacks.remove(partners[6]);
    EXPECT_EQ(loopbacks.add(*endpoint(1)), 0);
    loopbacks.remove(partners[7]);
    EXPECT_EQ(loopbacks.add(*endpoint(7)), partners[6]);
    EXPECT_EQ(loopbacks.find_waiting(partners[6]), endpoint(7));
    EXPECT_EQ(loopbacks.add(*endpoint(8)), partners[7]);
}

}  // namespace
}  // namespace ucp::test
