// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

#include "ucp/bulk/schedule/path_choice.h"
#include "ucp/context/config.h"
#include "ucs/sys/time.h"

namespace ucp::bulk {

/** What the bulk transfers of a worker go by, as the user has configured them. */
struct Rules {
    ScheduleRules schedule;
    size_t fragment = 4096;  //!< SliceRules::fragment
    unsigned max_retries = 8;
    ucs::Duration retry_interval{};
    ucs::Duration stall_timeout = std::chrono::milliseconds(400);
    ucs::Duration cut_timeout{};
    unsigned threads = 0;  //!< of each device
    unsigned shards = 1;

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

}  // namespace ucp::bulk
