// SPDX-License-Identifier: BSD-3-Clause

// Lanes of endpoints end to end: asked for, earned by traffic, given back, and failing.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "ucp/endpoint/lane_state.h"
#include "unit/ucp/cluster.h"
#include "unit/ucp/region.h"

namespace ucp::test {
namespace {

// Sends numbered messages and checks that they come in order.
class Pinger {
  public:
    Pinger(Cluster& cluster, size_t from, size_t to) : cluster_(cluster), from_(from), to_(to) {}

    void send() {
        const uint64_t number = sent_++;
        const ucs_status_ptr_t sending =
            ucp_tag_send_nbx(cluster_.endpoint(from_, to_), &number, 8, from_, &kNothing);
        ASSERT_FALSE(UCS_PTR_IS_ERR(sending));
        // The number lives on this stack: a message that waits is waited for.
        ASSERT_EQ(cluster_.finish(sending), UCS_OK);
    }
    void receive() {
        while (ucp_tag_probe_nb(cluster_.worker(to_), from_, ~uint64_t{0}, 0, nullptr_info()) !=
               nullptr) {
            uint64_t number = ~uint64_t{0};
            ASSERT_EQ(cluster_.finish(ucp_tag_recv_nbx(cluster_.worker(to_), &number, 8, from_,
                                                       ~uint64_t{0}, &kNothing)),
                      UCS_OK);
            ASSERT_EQ(number, received_);
            ++received_;
        }
    }
    bool is_idle() const { return sent_ == received_; }

  private:
    ucp_tag_recv_info_t* nullptr_info() { return &info_; }

