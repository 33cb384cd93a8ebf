// SPDX-License-Identifier: BSD-3-Clause

// A variable's table holds its bounds; the code behind has room for what they allow.

#include "ucp/context/config.h"

#include <gtest/gtest.h>

#include <string>

#include "ucp/bulk/schedule/rules.h"
#include "ucp/lanes/score.h"
#include "ucp/mem/remote_memory.h"

namespace ucp {
namespace {

Config with(const std::string& name, const std::string& value) {
    ucs::config::Source source;
    std::string error;
    EXPECT_EQ(source.modify(name, value, error), UCS_OK) << error;
    Config config;
    EXPECT_EQ(kConfigTable.load(source, config, error), UCS_OK) << error;
    return config;
}

TEST(ConfigBounds, AreWhatArraysHaveRoomFor) {
    EXPECT_EQ(with("MAX_RNDV_RAILS", "1000").max_rails, RemoteMemory::kMaxKeys);
    EXPECT_EQ(with("BULK_MAX_RAILS", "1000").bulk_max_rails, RemoteMemory::kMaxKeys);
    EXPECT_EQ(with("BULK_MAX_WR_PER_POST", "1000").bulk_max_wr_per_post, bulk::kMaxChain);
    EXPECT_EQ(with("BULK_QPS", "1000").bulk_qps, bulk::kMaxQueuePairsPerRail);
    EXPECT_EQ(with("DYNAMIC_TL_MARGIN", "1000").hysteresis_margin,
              lanes::kMaxMarginPermille / 1000);
    EXPECT_LE(with("DYNAMIC_TL_MIN_SCORE", "inf").min_score,
              static_cast<double>(lanes::kMaxMeasuredScore));
}

TEST(ConfigBounds, LeaveNoLoopAndNoDivisorAtZero) {
    EXPECT_EQ(with("DYNAMIC_TL_PROGRESS_FACTOR", "0").progress_factor, 1u);
    EXPECT_EQ(with("DYNAMIC_TL_WINDOWS", "0").sample_windows, 1u);
    EXPECT_GT(with("DYNAMIC_TL_DUTY", "0").sample_duty, 0);
    EXPECT_GT(with("DYNAMIC_TL_SWITCH_INTERVAL", "0").switch_interval.count(), 0);
    EXPECT_EQ(with("DYNAMIC_TL_WINDOW", "0").switch_window, 1u);
    EXPECT_EQ(with("BULK_SLICE_SIZE", "0").bulk_slice_size, 1u);
    EXPECT_EQ(with("BULK_WINDOW", "0").bulk_window, 1u);
    EXPECT_EQ(with("BULK_SHARDS", "0").bulk_shards, 1u);
    EXPECT_EQ(with("NUM_EPS", "0").estimated_endpoints, 1u);
}

}  // namespace
}  // namespace ucp
