// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "ucp/lanes/link.h"

namespace ucp::lanes {

inline constexpr Time kMillisecond = 1'000'000;

// Times are nanoseconds; docs/design/lanes.md explains each knob. Where waits that
// belong together are out of order, the longer one gives way.
struct Config {
    std::uint32_t cap = 20;
    std::uint32_t margin_permille = 200;
    std::uint32_t tolerance_permille = 50;
    Score min_score = 1;
    std::uint32_t trickle_ratio = 100;
    Time min_residence = 200 * kMillisecond;
    Time busy_retry = 1 * kMillisecond;
    Time retry_after = 500 * kMillisecond;
    Time retry_max = 8000 * kMillisecond;
    Time refresh = 1000 * kMillisecond;
    Time stale_after = 4000 * kMillisecond;
    Time hold = 120'000 * kMillisecond;
    Time wait_timeout = 1000 * kMillisecond;
    std::uint32_t request_pings = 3;
    Time patience = 20 * kMillisecond;
    std::uint32_t max_parked = 20;
    Time keep = 60'000 * kMillisecond;
    std::uint32_t window = 16;
    std::uint32_t max_links = 256;
};

}  // namespace ucp::lanes
