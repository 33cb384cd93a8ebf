// SPDX-License-Identifier: BSD-3-Clause

// What a flush of a worker waits for, over each transport: operations of its program, none of
// others.

#include <gtest/gtest.h>

#include "unit/ucp/cluster.h"
#include "unit/ucp/region.h"
#include "unit/ucp/runtime/sender_wires.h"

namespace ucp::test {
namespace {

constexpr size_t kNear = 0, kFar = 1;
constexpr unsigned kMessageId = 7;

class WorkerFlush : public testing::TestWithParam<SenderWire> {
  protected:
    void flush() {
        EXPECT_EQ(cluster_.finish(ucp_worker_flush_nbx(cluster_.worker(kNear), &kNothing)), UCS_OK);
    }

    ucs_status_ptr_t start_put(ucp_ep_h endpoint, const Region& there) {
        const ucs_status_ptr_t put = ucp_put_nbx(endpoint, sent_.data(), sent_.size(),
                                                 there.address(), there.key, &kNothing);
        EXPECT_FALSE(UCS_PTR_IS_ERR(put));
        return put;
    }

    const std::vector<uint8_t> sent_ = pattern(64, 1);
    const std::unique_ptr<Wire> wire_ = GetParam().make();
    Cluster cluster_{3, options_for(GetParam(), *wire_)};
};

INSTANTIATE_TEST_SUITE_P(Wires, WorkerFlush, testing::ValuesIn(sender_wires()),
                         [](const auto& info) { return info.param.name; });

// The peer ends without a word, and what the library answers it nobody takes.
TEST_P(WorkerFlush, WaitsForNobodyWhoHasEnded) {
    pass(cluster_, kFar, kNear, 1);
    uint64_t number = 2, got = 0;
    const ucs_status_ptr_t sending = ucp_tag_send_sync_nbx(cluster_.endpoint(kFar, kNear), &number,
                                                           sizeof(number), number, &kNothing);
    ASSERT_TRUE(UCS_PTR_IS_PTR(sending));
    const auto has_come = [&] {
        ucp_tag_recv_info_t info;
        return ucp_tag_probe_nb(cluster_.worker(kNear), number, UINT64_MAX, 0, &info) != nullptr;
    };
    ASSERT_TRUE(cluster_.until(has_come));
    ucp_request_free(sending);
    cluster_.destroy(kFar);
    EXPECT_EQ(cluster_.finish(ucp_tag_recv_nbx(cluster_.worker(kNear), &got, sizeof(got), number,
                                               UINT64_MAX, &kNothing)),
              UCS_OK);
    flush();
}

// The program has closed it already, and waits for both at once.
TEST_P(WorkerFlush, WaitsForAnEndpointThatIsBeingClosed) {
    pass(cluster_, kNear, kFar, 1);
    const ucp_ep_h endpoint = cluster_.endpoint(kNear, kFar);
    Region there(cluster_.context(kFar), sent_.size());
    there.open(endpoint);
    const ucs_status_ptr_t put = start_put(endpoint, there);
    const ucs_status_ptr_t closing = ucp_ep_close_nbx(endpoint, &kNothing);
    flush();
    EXPECT_EQ(there.bytes, sent_);
    EXPECT_EQ(cluster_.finish(put), UCS_OK);
    EXPECT_EQ(cluster_.finish(closing), UCS_OK);
    cluster_.forget(kNear, kFar);
    there.close();
}

// The program has no endpoint of its own there, but puts by that of a message.
TEST_P(WorkerFlush, WaitsForWhatGoesByTheEndpointOfAMessage) {
    ucp_ep_h reply = nullptr;
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                         UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = kMessageId;
    handler.cb = [](void* arg, const void*, size_t, void*, size_t,
                    const ucp_am_recv_param_t* param) {
        *static_cast<ucp_ep_h*>(arg) = param->reply_ep;
        return UCS_OK;
    };
    handler.arg = &reply;
    ASSERT_EQ(ucp_worker_set_am_recv_handler(cluster_.worker(kNear), &handler), UCS_OK);
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_AM_SEND_FLAG_REPLY;
    EXPECT_EQ(cluster_.finish(ucp_am_send_nbx(cluster_.endpoint(kFar, kNear), kMessageId, nullptr,
                                              0, nullptr, 0, &param)),
              UCS_OK);
    ASSERT_TRUE(cluster_.until([&] { return reply != nullptr; }));

    Region there(cluster_.context(kFar), sent_.size());
    there.open(reply);
    const ucs_status_ptr_t put = start_put(reply, there);
    flush();
    EXPECT_EQ(there.bytes, sent_);
    EXPECT_EQ(cluster_.finish(put), UCS_OK);
    there.close();
}

}  // namespace
}  // namespace ucp::test
