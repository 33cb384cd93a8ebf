// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "ucp/lanes/negotiator_state.h"

namespace ucp::lanes {

// What tests of the negotiation change one by one: small windows, and scores of one count.
inline Config config_of_tests() {
    Config config;
    config.cap = 20;
    config.max_links = 256;
    config.margin_permille = 200;
    config.trickle_ratio = 100;
    config.min_residence = 200 * kMillisecond;
    config.hold = 120'000 * kMillisecond;
    config.patience = 20 * kMillisecond;
    config.max_parked = 20;
    config.keep = 60'000 * kMillisecond;
    config.window = 16;
    return config;
}

}  // namespace ucp::lanes
