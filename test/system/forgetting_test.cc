// SPDX-License-Identifier: BSD-3-Clause

// A peer closes its endpoint by force at every event of a promotion and a demotion under traffic,
// as the fabric counts them, and lives on. Nothing that is under way fails for that.

#include <deque>
#include <set>

#include "system/soft_world.h"

namespace ucp::test {
namespace {

constexpr size_t kKeeper = 0, kForgetter = 1;
constexpr uint64_t kNotAtAll = ~uint64_t{0};
constexpr ucp_tag_t kAnyTag = 1, kLastTag = 2;

class Forgetting : public testing::TestWithParam<bool> {
  protected:
    Forgetting() {
        force_.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        force_.flags = UCP_EP_CLOSE_FLAG_FORCE;
    }

    // Promotes and demotes the link between both; before the event of that number the forgetter
    // closes its endpoint by force. @return how many events there were
    uint64_t run(uint64_t forget_at) {
        SoftWorld::Options options;
        options.config.max_priority_endpoints = 1;
        // The waits that follow rankings pass, and nothing but what is asked for gets a lane.
        options.config.switch_interval = std::chrono::milliseconds(100);
        options.config.min_score = 1e17;
        SoftWorld world(options);
        Cluster& cluster = world.cluster;
        EndpointFailure failure;
        const ucp_ep_h kept = cluster.connect(kKeeper, kForgetter, with_handler(failure));
        ucp_ep_h lost = cluster.endpoint(kForgetter, kKeeper);
        post(kept, 1);
        post(lost, 1);
        EXPECT_TRUE(cluster.until([&] { return all_ended(); }));

        const ucp_ep_h asker = GetParam() ? kept : lost;
        world.wire.count_events([&](uint64_t number) {
            if (number != forget_at) return;
            states_.insert(cluster.lane_state(kept));
            EXPECT_EQ(cluster.finish(ucp_ep_close_nbx(lost, &force_)), UCS_OK);
            cluster.forget(kForgetter, kKeeper);
            lost = nullptr;
            post(kept, 40);  // more than a window
        });
        EXPECT_EQ(ucpx_ep_lanes_request(asker, UCPX_LANE_POLICY_DEDICATED), UCS_OK);
        unsigned turns = 0;
        const auto reaches = [&](ucpx_lane_state_t state) {
            return cluster.until([&] {
                if (lost == nullptr) return true;
                // A little traffic all the time.
                if (++turns % 32 == 0 && all_ended()) {
                    post(kept, 2);
                    post(lost, 1);
                }
                return lost == nullptr ||
                       (cluster.lane_state(kept) == state && cluster.lane_state(lost) == state);
            });
        };
        EXPECT_TRUE(reaches(UCPX_LANE_STATE_ESTABLISHED));
        if (lost != nullptr) post(kept, 2);
        for (int step = 0; step < 16 && lost != nullptr; ++step) cluster.step();
        if (lost != nullptr) {
            EXPECT_EQ(ucpx_ep_lanes_request(asker, UCPX_LANE_POLICY_SCALABLE), UCS_OK);
            EXPECT_TRUE(reaches(UCPX_LANE_STATE_SCALABLE));
        }
        const uint64_t events = world.wire.count_events({});
        if (lost == nullptr) check(world, kept, failure);
        EXPECT_TRUE(cluster.until([&] { return all_ended(); }));
        EXPECT_EQ(cluster.counters(kKeeper).violations, 0u);
        EXPECT_EQ(cluster.counters(kForgetter).violations, 0u);
        return events;
    }

