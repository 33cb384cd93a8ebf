// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

#include "ucp/lanes/actions.h"
#include "ucp/lanes/link.h"

namespace ucp::lanes {

inline constexpr Time kMillisecond = 1'000'000;

// Times are nanoseconds; docs/design/lanes.md explains each knob. What a variable sets has its
// default there; the rest are constants of the protocol.
struct Config {
    std::uint32_t cap = 0;        // slots of Pool::kDevice
    std::uint32_t host_cap = 0;   // of Pool::kHost
    std::uint32_t max_links = 0;  // at least as many as the lanes need, whatever this says
    std::uint32_t margin_permille = 0;
    std::uint32_t tolerance_permille = 50;
    Score min_score = 1;
    std::uint32_t trickle_ratio = 0;
    Time min_residence = 0;
    // From short to long, and stale_after at least twice `refresh`.
    Time busy_retry = 1 * kMillisecond;
    Time retry_after = 500 * kMillisecond;
    Time retry_max = 8000 * kMillisecond;
    Time refresh = 1000 * kMillisecond;
    Time stale_after = 4000 * kMillisecond;
    Time hold = 0;
    Time wait_timeout = 1000 * kMillisecond;
    std::uint32_t request_pings = 3;
    Time patience = 0;
    std::uint32_t max_parked = 0;
    Time keep = 0;
    std::uint32_t window = 0;

    std::uint32_t cap_of(Pool pool) const { return pool == Pool::kHost ? host_cap : cap; }
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
struct NegotiatorState {
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