    Cluster& cluster_;
    size_t from_, to_;
    uint64_t sent_ = 0, received_ = 0;
    ucp_tag_recv_info_t info_{};
};

TEST(LaneSwitch, FollowsRequestsUnderTraffic) {
    Cluster cluster(2);
    Pinger there(cluster, 0, 1), back(cluster, 1, 0);
    const ucp_ep_h endpoint = cluster.endpoint(0, 1);
    const auto run_until = [&](ucpx_lane_state_t state) {
        return cluster.until([&] {
            there.send();
            back.send();
            there.receive();
            back.receive();
            return cluster.lane_state(endpoint) == state &&
                   cluster.lane_state(cluster.endpoint(1, 0)) == state;
        });
    };
    for (int round = 0; round < 3; ++round) {
        ASSERT_EQ(ucpx_ep_lanes_request(endpoint, UCPX_LANE_POLICY_DEDICATED), UCS_OK);
        ASSERT_TRUE(run_until(UCPX_LANE_STATE_ESTABLISHED));
        EXPECT_EQ(cluster.fabric.dedicated_endpoints(cluster.uuid(0)), 1u);
        ASSERT_EQ(ucpx_ep_lanes_request(endpoint, UCPX_LANE_POLICY_SCALABLE), UCS_OK);
        ASSERT_TRUE(run_until(UCPX_LANE_STATE_SCALABLE));
        EXPECT_EQ(cluster.fabric.dedicated_endpoints(cluster.uuid(0)), 0u);
    }
    ASSERT_TRUE(cluster.until([&] {
        there.receive();
        back.receive();
        return there.is_idle() && back.is_idle();
    }));
    EXPECT_EQ(cluster.counters(0).promotions, 3u);
    EXPECT_EQ(cluster.counters(0).demotions, 3u);
}

// The peer's end of the last lane may still be going.
TEST(LaneSwitch, AskedAgainAtOnceFromOneEnd) {
    Cluster cluster(2);
    const ucp_ep_h endpoint = cluster.endpoint(0, 1);
    for (int round = 0; round < 20; ++round) {
        ASSERT_EQ(ucpx_ep_lanes_request(endpoint, UCPX_LANE_POLICY_DEDICATED), UCS_OK);
        ASSERT_TRUE(cluster.until([&] {
            return cluster.lane_state(endpoint) == UCPX_LANE_STATE_ESTABLISHED;
        })) << round;
        ASSERT_EQ(ucpx_ep_lanes_request(endpoint, UCPX_LANE_POLICY_SCALABLE), UCS_OK);
        ASSERT_TRUE(cluster.until([&] {
            return cluster.lane_state(endpoint) == UCPX_LANE_STATE_SCALABLE;
        })) << round;
    }
}

// A lane without room is left for the sake of messages: a flush has to wait for it all the same.
TEST(LaneSwitch, OnlyMessagesThatWaitCountAgainstALane) {
    Cluster::Options options;
    options.fabric.transmit_depth = 4;
    options.fabric.flush_takes_room = true;
    Cluster cluster(2, options);
    const ucp_ep_h endpoint = cluster.endpoint(0, 1);
    ASSERT_EQ(ucpx_ep_lanes_request(endpoint, UCPX_LANE_POLICY_DEDICATED), UCS_OK);
    ASSERT_TRUE(
        cluster.until([&] { return cluster.lane_state(endpoint) == UCPX_LANE_STATE_ESTABLISHED; }));
    cluster.steps(1000);
    Region region(cluster.context(1), 64);
    region.open(endpoint);
    const LaneState& lane = *unwrap(endpoint).lane_state();
    const uint64_t word = 1;
    for (int put = 0; put < 4; ++put) {
        ASSERT_FALSE(UCS_PTR_IS_ERR(
            ucp_put_nbx(endpoint, &word, sizeof(word), region.address(), region.key, &kNothing)));
    }
    const ucs_status_ptr_t flush = ucp_ep_flush_nbx(endpoint, &kNothing);
    ASSERT_TRUE(UCS_PTR_IS_PTR(flush));
    EXPECT_TRUE(unwrap(endpoint).waits_for_dedicated());
    EXPECT_FALSE(lane.is_watched);
    EXPECT_EQ(cluster.finish(flush), UCS_OK);
    ucs_status_ptr_t sends[5];
    for (ucs_status_ptr_t& send : sends)
        send = ucp_tag_send_nbx(endpoint, &word, sizeof(word), 1, &kNothing);
    EXPECT_TRUE(lane.is_watched);
    for (ucs_status_ptr_t send : sends) EXPECT_EQ(cluster.finish(send), UCS_OK);
    region.close();
}

TEST(LaneSwitch, IsEarnedByTrafficAndLostWithIt) {
    Cluster::Options options;
    options.config.switch_interval = std::chrono::microseconds(500);
    options.config.score_hold = ucs::Duration(0);
    options.config.max_priority_endpoints = 1;
    Cluster cluster(4, options);
    Pinger hot(cluster, 0, 1), cold(cluster, 0, 2);
    unsigned step = 0;
    ASSERT_TRUE(cluster.until([&] {
        hot.send();
        hot.receive();
        if (++step % 50 == 0) cold.send();
        cold.receive();
        return cluster.lane_state(cluster.endpoint(0, 1)) == UCPX_LANE_STATE_ESTABLISHED;
    }));
    EXPECT_EQ(cluster.lane_state(cluster.endpoint(0, 2)), UCPX_LANE_STATE_SCALABLE);
    // Nobody sends any more: the lane is given back all the same.
    EXPECT_TRUE(cluster.until([&] {
        hot.receive();
        return cluster.lane_state(cluster.endpoint(0, 1)) == UCPX_LANE_STATE_SCALABLE;
    }));
    // At both ends, of which one may be a step behind.
    EXPECT_TRUE(cluster.until([&] {
        return cluster.fabric.dedicated_endpoints(cluster.uuid(0)) == 0 &&
               cluster.fabric.dedicated_endpoints(cluster.uuid(1)) == 0;
    }));
}

// Everything is sampled, and a score is bytes a second.
Cluster::Options counting_bytes() {
    Cluster::Options options;
    options.config.switch_interval = std::chrono::microseconds(500);
    options.config.sample_duty = 1;
    options.config.bytes_per_message = ucs::config::MemorySize{1};
    return options;
}

uint64_t local_score(ucp_ep_h endpoint) {
    ucpx_ep_attr_t attr{};
    attr.field_mask = UCPX_EP_ATTR_FIELD_SCORES;
    EXPECT_EQ(ucpx_ep_query(endpoint, &attr), UCS_OK);
    return attr.local_score;
}

// Whatever the interface, datatype and thread mode: 8000 bytes in 1000 elements or 2 pieces weigh
// as much as 8000 bytes.
TEST(LaneSwitch, BytesAreCountedNotElements) {
    std::vector<char> data(8000);
    const ucp_dt_iov_t pieces[] = {{data.data(), 3000}, {data.data(), 5000}};
    using Send =
        std::function<ucs_status_ptr_t(ucp_ep_h, const void*, size_t, const ucp_request_param_t*)>;
    const Send sends[] = {
        [](ucp_ep_h endpoint, const void* buffer, size_t count, const ucp_request_param_t* param) {
            return ucp_tag_send_nbx(endpoint, buffer, count, 1, param);
        },
        [](ucp_ep_h endpoint, const void* buffer, size_t count, const ucp_request_param_t* param) {
            return ucp_am_send_nbx(endpoint, 1, nullptr, 0, buffer, count, param);
        },
        [](ucp_ep_h endpoint, const void* buffer, size_t count, const ucp_request_param_t* param) {
            return ucp_stream_send_nbx(endpoint, buffer, count, param);
        },
    };
    ucp_request_param_t elements{}, lists{};
    elements.op_attr_mask = lists.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
    elements.datatype = ucp_dt_make_contig(8);
    lists.datatype = ucp_dt_make_iov();
    for (const ucs_thread_mode_t mode : {UCS_THREAD_MODE_SINGLE, UCS_THREAD_MODE_MULTI}) {
        for (const Send& send : sends) {
            Cluster::Options options = counting_bytes();
            options.thread_mode = mode;
            Cluster cluster(4, options);
            for (unsigned step = 0; step < 3000; ++step) {
                cluster.step();
                if (step % 10 != 0) continue;
                for (const ucs_status_ptr_t sending :
                     {send(cluster.endpoint(0, 1), data.data(), 8000, &kNothing),
                      send(cluster.endpoint(0, 2), data.data(), 1000, &elements),
                      send(cluster.endpoint(0, 3), pieces, 2, &lists)}) {
                    ASSERT_FALSE(UCS_PTR_IS_ERR(sending));
                    if (sending != nullptr) ucp_request_free(sending);
                }
            }
            const auto bytes = static_cast<double>(local_score(cluster.endpoint(0, 1)));
            EXPECT_GT(bytes, 1e8);
            for (const size_t peer : {2, 3}) {
                EXPECT_NEAR(static_cast<double>(local_score(cluster.endpoint(0, peer))), bytes,
                            0.01 * bytes);
            }
        }
    }
}

TEST(LaneSwitch, AScoreIsMultipliedByItsWeight) {
    Cluster cluster(4, counting_bytes());
    EXPECT_EQ(ucpx_ep_lanes_weight(cluster.endpoint(0, 1), -1), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(ucpx_ep_lanes_weight(cluster.endpoint(0, 1), std::nan("")), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(ucpx_ep_lanes_weight(cluster.endpoint(0, 1), 1e9), UCS_ERR_INVALID_PARAM);
    ASSERT_EQ(ucpx_ep_lanes_weight(cluster.endpoint(0, 1), 4), UCS_OK);
    ASSERT_EQ(ucpx_ep_lanes_weight(cluster.endpoint(0, 2), 0), UCS_OK);
    for (unsigned step = 0; step < 3000; ++step) {
        cluster.step();
        for (size_t peer = 1; step % 10 == 0 && peer < 4; ++peer) {
            Pinger(cluster, 0, peer).send();
        }
    }
    const auto plain = static_cast<double>(local_score(cluster.endpoint(0, 3)));
    EXPECT_GT(plain, 1e5);
    EXPECT_NEAR(static_cast<double>(local_score(cluster.endpoint(0, 1))), 4 * plain, 0.05 * plain);
    EXPECT_EQ(local_score(cluster.endpoint(0, 2)), 0u);
    ASSERT_EQ(ucpx_ep_lanes_weight(cluster.endpoint(0, 1), 1), UCS_OK);
    cluster.steps(600);
    EXPECT_LT(static_cast<double>(local_score(cluster.endpoint(0, 1))), 2 * plain);
}

// What was learned of long messages over both lanes takes the place of what transports say of a
// byte, though the endpoint has been among the busiest for long.
TEST(LaneSwitch, ScoresFollowWhatWasLearned) {
    Cluster::Options options = counting_bytes();
    options.config.bytes_per_message.reset();
    options.config.costs = CostSource::kLearned;
    Cluster cluster(2, options);
    const ucp_ep_h endpoint = cluster.endpoint(0, 1);
    const std::vector<char> data(4000);
    const auto run = [&](unsigned steps) {
        for (unsigned step = 0; step < steps; ++step) {
            cluster.step();
            if (step % 10 != 0) continue;
            const ucs_status_ptr_t sending =
                ucp_tag_send_nbx(endpoint, data.data(), data.size(), 1, &kNothing);
            ASSERT_FALSE(UCS_PTR_IS_ERR(sending));
            if (sending != nullptr) ucp_request_free(sending);
        }
    };
    run(5000);
    const auto before = static_cast<double>(local_score(endpoint));
    EXPECT_GT(before, 0);

    const EndpointConfiguration& configuration = unwrap(endpoint).configuration();
    EXPECT_FALSE(configuration.measured_saving());
    const size_t length = 64 << 10;
    const auto restore = [&](bool is_dedicated, float factor) {
        const LearnedLane& lane = *configuration.learned(is_dedicated, select::Operation::kTag);
        const auto which = select::LearnedCosts::class_of(select::Load::kAlone, length);
        lane.costs->restore(which, select::Way::kEager, factor, 10);
        return lane.ways_of(select::Load::kAlone, length)->assumed(select::Way::kEager).at(length) *
               static_cast<double>(factor);
    };
    const double scalable = restore(false, 2);
    EXPECT_FALSE(configuration.measured_saving()) << "of one lane alone";
    const double saved = (scalable - restore(true, 1)) / length;
    ASSERT_GT(saved, 0);
    EXPECT_NEAR(configuration.measured_saving().value_or(0), saved, 0.01 * saved);

    run(50000);
    const double bytes_a_second = 4000 / 10e-6;
    const double more = static_cast<double>(local_score(endpoint)) - before;
    EXPECT_NEAR(more, bytes_a_second * saved * 1e9, 0.05 * more);
}

// What goes by a second endpoint to a worker counts for the one that takes part in the selection.
TEST(LaneSwitch, TwoEndpointsToAWorkerAreOnePeer) {
    Cluster cluster(4, counting_bytes());
    const ucp_ep_h first = cluster.endpoint(0, 1), second = cluster.connect(0, 1);
    const uint64_t number = 0;
    ASSERT_NE(second, first);
    for (unsigned step = 0; step < 3000; ++step) {
        cluster.step();
        if (step % 10 != 0) continue;
        Pinger(cluster, 0, 1).send();
        Pinger(cluster, 0, 3).send();
        ASSERT_EQ(cluster.finish(ucp_tag_send_nbx(second, &number, 8, 0, &kNothing)), UCS_OK);
    }
    const auto one = static_cast<double>(local_score(cluster.endpoint(0, 3)));
    EXPECT_GT(one, 1e5);
    EXPECT_NEAR(static_cast<double>(local_score(first)), 2 * one, 0.1 * one);
}

// An endpoint that can have no dedicated lane is neither counted nor known to the negotiator.
TEST(LaneSwitch, WithoutADedicatedTransportThereIsNoRecord) {
    for (const bool has_dedicated : {true, false}) {
        Cluster::Options options = counting_bytes();
        if (!has_dedicated) options.config.transports = {false, {"mock_dc", "self"}};
        Cluster cluster(2, options);
        for (unsigned step = 0; step < 3000; ++step) {
            cluster.step();
            if (step % 10 == 0) Pinger(cluster, 0, 1).send();
        }
        EXPECT_EQ(local_score(cluster.endpoint(0, 1)) > 0, has_dedicated);
    }
}

// Many peers leave their lanes while a program computes: its next call does not look at all of
// them.
TEST(LaneSwitch, MessagesThatCameTogetherAreHeardAFewInACall) {
    constexpr size_t kPeers = 8;
    Cluster cluster(1 + kPeers);
    const auto all_are = [&](ucpx_lane_state_t state) {
        for (size_t peer = 1; peer <= kPeers; ++peer) {
            if (cluster.lane_state(cluster.endpoint(peer, 0)) != state) return false;
            if (cluster.lane_state(cluster.endpoint(0, peer)) != state) return false;
        }
        return true;
    };
    for (size_t peer = 1; peer <= kPeers; ++peer) {
        ASSERT_EQ(ucpx_ep_lanes_request(cluster.endpoint(peer, 0), UCPX_LANE_POLICY_DEDICATED),
                  UCS_OK);
    }
    ASSERT_TRUE(cluster.until([&] { return all_are(UCPX_LANE_STATE_ESTABLISHED); }));
    cluster.hold_still(0);
    for (size_t peer = 1; peer <= kPeers; ++peer) {
        ASSERT_EQ(ucpx_ep_lanes_request(cluster.endpoint(peer, 0), UCPX_LANE_POLICY_SCALABLE),
                  UCS_OK);
    }
    cluster.steps(100);
    EXPECT_EQ(cluster.counters(0).demotions, 0u);
    for (unsigned calls = 1; cluster.counters(0).demotions < kPeers; ++calls) {
        ASSERT_LE(calls, 2 * kPeers);
        ucp_worker_progress(cluster.worker(0));
        EXPECT_LE(cluster.counters(0).demotions, 2 * calls);
    }
    cluster.hold_still(SIZE_MAX);
    EXPECT_TRUE(cluster.until([&] { return all_are(UCPX_LANE_STATE_SCALABLE); }));
}

TEST(LaneSwitch, TellsTheProgramOfEachChange) {
    std::vector<ucpx_lane_state_t> states;
    Cluster cluster(2);
    ucpx_worker_set_lane_callback(
        cluster.worker(0),
        [](void* arg, const ucpx_lane_event_t* event) {
            static_cast<std::vector<ucpx_lane_state_t>*>(arg)->push_back(event->new_state);
        },
        &states);
    ASSERT_EQ(ucpx_ep_lanes_request(cluster.endpoint(0, 1), UCPX_LANE_POLICY_DEDICATED), UCS_OK);
    ASSERT_TRUE(cluster.until(
        [&] { return !states.empty() && states.back() == UCPX_LANE_STATE_ESTABLISHED; }));
    EXPECT_EQ(states.front(), UCPX_LANE_STATE_REQUESTED);
    std::vector<ucpx_lane_t> lanes(4);
    ucpx_ep_attr_t attr{};
    attr.field_mask = UCPX_EP_ATTR_FIELD_LANES;
    attr.lanes = {lanes.data(), 4, sizeof(ucpx_lane_t)};
    ASSERT_EQ(ucpx_ep_query(cluster.endpoint(0, 1), &attr), UCS_OK);
    ASSERT_EQ(attr.lanes.num_entries, 2u);
    EXPECT_STREQ(lanes[0].transport_name, "mock_dc");
    EXPECT_STREQ(lanes[1].transport_name, "mock_rc");
    EXPECT_NE(lanes[1].roles & UCPX_LANE_ROLE_AM, 0u);
}

TEST(LaneSwitch, IsRefusedWhereItIsTurnedOff) {
    Cluster::Options options;
    options.config.lanes = LaneMode::kScalable;
    Cluster cluster(2, options);
    EXPECT_EQ(ucpx_ep_lanes_request(cluster.endpoint(0, 1), UCPX_LANE_POLICY_DEDICATED),
              UCS_ERR_UNSUPPORTED);
}

TEST(LaneSwitch, DedicatedModePromotesEveryEndpoint) {
    Cluster::Options options;
    options.config.lanes = LaneMode::kDedicated;
    Cluster cluster(4, options);
    for (size_t to = 1; to < 4; ++to) cluster.endpoint(0, to);
    EXPECT_TRUE(cluster.until([&] { return cluster.counters(0).established == 3; }));
}

TEST(LaneSwitch, AWorkerThatGoesGivesItsLanesBack) {
    Cluster cluster(2);
    ASSERT_EQ(ucpx_ep_lanes_request(cluster.endpoint(0, 1), UCPX_LANE_POLICY_DEDICATED), UCS_OK);
    ASSERT_TRUE(cluster.until(
        [&] { return cluster.lane_state(cluster.endpoint(0, 1)) == UCPX_LANE_STATE_ESTABLISHED; }));
    const uint64_t uuid = cluster.uuid(0);
    cluster.destroy(0);
    EXPECT_EQ(cluster.fabric.dedicated_endpoints(uuid), 0u);
}

// A peer whose program computes: alive, and silent. It is asked for a lane, sent to and asked
// again; meanwhile others are promoted, flushed and closed, and the request for it is given up.
TEST(LaneSwitch, APeerThatNeverProgressesHangsNobody) {
    Cluster::Options options;
    options.config.max_priority_endpoints = 1;
    options.tick = std::chrono::microseconds(20);
    Cluster cluster(4, options);
    constexpr size_t kSilent = 3;
    for (size_t other = 0; other < kSilent; ++other) {
        cluster.endpoint(other, kSilent);
        cluster.endpoint(kSilent, other);
    }
    Pinger there(cluster, 0, 1), back(cluster, 1, 0), silent(cluster, 0, kSilent);
    silent.send();
    cluster.steps(1000);
    cluster.hold_still(kSilent);
    silent.send();

    const ucp_ep_h asked = cluster.endpoint(0, kSilent), hot = cluster.endpoint(1, 2);
    ASSERT_EQ(ucpx_ep_lanes_request(asked, UCPX_LANE_POLICY_DEDICATED), UCS_OK);
    ASSERT_EQ(cluster.lane_state(asked), UCPX_LANE_STATE_REQUESTED);
    // Others ask those that wait for its answer, and get theirs.
    ASSERT_EQ(ucpx_ep_lanes_request(hot, UCPX_LANE_POLICY_DEDICATED), UCS_OK);
    EXPECT_TRUE(cluster.until(
        [&] { return cluster.lane_state(hot) == UCPX_LANE_STATE_ESTABLISHED; }, 2000));
    for (int round = 0; round < 50; ++round) {
        there.send();
        back.send();
        cluster.step();
        there.receive();
        back.receive();
    }
    EXPECT_TRUE(cluster.until(
        [&] {
            there.receive();
            back.receive();
            return there.is_idle() && back.is_idle();
        },
        2000));
    for (const size_t other : {1, 2}) {
        EXPECT_EQ(cluster.finish(ucp_ep_flush_nbx(cluster.endpoint(0, other), &kNothing)), UCS_OK);
    }
    ASSERT_EQ(ucpx_ep_lanes_request(hot, UCPX_LANE_POLICY_SCALABLE), UCS_OK);
    EXPECT_TRUE(
        cluster.until([&] { return cluster.lane_state(hot) == UCPX_LANE_STATE_SCALABLE; }, 2000));
    EXPECT_EQ(cluster.finish(ucp_ep_close_nbx(hot, &kNothing)), UCS_OK);

    // No answer comes: the pledge goes to who can use it. The silent peer's is not dead for that.
    const ucp_ep_h wanted = cluster.endpoint(0, 1);
    ASSERT_EQ(ucpx_ep_lanes_request(wanted, UCPX_LANE_POLICY_DEDICATED), UCS_OK);
    EXPECT_TRUE(cluster.until(
        [&] { return cluster.lane_state(wanted) == UCPX_LANE_STATE_ESTABLISHED; }, 500000));
    EXPECT_NE(cluster.lane_state(asked), UCPX_LANE_STATE_REQUESTED);
    EXPECT_EQ(cluster.counters(0).failures, 0u);
    // A program that gives up on it can: nothing of the worker waits for it any more.
    ucp_request_param_t force{};
    force.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    force.flags = UCP_EP_CLOSE_FLAG_FORCE;
    EXPECT_EQ(cluster.finish(ucp_ep_close_nbx(asked, &force)), UCS_OK);
    cluster.forget(0, kSilent);
    const uint64_t uuid = cluster.uuid(0);
    cluster.destroy(0);
    EXPECT_EQ(cluster.fabric.dedicated_endpoints(uuid), 0u);
}

// The peer's program computes while its lane is taken away: what is sent to it leaves the program
// as on the scalable lane, and comes in order when the peer is back.
TEST(LaneSwitch, LeavingALaneStopsNoSender) {
    for (const unsigned before : {0u, 3u, 40u}) {
        Cluster cluster(2);
        Pinger there(cluster, 0, 1), back(cluster, 1, 0);
        const ucp_ep_h endpoint = cluster.endpoint(0, 1);
        there.send();
        back.send();
        ASSERT_EQ(ucpx_ep_lanes_request(endpoint, UCPX_LANE_POLICY_DEDICATED), UCS_OK);
        ASSERT_TRUE(cluster.until([&] {
            return cluster.lane_state(endpoint) == UCPX_LANE_STATE_ESTABLISHED &&
                   cluster.lane_state(cluster.endpoint(1, 0)) == UCPX_LANE_STATE_ESTABLISHED;
        }));
        cluster.hold_still(1);
        for (unsigned count = 0; count < before; ++count) there.send();
        ASSERT_EQ(ucpx_ep_lanes_request(endpoint, UCPX_LANE_POLICY_SCALABLE), UCS_OK);
        EXPECT_EQ(cluster.lane_state(endpoint), UCPX_LANE_STATE_DEMOTING);
        const ucs::Time begun = cluster.clock.now();
        const auto& posted = cluster.fabric.counters(uct::mock::Kind::kScalable);
        const uint64_t short_before = posted.am_short;
        std::vector<uint8_t> big = pattern(20000, 1);
        std::vector<ucs_status_ptr_t> sends;
        for (unsigned count = 0; count < 50; ++count) {
            there.send();  // waits for its end
            if (count % 10 == 0) {
                sends.push_back(ucp_tag_send_nbx(endpoint, big.data(), big.size(), 77, &kNothing));
            }
        }
        EXPECT_LT(cluster.clock.now() - begun, std::chrono::milliseconds(1));
        // Short ones stay short: of others a queue may take fewer.
        EXPECT_GE(posted.am_short, short_before + 50);
        EXPECT_EQ(cluster.lane_state(endpoint), UCPX_LANE_STATE_DEMOTING);
        cluster.steps(2000);
        EXPECT_EQ(cluster.lane_state(endpoint), UCPX_LANE_STATE_DEMOTING);
        cluster.hold_still(SIZE_MAX);
        std::vector<uint8_t> received(big.size());
        for (const ucs_status_ptr_t send : sends) {
            EXPECT_EQ(
                cluster.finish(ucp_tag_recv_nbx(cluster.worker(1), received.data(), received.size(),
                                                77, ~uint64_t{0}, &kNothing)),
                UCS_OK);
            EXPECT_EQ(received, big);
            EXPECT_EQ(cluster.finish(send), UCS_OK);
        }
        ASSERT_TRUE(cluster.until([&] {
            there.receive();
            back.receive();
            return there.is_idle() && back.is_idle() &&
                   cluster.lane_state(endpoint) == UCPX_LANE_STATE_SCALABLE;
        }));
        EXPECT_EQ(cluster.fabric.dedicated_endpoints(cluster.uuid(0)), 0u);
    }
}

// The peer's program computes, and its end of the dedicated lane is full: what follows leaves the
// program all the same, while the scalable lane has room.
TEST(LaneSwitch, ASenderLeavesTheFullLaneOfASleeper) {
    constexpr unsigned kMessages = 100;
    for (const LaneMode mode : {LaneMode::kDynamic, LaneMode::kDedicated}) {
        Cluster::Options options;
        options.tick = std::chrono::microseconds(20);
        options.fabric.receive_buffers = 64;
        options.fabric.transmit_depth = 16;
        options.config.lanes = mode;
        Cluster cluster(2, options);
        const ucp_ep_h endpoint = cluster.endpoint(0, 1);
        ASSERT_EQ(ucpx_ep_lanes_request(endpoint, UCPX_LANE_POLICY_DEDICATED), UCS_OK);
        ASSERT_TRUE(cluster.until([&] {
            return cluster.lane_state(endpoint) == UCPX_LANE_STATE_ESTABLISHED &&
                   cluster.lane_state(cluster.endpoint(1, 0)) == UCPX_LANE_STATE_ESTABLISHED;
        }));
        cluster.hold_still(1);
        std::vector<uint64_t> numbers(kMessages);
        std::vector<ucs_status_ptr_t> sends;
        for (unsigned count = 0; count < kMessages; ++count) {
            numbers[count] = count;
            sends.push_back(ucp_tag_send_nbx(endpoint, &numbers[count], 8, 7, &kNothing));
        }
        const auto are_done = [&] {
            return std::ranges::all_of(sends, [](ucs_status_ptr_t send) {
                return !UCS_PTR_IS_PTR(send) || ucp_request_check_status(send) != UCS_INPROGRESS;
            });
        };
        EXPECT_FALSE(cluster.until(are_done, 900));  // 18 ms: it has patience
        EXPECT_EQ(cluster.lane_state(endpoint), UCPX_LANE_STATE_ESTABLISHED);
        if (mode == LaneMode::kDynamic) {
            EXPECT_TRUE(cluster.until(are_done, 800));
            EXPECT_EQ(cluster.lane_state(endpoint), UCPX_LANE_STATE_DEMOTING);
        } else {
            // It was told to use no other.
            EXPECT_FALSE(cluster.until(are_done, 5000));
            EXPECT_EQ(cluster.lane_state(endpoint), UCPX_LANE_STATE_ESTABLISHED);
        }
        cluster.hold_still(SIZE_MAX);
        for (uint64_t count = 0; count < kMessages; ++count) {
            uint64_t number = ~uint64_t{0};
            ASSERT_EQ(cluster.finish(ucp_tag_recv_nbx(cluster.worker(1), &number, 8, 7,
                                                      ~uint64_t{0}, &kNothing)),
                      UCS_OK);
            ASSERT_EQ(number, count);
        }
        for (const ucs_status_ptr_t send : sends) EXPECT_EQ(cluster.finish(send), UCS_OK);
        const auto end =
            mode == LaneMode::kDynamic ? UCPX_LANE_STATE_SCALABLE : UCPX_LANE_STATE_ESTABLISHED;
        EXPECT_TRUE(cluster.until([&] { return cluster.lane_state(endpoint) == end; }));
        EXPECT_EQ(cluster.counters(0).failures, 0u);
    }
}

// The peer's program computes from the moment on at which its READY is out: this end switches.
TEST(LaneSwitch, ANewLaneStopsNoSender) {
    Cluster cluster(2);
    Pinger there(cluster, 0, 1);
    const ucp_ep_h endpoint = cluster.endpoint(0, 1), back = cluster.endpoint(1, 0);
    ASSERT_EQ(ucpx_ep_lanes_request(endpoint, UCPX_LANE_POLICY_DEDICATED), UCS_OK);
    ASSERT_TRUE(cluster.until([&] { return cluster.lane_state(back) == UCPX_LANE_STATE_READY; }));
    cluster.hold_still(1);
    ASSERT_TRUE(
        cluster.until([&] { return cluster.lane_state(endpoint) == UCPX_LANE_STATE_SWITCHING; }));
    const ucs::Time begun = cluster.clock.now();
    for (unsigned count = 0; count < 100; ++count) there.send();
    EXPECT_LT(cluster.clock.now() - begun, std::chrono::milliseconds(1));
    EXPECT_EQ(cluster.lane_state(endpoint), UCPX_LANE_STATE_SWITCHING);
    cluster.hold_still(SIZE_MAX);
    ASSERT_TRUE(cluster.until([&] {
        there.receive();
        return there.is_idle() && cluster.lane_state(endpoint) == UCPX_LANE_STATE_ESTABLISHED;
    }));
}

// What an endpoint's error handler saw.
struct Failure {
    unsigned calls = 0;
    ucs_status_t status = UCS_OK;
};

ucp_ep_params_t with_handler(Failure& failure) {
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler.cb = [](void* arg, ucp_ep_h, ucs_status_t status) {
        auto& failure = *static_cast<Failure*>(arg);
        ++failure.calls;
        failure.status = status;
    };
    params.err_handler.arg = &failure;
    return params;
}

class DeathOnTheWay : public ::testing::TestWithParam<unsigned> {};

// The peer dies as the packet of that number between the two is about to arrive.
TEST_P(DeathOnTheWay, EndsTheRequestsOfThatEndpointOnly) {
    Failure failure;
    Cluster cluster(3);
    const ucp_ep_h doomed = cluster.connect(0, 1, with_handler(failure));
    const uint64_t dead = cluster.uuid(1);
    unsigned packets = 0;
    cluster.fabric.observe([&](const uct::mock::PacketEvent& event) {
        if (event.source_worker != dead && event.target_worker != dead) return;
        if (++packets == GetParam()) cluster.fabric.kill(dead);
    });
    ASSERT_EQ(ucpx_ep_lanes_request(doomed, UCPX_LANE_POLICY_DEDICATED), UCS_OK);
    const auto bytes = pattern(300000, 1);
    std::vector<ucs_status_ptr_t> operations;
    for (unsigned round = 0; round < 400 && failure.calls == 0; ++round) {
        cluster.steps(5);
        const size_t length = round % 7 == 0 ? bytes.size() : round * 11;
        const ucs_status_ptr_t sending =
            round % 5 == 0 ? ucp_tag_send_sync_nbx(doomed, bytes.data(), length, 0, &kNothing)
                           : ucp_tag_send_nbx(doomed, bytes.data(), length, 0, &kNothing);
        if (UCS_PTR_IS_PTR(sending)) operations.push_back(sending);
    }
    ASSERT_TRUE(cluster.until([&] { return failure.calls == 1; }));
    EXPECT_LT(failure.status, 0);
    for (const ucs_status_ptr_t operation : operations) cluster.finish(operation);
    EXPECT_TRUE(
        cluster.until([&] { return cluster.fabric.dedicated_endpoints(cluster.uuid(0)) == 0; }));
    EXPECT_TRUE(UCS_PTR_IS_ERR(ucp_tag_send_nbx(doomed, bytes.data(), 8, 0, &kNothing)));
    ucp_request_param_t force{};
    force.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    force.flags = UCP_EP_CLOSE_FLAG_FORCE;
    EXPECT_EQ(cluster.finish(ucp_ep_close_nbx(doomed, &force)), UCS_OK);

    Pinger other(cluster, 0, 2);
    other.send();
    EXPECT_TRUE(cluster.until([&] {
        other.receive();
        return other.is_idle();
    }));
    EXPECT_EQ(failure.calls, 1u);
}

INSTANTIATE_TEST_SUITE_P(EveryPacket, DeathOnTheWay, ::testing::Range(1u, 60u));

TEST(Closing, EndsAfterWhatWasSent) {
    Cluster cluster(2);
    const auto bytes = pattern(6000, 2);
    const ucp_ep_h endpoint = cluster.connect(0, 1);
    ASSERT_EQ(ucpx_ep_lanes_request(endpoint, UCPX_LANE_POLICY_DEDICATED), UCS_OK);
    for (int count = 0; count < 20; ++count) {
        const ucs_status_ptr_t sending =
            ucp_tag_send_nbx(endpoint, bytes.data(), bytes.size(), 3, &kNothing);
        if (UCS_PTR_IS_PTR(sending)) ucp_request_free(sending);
    }
    EXPECT_EQ(cluster.finish(ucp_ep_close_nbx(endpoint, &kNothing)), UCS_OK);
    std::vector<uint8_t> buffer(6000);
    for (int count = 0; count < 20; ++count) {
        EXPECT_EQ(cluster.finish(ucp_tag_recv_nbx(cluster.worker(1), buffer.data(), buffer.size(),
                                                  3, ~uint64_t{0}, &kNothing)),
                  UCS_OK);
        EXPECT_EQ(buffer, bytes);
    }
    EXPECT_TRUE(
        cluster.until([&] { return cluster.fabric.dedicated_endpoints(cluster.uuid(0)) == 0; }));
    // The peer is known: a new endpoint works at once.
    const ucp_ep_h again = cluster.connect(0, 1);
    EXPECT_EQ(cluster.finish(ucp_tag_send_nbx(again, bytes.data(), 8, 4, &kNothing)), UCS_OK);
    EXPECT_EQ(cluster.finish(ucp_ep_flush_nbx(again, &kNothing)), UCS_OK);
}

// A new endpoint to the same peer, made while the old one still waits for what it sent.
TEST(Closing, TheNextEndpointToAPeerTakesPartInTheSelectionOfLanes) {
    for (const bool was_promoted : {false, true}) {
        Cluster cluster(2);
        Pinger back(cluster, 1, 0);
        back.send();  // the peer knows us, and may go on sending
        const ucp_ep_h old = cluster.connect(0, 1);
        if (was_promoted) {
            ASSERT_EQ(ucpx_ep_lanes_request(old, UCPX_LANE_POLICY_DEDICATED), UCS_OK);
            ASSERT_TRUE(cluster.until(
                [&] { return cluster.lane_state(old) == UCPX_LANE_STATE_ESTABLISHED; }));
        }
        const auto bytes = pattern(8, 2);
        const ucs_status_ptr_t sending =
            ucp_tag_send_sync_nbx(old, bytes.data(), bytes.size(), 3, &kNothing);
        const ucs_status_ptr_t closing = ucp_ep_close_nbx(old, &kNothing);
        ASSERT_TRUE(UCS_PTR_IS_PTR(closing));
        const ucp_ep_h next = cluster.connect(0, 1);
        ASSERT_NE(next, old);
        std::vector<uint8_t> buffer(8);
        EXPECT_EQ(cluster.finish(ucp_tag_recv_nbx(cluster.worker(1), buffer.data(), buffer.size(),
                                                  3, ~uint64_t{0}, &kNothing)),
                  UCS_OK);
        EXPECT_EQ(cluster.finish(sending), UCS_OK);
        EXPECT_EQ(cluster.finish(closing), UCS_OK);
        ASSERT_TRUE(cluster.until(
            [&] { return ucpx_ep_lanes_request(next, UCPX_LANE_POLICY_DEDICATED) == UCS_OK; }));
        EXPECT_TRUE(cluster.until([&] {
            back.send();
            back.receive();
            return cluster.lane_state(next) == UCPX_LANE_STATE_ESTABLISHED;
        }));
        EXPECT_EQ(cluster.fabric.dedicated_endpoints(cluster.uuid(0)), 1u);
        EXPECT_TRUE(cluster.until([&] {
            back.receive();
            return back.is_idle();
        }));
    }
}

TEST(Closing, ByForceCancelsWhatIsUnderWay) {
    Cluster cluster(2);
    const auto bytes = pattern(1000000, 2);
    const ucp_ep_h endpoint = cluster.connect(0, 1);
    const ucs_status_ptr_t sending =
        ucp_tag_send_sync_nbx(endpoint, bytes.data(), bytes.size(), 3, &kNothing);
    ucp_request_param_t force{};
    force.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    force.flags = UCP_EP_CLOSE_FLAG_FORCE;
    EXPECT_EQ(cluster.finish(ucp_ep_close_nbx(endpoint, &force)), UCS_OK);
    EXPECT_EQ(cluster.finish(sending), UCS_ERR_CANCELED);
}

TEST(Closing, LeavesAFinishedSendThatCanBeDescribed) {
    Cluster cluster(2);
    const ucp_ep_h endpoint = cluster.endpoint(0, 1);
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    const uint64_t value = 5;
    const ucs_status_ptr_t sending = ucp_tag_send_nbx(endpoint, &value, sizeof(value), 1, &param);
    ASSERT_TRUE(UCS_PTR_IS_PTR(sending));
    const auto describe = [&] {
        char text[200] = "";
        ucp_request_attr_t attr{};
        attr.field_mask =
            UCP_REQUEST_ATTR_FIELD_INFO_STRING | UCP_REQUEST_ATTR_FIELD_INFO_STRING_SIZE;
        attr.debug_string = text;
        attr.debug_string_size = sizeof(text);
        EXPECT_EQ(ucp_request_query(sending, &attr), UCS_OK);
        return std::string(text);
    };
    EXPECT_NE(describe().find("over mock"), std::string::npos) << describe();
    EXPECT_TRUE(cluster.until([&] { return ucp_request_check_status(sending) != UCS_INPROGRESS; }));
    EXPECT_EQ(cluster.finish(ucp_ep_close_nbx(endpoint, &kNothing)), UCS_OK);
    const auto is_gone = [&] {
        bool is_gone = true;
        cluster.inner(0).endpoints().for_each([&](Endpoint&) { is_gone = false; });
        return is_gone;
    };
    ASSERT_TRUE(cluster.until(is_gone));
    EXPECT_NE(describe().find("over any"), std::string::npos) << describe();
    ucp_request_free(sending);
}

}  // namespace
}  // namespace ucp::test
