// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tools/bench/channel.h"
#include "tools/common/process.h"
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

// What is said while it runs; on_progress may be empty.
struct Observer {
    std::function<void(const std::string& lane)> on_lane;
    std::function<void(const Row&)> on_row;
    std::function<void(const std::string&)> on_progress;
    // After Ctrl-C, with what was finished; threads are at work: it ends the process.
    std::function<void(const std::vector<Row>&)> on_interrupt;
};

// The process that takes the time. The other end of the channel is run_target(). Throws on any
// failure; what the library holds refers to the stack that is gone then: end the process.
std::vector<Row> run_initiator(Channel& channel, const Options& options, const Observer& observer);

// The other process, for one initiator.
void run_target(Channel& channel);

// What the CUDA driver's own copies between the two memories take, in one process and without the
// library: latency is a copy and the wait for its end, bandwidth a window of copies on one stream.
// Rows are told as they are there. Throws std::runtime_error where there is no CUDA.
std::vector<Row> measure_driver_copies(const Options& options,
                                       const std::function<void(const Row&)>& on_row);

// Run this executable as two processes, the initiator and the target, to their end. Each inherits a
// socket to the other. If one fails or dies the other is ended and
// std::runtime_error says which it was.
void launch(const ExecSettings& settings);

}  // namespace tools::perf
