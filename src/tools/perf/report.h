// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>
#include <string>

#include "tools/perf/initiator.h"
#include "tools/perf/options.h"

namespace tools::perf {

// All threads' samples of one size.
struct Row {
    uint64_t size = 0;
    // Microseconds of one operation; 0 where latency is not measured.
    double latency = 0;
    double latency_min = 0;
    double latency_median = 0;
    double latency_p99 = 0;
    // 0 where bandwidth is not measured.
    double megabytes_per_second = 0;  // of 10^6 bytes
    double messages_per_second = 0;
    // Processors that the two processes kept busy while bandwidth was measured.
    double cpu_initiator = 0;
    double cpu_target = 0;
};

void add_latency(Row& row, std::span<const Sample> samples);
void add_bandwidth(Row& row, std::span<const Sample> samples);

std::string table_header(const Options& options);
std::string table_line(const Options& options, const Row& row);
Json to_json(const Options& options, const Row& row);

}  // namespace tools::perf
