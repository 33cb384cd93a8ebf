// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>

#include "ucs/config/source.h"
#include "ucs/config/values.h"
#include "ucs/type/status.h"

namespace uct::sm {

struct Config {
    unsigned fifo_size;
    unsigned ring_size;
    unsigned ring_buffers;
    ucs::config::MemorySize segment_size;
    unsigned kept_buffers;
    unsigned max_poll;
    bool single_copy;
    bool joint_copies;
    std::optional<bool> places_queues;  // nothing: where there are several nodes
    bool asks_for_huge_pages;
};

// Reads UCX_SM_*; an invalid value is logged. Sizes are rounded to what queues need.
ucs_status_t load_config(const ucs::config::Source* source, Config* config);

}  // namespace uct::sm
