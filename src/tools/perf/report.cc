// SPDX-License-Identifier: BSD-3-Clause
#include "tools/perf/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

namespace tools::perf {
namespace {

double microseconds(int64_t nanoseconds) {
    return static_cast<double>(nanoseconds) / 1e3;
}

}  // namespace

void add_latency(Row& row, std::span<const Sample> samples) {
    std::vector<int64_t> all;
    uint64_t operations = 0;
    int64_t elapsed = 0;
    for (const Sample& sample : samples) {
        all.insert(all.end(), sample.latencies.begin(), sample.latencies.end());
        operations += sample.operations;
        elapsed += sample.elapsed;
    }
    if (all.empty()) return;
    std::ranges::sort(all);
    row.latency = microseconds(elapsed) / static_cast<double>(operations);
    row.latency_min = microseconds(all.front());
    row.latency_median = microseconds(all[all.size() / 2]);
    row.latency_p99 = microseconds(all[all.size() * 99 / 100]);
}

// All that was moved, over the time of the thread that was last.
void add_bandwidth(Row& row, std::span<const Sample> samples) {
    uint64_t messages = 0;
    int64_t elapsed = 1;
    for (const Sample& sample : samples) {
        messages += sample.messages;
        elapsed = std::max(elapsed, sample.elapsed);
    }
    row.messages_per_second = static_cast<double>(messages) * 1e9 / static_cast<double>(elapsed);
    row.megabytes_per_second = row.messages_per_second * static_cast<double>(row.size) / 1e6;
}

std::string table_header(const Options& options) {
    std::string text = fmt::format("{:<12}", "# Size");
    auto out = std::back_inserter(text);
    if (options.latency) {
        fmt::format_to(out, "{:>18}{:>12}{:>12}", "Avg Latency(us)", "p50(us)", "p99(us)");
    }
    if (options.bandwidth) {
        fmt::format_to(out, "{:>16}{:>20}{:>10}{:>10}", "MB/s", "Messages/s", "CPU here",
                       "CPU there");
    }
    return text + '\n';
}

std::string table_line(const Options& options, const Row& row) {
    std::string text = fmt::format("{:<12}", row.size);
    auto out = std::back_inserter(text);
    if (options.latency) {
        fmt::format_to(out, "{:>18.2f}{:>12.2f}{:>12.2f}", row.latency, row.latency_median,
                       row.latency_p99);
    }
    if (options.bandwidth) {
        fmt::format_to(out, "{:>16.2f}{:>20.2f}{:>9.0f}%{:>9.0f}%", row.megabytes_per_second,
                       row.messages_per_second, 100 * row.cpu_initiator, 100 * row.cpu_target);
    }
    return text + '\n';
}

Json to_json(const Options& options, const Row& row) {
    Json json{{"size", row.size}};
    if (options.latency) {
        json["latency_us"] = row.latency;
        json["latency_min_us"] = row.latency_min;
        json["latency_median_us"] = row.latency_median;
        json["latency_p99_us"] = row.latency_p99;
    }
    if (options.bandwidth) {
        json["mb_per_s"] = row.megabytes_per_second;
        json["messages_per_s"] = row.messages_per_second;
        json["cpu_initiator"] = row.cpu_initiator;
        json["cpu_target"] = row.cpu_target;
    }
    return json;
}

}  // namespace tools::perf
