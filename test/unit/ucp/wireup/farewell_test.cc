// SPDX-License-Identifier: BSD-3-Clause

// A peer's farewell and its last words take different ways: the words come first, also where
// nothing has come for so long that the worker looks there only now and then.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <vector>

#include "unit/ucp/capi/older_calls.h"

namespace ucp::test {
namespace {

constexpr ucp_request_param_t kPlain{};

class Farewell : public testing::Test {
  protected:
    Farewell() {
        sockaddr_in any{};
        any.sin_family = AF_INET;
        any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        ucp_listener_params_t params{};
        params.field_mask =
            UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
        params.sockaddr = {reinterpret_cast<const sockaddr*>(&any), sizeof(any)};
        params.conn_handler = {[](ucp_conn_request_h request, void* self) {
                                   static_cast<Farewell*>(self)->request_ = request;
                               },
                               this};
        EXPECT_EQ(ucp_listener_create(server_.worker, &params, &listener_), UCS_OK);
        ucp_listener_attr_t attr{};
        attr.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
        EXPECT_EQ(ucp_listener_query(listener_, &attr), UCS_OK);
        address_ = attr.sockaddr;
    }
    ~Farewell() override { ucp_listener_destroy(listener_); }

    ucp_ep_params_t params() {
        ucp_ep_params_t params{};
        params.field_mask = UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
        params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
        params.err_handler.arg = &errors_;
        params.err_handler.cb = [](void* errors, ucp_ep_h, ucs_status_t status) {
            static_cast<std::vector<ucs_status_t>*>(errors)->push_back(status);
        };
        return params;
    }
    void meet() {
        ucp_ep_params_t call = params();
        call.field_mask |= UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR;
        call.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
        call.sockaddr = {reinterpret_cast<const sockaddr*>(&address_), sizeof(sockaddr_in)};
        ASSERT_EQ(ucp_ep_create(client_.worker, &call, &calling_), UCS_OK);
        ASSERT_TRUE(until([&] { return request_ != nullptr; }));
        ucp_ep_params_t answer = params();
        answer.field_mask |= UCP_EP_PARAM_FIELD_CONN_REQUEST;
        answer.conn_request = std::exchange(request_, nullptr);
        ASSERT_EQ(ucp_ep_create(server_.worker, &answer, &called_), UCS_OK);
    }
    template <typename Condition>
    bool until(Condition&& condition, bool with_client = true) {
        for (int i = 0; i < 10000000; ++i) {
            if (condition()) return true;
            if (with_client) ucp_worker_progress(client_.worker);
            ucp_worker_progress(server_.worker);
        }
        return false;
    }
    static ucs_status_t end(ucs_status_ptr_t request) {
        if (!UCS_PTR_IS_PTR(request)) return UCS_PTR_STATUS(request);
        const ucs_status_t status = ucp_request_check_status(request);
        ucp_request_free(request);
        return status;
    }
    static bool is_done(ucs_status_ptr_t request) {
        return !UCS_PTR_IS_PTR(request) || ucp_request_check_status(request) != UCS_INPROGRESS;
    }

    Side server_{"tcp,self", UCP_FEATURE_STREAM | UCP_FEATURE_TAG};
    Side client_{"tcp,self", UCP_FEATURE_STREAM | UCP_FEATURE_TAG};
    ucp_listener_h listener_ = nullptr;
    ucp_conn_request_h request_ = nullptr;
    sockaddr_storage address_{};
    ucp_ep_h calling_ = nullptr, called_ = nullptr;
    std::vector<ucs_status_t> errors_;
};

TEST_F(Farewell, ComesBehindTheLastWords) {
    for (uint64_t round = 1; round <= 100; ++round) {
        meet();
        ucp_request_param_t all{};
        all.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        all.flags = UCP_STREAM_RECV_FLAG_WAITALL;
        uint64_t words[2] = {}, sent = round;
        size_t length = 0;
        for (uint64_t& word : words) {
            const ucs_status_ptr_t receive =
                ucp_stream_recv_nbx(called_, &word, sizeof(word), &length, &all);
            const bool is_last = &word == &words[1];
            // Until nothing is looked at any more but now and then.
            for (int i = 0; is_last && i < 8000; ++i) ucp_worker_progress(server_.worker);
            ASSERT_FALSE(is_last && is_done(receive));
            const ucs_status_ptr_t send =
                ucp_stream_send_nbx(calling_, &sent, sizeof(sent), &kPlain);
            if (is_last) {
                const ucs_status_ptr_t close = ucp_ep_close_nbx(calling_, &kPlain);
                while (!is_done(close)) ucp_worker_progress(client_.worker);
                ASSERT_EQ(end(close), UCS_OK);
            }
            ASSERT_TRUE(until([&] { return is_done(receive); }, !is_last));
            ASSERT_EQ(end(receive), UCS_OK) << "round " << round;
            ASSERT_EQ(word, round);
            ASSERT_TRUE(until([&] { return is_done(send); }));
            ASSERT_EQ(end(send), UCS_OK);
        }
        ASSERT_TRUE(until([&] { return !errors_.empty(); }, false));
        ASSERT_EQ(errors_, std::vector{UCS_ERR_CONNECTION_RESET});
        errors_.clear();
        const ucs_status_ptr_t close = ucp_ep_close_nbx(called_, &kPlain);
        ASSERT_TRUE(until([&] { return is_done(close); }));
        end(close);
    }
}

}  // namespace
}  // namespace ucp::test
