// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tools/report/json.h"
#include "ucp/stats/page_reader.h"

namespace tools {

// CLOCK_MONOTONIC in nanoseconds: what pages are dated by.
int64_t monotonic_now();

// "rc_mlx5/mlx5_0:1"; empty for kNoTransport.
std::string transport_of(const ucp::stats::WorkerRecord& worker, uint8_t index);

// All that the pages say; docs/observability.md describes the keys.
Json to_json(std::span<const ucp::stats::PageSample> samples, int64_t now);

}  // namespace tools
