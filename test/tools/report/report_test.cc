// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "tools/program/flow.h"
#include "tools/report/json.h"
#include "tools/report/result.h"
#include "tools/sim/observer.h"

namespace tools {
namespace {

TEST(Combine, TotalMessagesOverTheMeanTimeOfSenders) {
    const Row row = combine({{.size = 8, .messages = 100, .elapsed = 1000},
                             {.size = 8, .messages = 300, .elapsed = 3000},
                             {.size = 8}});
    EXPECT_DOUBLE_EQ(row.messages_per_second, 400 / 2000e-9);
    EXPECT_DOUBLE_EQ(row.megabytes_per_second, 8 * 400 / 2000e-9 / 1e6);
    EXPECT_DOUBLE_EQ(row.latency, 0);
}

std::vector<RunResult> two_runs() {
    std::vector<RunResult> runs(2);
    runs[0].mode = "scalable";
    runs[0].rows = {{.size = 8, .messages_per_second = 10}};
    runs[1].mode = "dynamic";
    runs[1].rows = {{.size = 8, .messages_per_second = 15}};
    runs[1].counters = {{3, 1, 2}};
    runs[1].map = {{.rank = 0, .peer = 1, .lane = "rc_mlx5", .state = "established", .why = "hot"}};
    return runs;
}

TEST(Comparison, GivesTheRatioToEachOtherMode) {
    const std::string text = comparison(two_runs());
    EXPECT_NE(text.find("dynamic/scalable"), std::string::npos);
    EXPECT_NE(text.find("1.50"), std::string::npos);
    EXPECT_EQ(text.find("dynamic/dedicated"), std::string::npos);
}

TEST(Json, LanesAreThoseOfTheDynamicRun) {
    Json document;
    add_runs(document, two_runs());
    EXPECT_EQ(document["rows"].size(), 2u);
    EXPECT_EQ(document["lanes"]["promotions"], 3);
    EXPECT_EQ(document["lanes"]["demotions"], 1);
    EXPECT_EQ(document["lanes"]["denials"], 2);
    EXPECT_EQ(document["lanes"]["map"][0]["lane"], "rc_mlx5");
    EXPECT_EQ(document["modes"]["scalable"]["lanes"]["promotions"], 0);
}

TEST(HotPeers, AreMutualAndMove) {
    constexpr unsigned kRanks = 16;
    constexpr unsigned kHot = 4;
    for (unsigned phase = 0; phase < 3; ++phase) {
        for (unsigned rank = 0; rank < kRanks; ++rank) {
            const auto peers = hot_peers(rank, kRanks, kHot, phase);
            ASSERT_EQ(peers.size(), kHot);
            for (const unsigned peer : peers) {
                const auto back = hot_peers(peer, kRanks, kHot, phase);
                EXPECT_NE(std::find(back.begin(), back.end(), rank), back.end());
                const auto next = hot_peers(rank, kRanks, kHot, phase + 1);
                EXPECT_EQ(std::find(next.begin(), next.end(), peer), next.end());
            }
        }
    }
}

ucpx_lane_event_t lane_event(ucpx_lane_state_t from, ucpx_lane_state_t to) {
    ucpx_lane_event_t event{};
    event.old_state = from;
    event.new_state = to;
    return event;
}

TEST(JobObserver, TellsAGapAcrossASwitchFromOthers) {
    JobObserver observer(2, 100);
    const auto deliver_at = [&](int64_t time) {
        observer.set_time(time);
        observer.delivered(0, 1, 8);
    };
    deliver_at(10);
    deliver_at(30);
    observer.lane_changed(0, 1, lane_event(UCPX_LANE_STATE_READY, UCPX_LANE_STATE_SWITCHING));
    deliver_at(90);
    observer.set_time(95);
    observer.lane_changed(0, 1, lane_event(UCPX_LANE_STATE_SWITCHING, UCPX_LANE_STATE_ESTABLISHED));
    deliver_at(130);
    deliver_at(145);
    EXPECT_EQ(observer.link(0, 1).longest_switch_gap, 60);
    EXPECT_EQ(observer.link(0, 1).longest_gap, 20);
    ASSERT_EQ(observer.switches().size(), 1u);
    EXPECT_TRUE(observer.switches()[0].promotion);
    EXPECT_EQ(observer.timeline(), (std::vector<uint64_t>{3, 2}));
}

TEST(JobObserver, APauseIsNoGap) {
    JobObserver observer(2, 100);
    observer.delivered(0, 1, 8);
    observer.pause();
    observer.set_time(1000);
    observer.delivered(0, 1, 8);
    EXPECT_EQ(observer.link(0, 1).longest_gap, 0);
}

}  // namespace
}  // namespace tools
