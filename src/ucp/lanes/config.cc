// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/lanes/config.h"

#include <algorithm>

namespace ucp::lanes {

Config clamped(Config config) {
    config.margin_permille = std::min(config.margin_permille, kMaxMarginPermille);
    config.min_score = std::clamp<Score>(config.min_score, 1, kMaxMeasuredScore);
    config.busy_retry = std::max<Time>(config.busy_retry, 1);
    config.retry_after = std::max(config.retry_after, config.busy_retry);
    config.retry_max = std::max(config.retry_max, config.retry_after);
    config.refresh = std::max<Time>(config.refresh, 1);
    config.stale_after = std::max(config.stale_after, 2 * config.refresh);
    config.wait_timeout = std::max<Time>(config.wait_timeout, 1);
    config.max_links = std::max(config.max_links, 2 * config.cap + 8);
    return config;
}

}  // namespace ucp::lanes
