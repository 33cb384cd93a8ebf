// SPDX-License-Identifier: BSD-3-Clause

// A control message finds no memory, and waits for the worker's next try. What stands behind it
// waits as well, and goes on in order.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "ucp/base/wire.h"
#include "ucp/endpoint/lane_state.h"
#include "unit/ucp/cluster.h"

namespace ucp::test {
namespace {

class StarvedControl : public ::testing::Test {
  protected:
    static Cluster::Options slow_steps() {
        Cluster::Options options;
        options.tick = std::chrono::microseconds(100);
        return options;
    }
    StarvedControl() {
        here_ = cluster_.connect(0, 1, noting_failure(error_));
        cluster_.fabric.observe(
            [this, own = cluster_.uuid(0)](const uct::mock::PacketEvent& packet) {
                if (packet.source_worker != own) return;
                if (packet.am_id == static_cast<int>(AmId::kMarker)) came_.push_back('m');
                if (packet.am_id == static_cast<int>(AmId::kTagShort)) came_.push_back('t');
            });
    }
    void lack_memory_for(std::initializer_list<AmId> messages) {
        uint64_t bits = 0;
        for (const AmId id : messages) bits |= uint64_t{1} << static_cast<int>(id);
        cluster_.fabric.config().without_memory = bits;
    }
    // MARK, behind which its direction's messages go to another lane.
    void starve() {
        lack_memory_for({AmId::kMarker});
        ASSERT_EQ(ucpx_ep_lanes_request(here_, UCPX_LANE_POLICY_DEDICATED), UCS_OK);
        ASSERT_TRUE(cluster_.until([&] {
            const LaneState* const lane = unwrap(here_).lane_state();
            return lane != nullptr && lane->direction != nullptr &&
                   lane->direction->tx.state() == lanes::TxDirection::State::kMarking;
        }));
    }
    ucs_status_ptr_t flush() { return ucp_ep_flush_nbx(here_, &kNothing); }
    ucs_status_ptr_t send(const uint64_t& number) {
        return ucp_tag_send_nbx(here_, &number, sizeof(number), 1, &kNothing);
    }
    void expect_in_order() {
        for (const uint64_t number : kNumbers) {
            uint64_t got = 0;
            EXPECT_EQ(cluster_.finish(ucp_tag_recv_nbx(cluster_.worker(1), &got, sizeof(got), 1,
                                                       UINT64_MAX, &kNothing)),
                      UCS_OK);
            EXPECT_EQ(got, number);
        }
    }
    static bool is_under_way(ucs_status_ptr_t operation) {
        return UCS_PTR_IS_PTR(operation) && ucp_request_check_status(operation) == UCS_INPROGRESS;
    }

    static constexpr uint64_t kNumbers[] = {1, 2};
    ucs_status_t error_ = UCS_OK;
    std::string came_;  // what the peer got, a letter each
    Cluster cluster_{2, slow_steps()};
    ucp_ep_h here_ = nullptr;
};

TEST_F(StarvedControl, AFlushBesideItEndsBehindIt) {
    starve();
    const ucs_status_ptr_t flushing = flush();
    cluster_.steps(5000);  // half a second
    EXPECT_TRUE(is_under_way(flushing)) << "it covers the answers to the peer as well";
    EXPECT_FALSE(cluster_.inner(0).has_work()) << "it is tried all the time";
    EXPECT_EQ(came_, "");
    lack_memory_for({});
    EXPECT_EQ(cluster_.finish(flushing), UCS_OK);
    EXPECT_EQ(came_, "m");
    EXPECT_EQ(error_, UCS_OK);
}

TEST_F(StarvedControl, AFlushAmongMessagesEndsInOrder) {
    starve();
    const ucs_status_ptr_t before = send(kNumbers[0]), flushing = flush(),
                           after = send(kNumbers[1]);
    cluster_.steps(5000);
    for (const ucs_status_ptr_t operation : {before, flushing, after})
        EXPECT_TRUE(is_under_way(operation));
    EXPECT_EQ(came_, "");
    lack_memory_for({});
    EXPECT_EQ(cluster_.finish(flushing), UCS_OK);
    EXPECT_EQ(std::ranges::count(came_, 'm'), 1);
    EXPECT_GE(std::ranges::count(came_, 't'), 1) << "the flush has not waited for it";
    EXPECT_EQ(cluster_.finish(before), UCS_OK);
    EXPECT_EQ(cluster_.finish(after), UCS_OK);
    expect_in_order();
    EXPECT_EQ(error_, UCS_OK);
}

// All of them wait for room first, and find when there is some that memory is missing.
TEST_F(StarvedControl, AFlushThatWaitedForRoomEndsBehindIt) {
    cluster_.fabric.config().no_resource_probability = 1;
    ASSERT_EQ(ucpx_ep_lanes_request(here_, UCPX_LANE_POLICY_DEDICATED), UCS_OK);
    const ucs_status_ptr_t before = send(kNumbers[0]), flushing = flush(),
                           after = send(kNumbers[1]);
    cluster_.steps(100);
    lack_memory_for({AmId::kHello, AmId::kLane});
    cluster_.fabric.config().no_resource_probability = 0;
    cluster_.steps(5000);
    EXPECT_FALSE(is_under_way(before)) << "messages need no control message";
    EXPECT_TRUE(is_under_way(flushing));
    EXPECT_TRUE(is_under_way(after));
    EXPECT_FALSE(cluster_.inner(0).has_work()) << "it is tried all the time";
    EXPECT_EQ(came_, "t");
    lack_memory_for({});
    EXPECT_EQ(cluster_.finish(flushing), UCS_OK);
    EXPECT_EQ(cluster_.finish(before), UCS_OK);
    EXPECT_EQ(cluster_.finish(after), UCS_OK);
    expect_in_order();
    EXPECT_EQ(error_, UCS_OK);
}

// Without memory for a second the endpoint fails, and the flush with it.
TEST_F(StarvedControl, AFlushEndsWithItsEndpoint) {
    starve();
    const ucs_status_ptr_t flushing = flush();
    cluster_.steps(9000);
    EXPECT_EQ(error_, UCS_OK);
    EXPECT_TRUE(is_under_way(flushing));
    // The peer's MARK finds no memory either, and either end may fail first.
    const ucs_status_t status = cluster_.finish(flushing);
    EXPECT_TRUE(status == UCS_ERR_NO_MEMORY || status == UCS_ERR_CONNECTION_RESET)
        << ucs_status_string(status);
    EXPECT_TRUE(cluster_.until([&] { return error_ == status; })) << ucs_status_string(error_);
}

}  // namespace
}  // namespace ucp::test
