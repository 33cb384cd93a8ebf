// SPDX-License-Identifier: BSD-3-Clause

// A peer dies at every event of a promotion and a demotion under traffic, as the fabric counts
// them.

#include <set>
#include <tuple>

#include "system/soft_world.h"

namespace ucp::test {
namespace {

constexpr size_t kSurvivor = 0, kVictim = 1, kOther = 2;
constexpr uint64_t kNever = ~uint64_t{0};

// Whether the survivor asked for the lane, and whether its only slot was another link's before.
using Case = std::tuple<bool, bool>;

class Death : public testing::TestWithParam<Case> {
  protected:
    // Promotes and demotes the link between survivor and victim; the victim's adapter stops before
    // the event of that number. @return how many events there were
    uint64_t run(uint64_t kill_at) {
        SoftWorld::Options options;
        options.traffic.workers = 3;
        options.traffic.operations = ~0u;
        options.traffic.max_length = 3000;
        options.traffic.slot_bytes = 2000;
        options.config.max_priority_endpoints = 1;
        // A peer that sent nothing more is missed by flow control's question.
        options.variables.push_back({"RC_FC_HARD_REQ_TIMEOUT", "1ms"});
        SoftWorld world(options);
        Cluster& cluster = world.cluster;
        EndpointFailure failure;
        const ucp_ep_h doomed = cluster.connect(kSurvivor, kVictim, with_handler(failure));
        world.join(kSurvivor, kOther);
        world.join(kSurvivor, kVictim, doomed);
        world.join(kVictim, kSurvivor, cluster.endpoint(kVictim, kSurvivor));
        world.party(kSurvivor).expect_failure(kVictim);
        EXPECT_TRUE(world.until([&] { return world.party(kSurvivor).totals().messages > 4; }));

        const auto [survivor_asks, is_slot_taken] = GetParam();
        const ucp_ep_h other = cluster.endpoint(kSurvivor, kOther);
        if (is_slot_taken) {
            EXPECT_EQ(ucpx_ep_lanes_request(other, UCPX_LANE_POLICY_DEDICATED), UCS_OK);
            EXPECT_TRUE(world.until(
                [&] { return cluster.lane_state(other) == UCPX_LANE_STATE_ESTABLISHED; }));
        }
        const ucp_ep_h asker = survivor_asks ? doomed : cluster.endpoint(kVictim, kSurvivor);
        world.wire.count_events([&](uint64_t number) {
            if (number != kill_at) return;
            states_.insert(cluster.lane_state(doomed));
            cluster.kill(kVictim);
        });
        // What is agreed waits until the slot is empty.
        if (is_slot_taken) {
            EXPECT_EQ(ucpx_ep_lanes_request(other, UCPX_LANE_POLICY_SCALABLE), UCS_OK);
        }
        EXPECT_EQ(ucpx_ep_lanes_request(asker, UCPX_LANE_POLICY_DEDICATED), UCS_OK);
        const auto reaches = [&](ucpx_lane_state_t state) {
            return world.until([&] {
                if (cluster.worker(kVictim) == nullptr) return true;
                return cluster.lane_state(doomed) == state &&
                       cluster.lane_state(cluster.endpoint(kVictim, kSurvivor)) == state;
            });
        };
        EXPECT_TRUE(reaches(UCPX_LANE_STATE_ESTABLISHED));
        for (int count = 0; count < 4; ++count) world.step();
        if (cluster.worker(kVictim) != nullptr) {
            EXPECT_EQ(ucpx_ep_lanes_request(asker, UCPX_LANE_POLICY_SCALABLE), UCS_OK);
            EXPECT_TRUE(reaches(UCPX_LANE_STATE_SCALABLE));
        }
        const uint64_t events = world.wire.count_events({});
        if (kill_at != kNever && cluster.worker(kVictim) == nullptr) check(world, doomed, failure);
        world.party(kSurvivor).forgive(kVictim);
        world.finish({kSurvivor, kOther});
        EXPECT_EQ(failure.calls, kill_at == kNever ? 0u : 1u);
        EXPECT_EQ(cluster.counters(kSurvivor).violations, 0u);
        return events;
    }

