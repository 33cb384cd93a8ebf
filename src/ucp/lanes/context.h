// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

#include "ucp/lanes/actions.h"
#include "ucp/lanes/config.h"

namespace ucp::lanes {

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
