// SPDX-License-Identifier: BSD-3-Clause

// A callback of the program throws, and goes through the transport that has brought the message.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "unit/ucp/runtime/sender_wires.h"

namespace ucp::test {
namespace {

constexpr unsigned kId = 7;

class ThrowingCallbacks : public testing::TestWithParam<SenderWire> {
  protected:
    struct Thrown {};

    ThrowingCallbacks() : wire_(GetParam().make()), cluster_(3, options_for(GetParam(), *wire_)) {
        pass(cluster_, 0, 1, 1);
        pass(cluster_, 1, 0, 2);
        if (GetParam().has_lanes) join_by_lane(cluster_, 0, 1);
        ucp_am_handler_param_t handler{};
        handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                             UCP_AM_HANDLER_PARAM_FIELD_ARG;
        handler.id = kId;
        handler.arg = this;
        handler.cb = [](void* arg, const void*, size_t, void* data, size_t,
                        const ucp_am_recv_param_t*) -> ucs_status_t {
            const uint64_t number = *static_cast<const uint64_t*>(data);
            static_cast<ThrowingCallbacks*>(arg)->seen_.push_back(number);
            if (number % 3 == 0) throw Thrown();
            return UCS_OK;
        };
        EXPECT_EQ(ucp_worker_set_am_recv_handler(cluster_.worker(1), &handler), UCS_OK);
    }
    // Of eight bytes or many, in turn.
    void send(uint64_t number) {
        // The program keeps them until all have arrived.
        std::vector<uint64_t> words(number % 2 == 0 ? 1 : 200, number);
        const ucs_status_ptr_t sending =
            ucp_am_send_nbx(cluster_.endpoint(0, 1), kId, nullptr, 0, words.data(),
                            words.size() * sizeof(uint64_t), &kNothing);
        ASSERT_FALSE(UCS_PTR_IS_ERR(sending));
        if (UCS_PTR_IS_PTR(sending)) ucp_request_free(sending);
        sent_.push_back(std::move(words));
    }
    void step() {
        try {
            cluster_.step();
        } catch (const Thrown&) {
            ++thrown_;
        }
    }

    const std::unique_ptr<Wire> wire_;
    Cluster cluster_;
    std::vector<uint64_t> seen_;
    std::vector<std::vector<uint64_t>> sent_;
    unsigned thrown_ = 0;
};

TEST_P(ThrowingCallbacks, LoseNothingAndGetNothingTwice) {
    constexpr unsigned kMany = 12;
    for (uint64_t number = 0; number < kMany; ++number) send(number);
    for (int count = 0; count < 20000 && seen_.size() < kMany; ++count) step();
    for (int count = 0; count < 1000; ++count) step();
    std::vector<uint64_t> all(kMany);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(seen_, all);
    EXPECT_EQ(thrown_, kMany / 3);
    pass(cluster_, 0, 1, 3);
    pass(cluster_, 1, 0, 4);
}

INSTANTIATE_TEST_SUITE_P(Over, ThrowingCallbacks, testing::ValuesIn(sender_wires()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ucp::test
