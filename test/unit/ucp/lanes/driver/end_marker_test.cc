// SPDX-License-Identifier: BSD-3-Clause

// DMARK, the last message of a dedicated lane, finds no memory: it is tried again, and the endpoint
// lives.

#include <gtest/gtest.h>

#include <cstdint>

#include "ucp/base/wire.h"
#include "unit/ucp/cluster.h"

namespace ucp::test {
namespace {

class EndMarker : public ::testing::Test {
  protected:
    static Cluster::Options slow_steps() {
        Cluster::Options options;
        options.tick = std::chrono::microseconds(100);
        return options;
    }
    EndMarker() {
        here_ = cluster_.connect(0, 1, noting_failure(error_));
        there_ = cluster_.connect(1, 0);
        cluster_.fabric.observe([this](const uct::mock::PacketEvent& packet) {
            markers_ += packet.am_id == static_cast<int>(AmId::kMarker);
        });
    }
    void SetUp() override {
        ASSERT_EQ(ucpx_ep_lanes_request(here_, UCPX_LANE_POLICY_DEDICATED), UCS_OK);
        ASSERT_TRUE(cluster_.until([&] {
            return cluster_.lane_state(here_) == UCPX_LANE_STATE_ESTABLISHED &&
                   cluster_.lane_state(there_) == UCPX_LANE_STATE_ESTABLISHED;
        }));
        markers_ = 0;
    }
    void leave_without_memory() {
        cluster_.fabric.config().without_memory = uint64_t{1} << static_cast<int>(AmId::kMarker);
        ASSERT_EQ(ucpx_ep_lanes_request(here_, UCPX_LANE_POLICY_SCALABLE), UCS_OK);
    }
    // Messages go before it, while it waits, and afterwards: they come in order.
    void expect_to_leave() {
        send();
        cluster_.steps(5000);  // half a second
        EXPECT_EQ(markers_, 0u);
        EXPECT_EQ(error_, UCS_OK);
        send();
        cluster_.fabric.config().without_memory = 0;
        EXPECT_TRUE(cluster_.until([&] {
            return cluster_.lane_state(here_) == UCPX_LANE_STATE_SCALABLE &&
                   cluster_.dedicated_endpoints(0) + cluster_.dedicated_endpoints(1) == 0;
        }));
        send();
        for (uint64_t number = 1; number <= sent_; ++number) {
            uint64_t got = 0;
            EXPECT_EQ(cluster_.finish(ucp_tag_recv_nbx(cluster_.worker(1), &got, sizeof(got), 1,
                                                       UINT64_MAX, &kNothing)),
                      UCS_OK);
            EXPECT_EQ(got, number);
        }
        EXPECT_EQ(markers_, 2u) << "each end's one";
        EXPECT_EQ(error_, UCS_OK);
    }
    void send() {
        const uint64_t number = ++sent_;
        EXPECT_EQ(cluster_.finish(ucp_tag_send_nbx(here_, &number, sizeof(number), 1, &kNothing)),
                  UCS_OK);
    }

    ucs_status_t error_ = UCS_OK;
    unsigned markers_ = 0;
    uint64_t sent_ = 0;
    Cluster cluster_{2, slow_steps()};
    ucp_ep_h here_ = nullptr, there_ = nullptr;
};

TEST_F(EndMarker, WithoutMemoryIsTriedAgain) {
    send();
    leave_without_memory();
    expect_to_leave();
}

TEST_F(EndMarker, ThatWaitedForRoomIsTriedAgain) {
    send();
    cluster_.fabric.config().no_resource_probability = 1;
    leave_without_memory();
    cluster_.steps(10);
    cluster_.fabric.config().no_resource_probability = 0;
    expect_to_leave();
}

// The program's flush covers what is on the lane, and does not wait for its end.
TEST_F(EndMarker, AFlushEndsWhileItIsMissing) {
    leave_without_memory();
    send();
    EXPECT_EQ(cluster_.finish(ucp_ep_flush_nbx(here_, &kNothing)), UCS_OK);
    expect_to_leave();
}

TEST_F(EndMarker, WithoutMemoryForASecondEndsTheEndpoint) {
    leave_without_memory();
    cluster_.steps(9000);
    EXPECT_EQ(error_, UCS_OK);
    EXPECT_TRUE(cluster_.until([&] { return error_ == UCS_ERR_NO_MEMORY; }, 3000));
}

}  // namespace
}  // namespace ucp::test
