// SPDX-License-Identifier: BSD-3-Clause

// Sixteen hot peers of a worker that may hold fifteen dedicated lanes.

#include <deque>

#include "system/soft_world.h"

namespace ucp::test {
namespace {

constexpr size_t kCap = 15;
constexpr size_t kPeers = kCap + 1;
constexpr size_t kHub = 0;

// Numbered messages both ways between the hub and its peers, each pair at its own rate.
class Picture {
  public:
    Picture() : world_(options()) {
        for (size_t peer = 1; peer <= kPeers; ++peer) {
            flows_.push_back({.from = kHub, .to = peer});
            flows_.push_back({.from = peer, .to = kHub});
        }
    }

    // One message every so many steps.
    void set_period(size_t peer, unsigned period) { periods_[peer] = period; }

    void run(unsigned steps) {
        while (steps-- != 0) {
            ++step_;
            for (Flow& flow : flows_) {
                if (step_ % periods_[std::max(flow.from, flow.to)] == 0) send(flow);
            }
            world_.cluster.step();
            for (Flow& flow : flows_) receive(flow);
            for (size_t index = 0; index <= kPeers; ++index) {
                ASSERT_LE(world_.cluster.dedicated_endpoints(index), kCap);
            }
        }
    }

    bool is_dedicated(size_t peer) {
        return world_.cluster.lane_state(world_.cluster.endpoint(kHub, peer)) ==
               UCPX_LANE_STATE_ESTABLISHED;
    }
    size_t count_dedicated() {
        size_t count = 0;
        for (size_t peer = 1; peer <= kPeers; ++peer) count += is_dedicated(peer) ? 1 : 0;
        return count;
    }
    uint64_t denials(size_t peer) {
        return world_.cluster.counters(kHub).denials_sent +
               world_.cluster.counters(peer).denials_received;
    }
    ucpx_worker_attr_t hub() { return world_.cluster.counters(kHub); }

  private:
    struct Flow {
        size_t from, to;
        std::deque<uint64_t> numbers{};  // sent; element n is n
        uint64_t received = 0;
    };

    static SoftWorld::Options options() {
        SoftWorld::Options options;
        options.traffic.workers = kPeers + 1;
        options.traffic.slot_bytes = 64;
        options.tick = std::chrono::microseconds(1);
        options.config.max_priority_endpoints = kCap;
        options.config.switch_interval = std::chrono::milliseconds(1);
        options.config.sample_duty = 1;
        return options;
    }

    void send(Flow& flow) {
        // A message that waits is sent from where it is.
        const uint64_t& number = flow.numbers.emplace_back(flow.numbers.size());
        const ucs_status_ptr_t sending = ucp_tag_send_nbx(
            world_.cluster.endpoint(flow.from, flow.to), &number, 8, flow.from, &kNothing);
        ASSERT_FALSE(UCS_PTR_IS_ERR(sending));
        if (UCS_PTR_IS_PTR(sending)) ucp_request_free(sending);
    }
    void receive(Flow& flow) {
        ucp_tag_recv_info_t info;
        const ucp_worker_h worker = world_.cluster.worker(flow.to);
        while (ucp_tag_probe_nb(worker, flow.from, ~uint64_t{0}, 0, &info) != nullptr) {
            uint64_t number = ~uint64_t{0};
            const ucs_status_ptr_t receive =
                ucp_tag_recv_nbx(worker, &number, 8, flow.from, ~uint64_t{0}, &kNothing);
            if (UCS_PTR_IS_PTR(receive)) ucp_request_free(receive);
            ASSERT_EQ(number, flow.received);
            ++flow.received;
        }
    }

    SoftWorld world_;
    std::vector<Flow> flows_;
    std::array<unsigned, kPeers + 1> periods_{};
    uint64_t step_ = 0;
};

TEST(Capacity, FifteenOfFifteenTheSixteenthDeniedAHotterOneReplacesTheColdest) {
    Picture picture;
    // Peers 1 to 14 are hot, 15 is the coldest that fits, 16 comes within the margin of it.
    for (size_t peer = 1; peer <= kPeers; ++peer) picture.set_period(peer, 8);
    picture.set_period(15, 16);
    picture.set_period(16, 18);
    picture.run(25000);
    if (testing::Test::HasFatalFailure()) return;
    for (size_t peer = 1; peer <= kCap; ++peer) EXPECT_TRUE(picture.is_dedicated(peer)) << peer;
    EXPECT_FALSE(picture.is_dedicated(16));
    EXPECT_EQ(picture.hub().dedicated, kCap);
    EXPECT_GT(picture.denials(16), 0u);
    const uint64_t demotions = picture.hub().demotions;

    picture.set_period(16, 4);
    picture.run(25000);
    if (testing::Test::HasFatalFailure()) return;
    EXPECT_TRUE(picture.is_dedicated(16));
    EXPECT_FALSE(picture.is_dedicated(15));
    EXPECT_EQ(picture.count_dedicated(), kCap);
    EXPECT_EQ(picture.hub().demotions, demotions + 1);
    EXPECT_EQ(picture.hub().dedicated_peak, kCap);
}

}  // namespace
}  // namespace ucp::test