    void check(SoftWorld& world, ucp_ep_h kept, EndpointFailure& failure) {
        Cluster& cluster = world.cluster;
        const auto holds_nothing = [&](size_t index) {
            return cluster.counters(index).dedicated == 0 &&
                   cluster.dedicated_endpoints(index) == 0;
        };
        ucpx_ep_lanes_request(kept, UCPX_LANE_POLICY_SCALABLE);
        EXPECT_TRUE(until(
            cluster,
            [&] { return all_ended() && holds_nothing(kKeeper) && holds_nothing(kForgetter); }))
            << ucpx_lane_state_string(cluster.lane_state(kept)) << ", " << sends_.size()
            << " sends";
        // It works again: over the same endpoint, unless messages were lost with the lane.
        ucp_ep_h again = kept;
        if (failure.calls != 0) {
            ++failures_;
            EXPECT_EQ(cluster.finish(ucp_ep_close_nbx(kept, &force_)), UCS_OK);
            again = cluster.connect(kKeeper, kForgetter);
        }
        EXPECT_EQ(ucpx_ep_lanes_request(again, UCPX_LANE_POLICY_DEDICATED), UCS_OK);
        EXPECT_TRUE(until(cluster, [&] {
            return cluster.lane_state(again) == UCPX_LANE_STATE_ESTABLISHED &&
                   cluster.counters(kForgetter).dedicated == 1;
        })) << ucpx_lane_state_string(cluster.lane_state(again));
        uint64_t sent = 42, received = 0;
        const ucs_status_ptr_t receive = ucp_tag_recv_nbx(cluster.worker(kForgetter), &received, 8,
                                                          kLastTag, ~ucp_tag_t{0}, &kNothing);
        EXPECT_EQ(cluster.finish(ucp_tag_send_nbx(again, &sent, 8, kLastTag, &kNothing)), UCS_OK);
        EXPECT_EQ(cluster.finish(receive), UCS_OK);
        EXPECT_EQ(received, sent);
    }

    // Like Cluster::until(), over seconds: where little happens the clock leaps.
    static bool until(Cluster& cluster, const std::function<bool()>& condition) {
        for (unsigned count = 0; count < 1000; ++count) {
            if (cluster.until(condition, count == 0 ? 1000 : 20)) return true;
            cluster.clock.advance(std::chrono::milliseconds(10));
        }
        return false;
    }

    void post(ucp_ep_h endpoint, unsigned count) {
        while (count-- != 0) {
            sends_.push_back(
                ucp_tag_send_nbx(endpoint, bytes_, sizeof(bytes_), kAnyTag, &kNothing));
        }
    }
    // With whatever result.
    bool all_ended() {
        std::erase_if(sends_, [](ucs_status_ptr_t send) {
            if (!UCS_PTR_IS_PTR(send)) return true;
            if (ucp_request_check_status(send) == UCS_INPROGRESS) return false;
            ucp_request_free(send);
            return true;
        });
        return sends_.empty();
    }

    const char bytes_[200] = {};
    ucp_request_param_t force_{};
    std::deque<ucs_status_ptr_t> sends_;
    std::set<ucpx_lane_state_t> states_;  // of the survivor, when the other forgot it
    unsigned failures_ = 0;
};

TEST_P(Forgetting, AtEveryEventEndsWhatWasSentAndFreesTheSlot) {
    const uint64_t events = run(kNotAtAll);
    ASSERT_GT(events, 30u);
    for (uint64_t number = 1; number <= events && !HasFailure(); ++number) {
        run(number);
        if (HasFailure()) ADD_FAILURE() << "forgotten before event " << number << " of " << events;
    }
    RecordProperty("events", std::to_string(events));
    std::string seen;
    for (const auto state : states_) seen += std::string(" ") + ucpx_lane_state_string(state);
    RecordProperty("states", seen);
    EXPECT_GT(failures_, 0u);
    EXPECT_LT(failures_, events);
    // Who asked hears the other's consent and its address in one call.
    const auto early = GetParam() ? UCPX_LANE_STATE_COMMITTED : UCPX_LANE_STATE_CONNECTING;
    for (const auto state : {early, UCPX_LANE_STATE_SWITCHING, UCPX_LANE_STATE_ESTABLISHED,
                             UCPX_LANE_STATE_DEMOTING}) {
        EXPECT_TRUE(states_.contains(state)) << ucpx_lane_state_string(state) << " of" << seen;
    }
}

std::string name_of_asker(const testing::TestParamInfo<bool>& info) {
    return info.param ? "TheSurvivorAsked" : "TheForgetterAsked";
}

INSTANTIATE_TEST_SUITE_P(Asker, Forgetting, testing::Bool(), name_of_asker);

}  // namespace
}  // namespace ucp::test