    void check(SoftWorld& world, ucp_ep_h doomed, EndpointFailure& failure) {
        Cluster& cluster = world.cluster;
        Party& survivor = world.party(kSurvivor);
        const uint64_t before = world.party(kOther).totals().messages;
        // Where nothing is under way to it, the timer of a state that waits for it finds out.
        EXPECT_TRUE(world.until([&] { return failure.calls != 0; }, std::chrono::seconds(3)));
        EXPECT_LT(failure.status, 0);
        survivor.forgive(kVictim);
        EXPECT_TRUE(world.until([&] { return survivor.pending(kVictim) == 0; }))
            << survivor.describe();
        EXPECT_TRUE(world.until([&] { return cluster.counters(kSurvivor).dedicated == 0; }));
        EXPECT_EQ(cluster.dedicated_endpoints(kSurvivor), 0u);
        const ucp_request_param_t nothing{};
        EXPECT_TRUE(UCS_PTR_IS_ERR(ucp_tag_send_nbx(doomed, &before, 8, 0, &nothing)));
        EXPECT_LT(ucpx_ep_lanes_request(doomed, UCPX_LANE_POLICY_DEDICATED), 0);
        EXPECT_TRUE(
            world.until([&] { return world.party(kOther).totals().messages > before + 8; }));
        // The slot is free for others.
        ucp_request_param_t force{};
        force.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        force.flags = UCP_EP_CLOSE_FLAG_FORCE;
        EXPECT_EQ(cluster.finish(ucp_ep_close_nbx(doomed, &force)), UCS_OK);
        const ucp_ep_h other = cluster.endpoint(kSurvivor, kOther);
        EXPECT_EQ(ucpx_ep_lanes_request(other, UCPX_LANE_POLICY_DEDICATED), UCS_OK);
        EXPECT_TRUE(
            world.until([&] { return cluster.lane_state(other) == UCPX_LANE_STATE_ESTABLISHED; }));
    }

    std::set<ucpx_lane_state_t> states_;  // of the survivor, when the victim died
};

TEST_P(Death, AtEveryEventFreesTheSlotFailsThatEndpointAndNothingElse) {
    const uint64_t events = run(kNever);
    ASSERT_GT(events, 100u);
    for (uint64_t number = 1; number <= events && !HasFailure(); ++number) {
        run(number);
        if (HasFailure()) ADD_FAILURE() << "death before event " << number << " of " << events;
    }
    RecordProperty("events", std::to_string(events));
    std::string seen;
    for (const auto state : states_) seen += std::string(" ") + ucpx_lane_state_string(state);
    RecordProperty("states", seen);
    // Whose lane is there when the peer's is announced passes by Connecting at once: the asker, who
    // hears of that together with the answer, and whoever had to wait for its slot.
    const auto [survivor_asks, is_slot_taken] = GetParam();
    std::set<ucpx_lane_state_t> wanted = {UCPX_LANE_STATE_SWITCHING, UCPX_LANE_STATE_ESTABLISHED,
                                          UCPX_LANE_STATE_DEMOTING};
    if (survivor_asks) wanted.insert(UCPX_LANE_STATE_REQUESTED);
    if (is_slot_taken) {
        wanted.insert({UCPX_LANE_STATE_COMMITTED, UCPX_LANE_STATE_READY});
    } else {
        wanted.insert(survivor_asks ? UCPX_LANE_STATE_READY : UCPX_LANE_STATE_CONNECTING);
    }
    for (const auto state : wanted) {
        EXPECT_TRUE(states_.contains(state)) << ucpx_lane_state_string(state) << " of" << seen;
    }
}

std::string name_of_death(const testing::TestParamInfo<Case>& info) {
    return std::string(std::get<0>(info.param) ? "TheSurvivorAsked" : "TheVictimAsked") +
           (std::get<1>(info.param) ? "ForASlotInUse" : "");
}

INSTANTIATE_TEST_SUITE_P(Asker, Death, testing::Combine(testing::Bool(), testing::Bool()),
                         name_of_death);

}  // namespace
}  // namespace ucp::test
