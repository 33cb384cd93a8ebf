// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "tools/program/rank.h"
#include "ucp/api/ucpx.h"

namespace tools {

// One endpoint of one rank, as the library describes it.
struct LaneEntry {
    unsigned rank = 0;
    unsigned peer = 0;
    std::string lane;   // transport: dc_mlx5, rc_mlx5, ...
    std::string state;  // scalable, requesting, switching, dedicated, ...
    double score = 0;
    std::string why;
};

// One line for each counter: its name in output, and where a worker has it.
struct LaneCounter {
    const char* name;
    uint64_t field;  // of ucpx_worker_attr_field
    uint64_t ucpx_worker_attr_t::*source;
};
inline constexpr LaneCounter kLaneCounters[] = {
    {"promotions", UCPX_WORKER_ATTR_FIELD_SWITCHES, &ucpx_worker_attr_t::promotions},
    {"demotions", UCPX_WORKER_ATTR_FIELD_SWITCHES, &ucpx_worker_attr_t::demotions},
    {"denials", UCPX_WORKER_ATTR_FIELD_NEGOTIATION, &ucpx_worker_attr_t::denials_received},
    {"replays", UCPX_WORKER_ATTR_FIELD_SWITCHES, &ucpx_worker_attr_t::replays},
    {"lanes_reused", UCPX_WORKER_ATTR_FIELD_KEPT, &ucpx_worker_attr_t::lanes_reused},
};

// By name, in the order of kLaneCounters.
struct LaneCounters {
    std::array<uint64_t, std::size(kLaneCounters)> values{};

    LaneCounters& operator+=(const LaneCounters& other) {
        std::ranges::transform(values, other.values, values.begin(), std::plus());
        return *this;
    }
};

// Memory that a rank has had come since it initialised the library, in bytes: private pages and
// those of shared memory that it has touched, its peers' among them. The benchmark's own messages
// count too.
struct RankMemory {
    uint64_t with_worker = 0;  // once its worker was made
    uint64_t at_end = 0;       // of the benchmark

    RankMemory larger(const RankMemory& other) const {
        return {std::max(with_worker, other.with_worker), std::max(at_end, other.at_end)};
    }
};

// All ranks' samples for one message size, put together.
struct Row {
    uint64_t size = 0;
    double messages_per_second = 0;
    double megabytes_per_second = 0;  // of 10^6 bytes
    double latency = 0;               // microseconds of one exchange; 0 where there is none
};

// What one run of a benchmark in one mode gave.
struct RunResult {
    std::string mode;  // UCX_LANES: dynamic, scalable, dedicated
    std::vector<Row> rows;
    LaneCounters counters;
    RankMemory memory;           // each the most of any rank; of processes alone
    std::vector<LaneEntry> map;  // by rank, then peer
};

// Total messages over the mean time of the ranks that sent, as the OSU benchmarks count.
Row combine(const std::vector<Sample>& samples);

// What the library says of this rank's endpoints, by peer.
std::vector<LaneEntry> query_lanes(const Rank& rank);

// Of this rank's worker since its creation. Each end of a link counts a switch once.
LaneCounters query_counters(const Rank& rank);

// Lines of text, in the form of the OSU benchmarks: comments start with '#'.
std::string row_header(bool with_latency);
std::string row_line(const Row& row, bool with_latency);

// Message rates of several modes side by side, one line a size; empty for a single mode.
std::string comparison(std::span<const RunResult> runs);

// What a rank takes of memory, a line; empty where ranks are no processes.
std::string memory_line(const RunResult& run);

// Who holds which lane, and why.
std::string lane_map(const RunResult& run);

}  // namespace tools
