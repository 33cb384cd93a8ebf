// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

#include "ucp/lanes/actions.h"
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

struct Counters {
    std::uint64_t requests = 0;
    std::uint64_t reused = 0;      // kept lanes that a round took back
    std::uint64_t promotions = 0;  // links that became Established
    std::uint64_t demotions = 0;   // links that left Established or Switching, death apart
    std::uint64_t denials_sent = 0;
    std::uint64_t denials_received = 0;
    std::uint64_t deferrals = 0;
    std::uint64_t withdrawals = 0;
    std::uint64_t pings = 0;
    std::uint64_t failures = 0;
    std::uint64_t violations = 0;  // messages that no correct peer sends
};

// What the parts of one negotiator share.
struct Context {
    const Config config;
    const std::uint64_t worker;
    Actions actions;
    Time now = 0;
    Counters counters{};
    std::vector<Link*> touched{};  // links that the event under way is about, or has changed

    void touch(Link& link) {
        if (link.is_touched) return;
        link.is_touched = true;
        touched.push_back(&link);
    }
};

}  // namespace ucp::lanes
