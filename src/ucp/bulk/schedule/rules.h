// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

#include "ucp/bulk/schedule/path_choice.h"
#include "ucp/context/config.h"
#include "ucp/mem/remote_memory.h"
#include "ucs/sys/time.h"

namespace ucp::bulk {

// What the bulk transfers of a worker go by, as the user has configured them.
struct Rules {
    ScheduleRules schedule;
    size_t fragment = 0;  // SliceRules::fragment
    unsigned max_retries = 0;
    ucs::Duration retry_interval{};
    ucs::Duration stall_timeout{};
    ucs::Duration cut_timeout{};
    unsigned threads = 0;  // of each device
    unsigned shards = 0;

    static Rules of(const Config& config) {
        return {.schedule = {.slice = config.bulk_slice_size,
                             .window = config.bulk_window,
                             .chain = config.bulk_max_wr_per_post},
                .fragment = config.bulk_fragment_limit,
                .max_retries = config.bulk_max_retries,
                .retry_interval = config.bulk_retry_interval,
                .stall_timeout = config.bulk_stall_timeout,
                .cut_timeout = config.bulk_cut_timeout,
                .threads = config.bulk_workers,
                .shards = config.bulk_shards};
    }
};

// Queue pairs for bulk that an endpoint has on one rail, at most.
inline constexpr unsigned kMaxQueuePairsPerRail = 8;
// Paths of one endpoint, at most: its own lane, the rails, and queue pairs on all of them.
inline constexpr size_t kMaxPaths = RemoteMemory::kMaxKeys * (1 + kMaxQueuePairsPerRail);
// Slices of one chain, at most.
inline constexpr size_t kMaxChain = 64;

}  // namespace ucp::bulk
