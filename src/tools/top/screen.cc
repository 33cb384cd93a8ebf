// SPDX-License-Identifier: BSD-3-Clause

#include <fmt/format.h>
#include <ucp/api/ucpx.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "tools/top/document.h"

namespace tools {
namespace {

using ucp::stats::EndpointRecord;
using ucp::stats::PageSample;
using ucp::stats::WorkerRecord;

// The half of a link that was asked for by policy (ucpx.h).
constexpr uint64_t kPinned = uint64_t{1} << 60;

std::string bytes_text(uint64_t bytes) {
    constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    auto value = static_cast<double>(bytes);
    size_t unit = 0;
    for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
    return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string age_text(int64_t nanoseconds) {
    const double seconds = static_cast<double>(std::max<int64_t>(nanoseconds, 0)) * 1e-9;
    return seconds < 100 ? fmt::format("{:.1f} s", seconds)
                         : fmt::format("{:.0f} min", seconds / 60);
}

std::string score_text(const EndpointRecord& endpoint) {
    if ((endpoint.flags & EndpointRecord::kHasLink) == 0) return "-";
    const uint64_t score = endpoint.advertised_score + endpoint.remote_score;
    return score >= kPinned ? "asked for" : std::to_string(score);
}

std::string worker_line(const PageSample& sample, int64_t now) {
    const WorkerRecord& worker = sample.worker;
    uint64_t waiting = 0;
    for (const EndpointRecord& endpoint : std::span(worker.entries).first(worker.endpoint_count)) {
        waiting += endpoint.waiting;
    }
    uint64_t resent = 0;
    for (const auto& transport : std::span(worker.transports).first(worker.transport_count)) {
        resent += transport.retransmissions;
    }
    return fmt::format(
        "{:>8} {:<15} {:<24.24} {:>5} {:>9} {:>6} {:>6} {:>6} {:>7} {:>6} {:>10} {:>7}", sample.pid,
        sample.program, worker.name, worker.endpoints,
        fmt::format("{}/{}", worker.dedicated, worker.cap), worker.promotions, worker.demotions,
        worker.denials_received, waiting, resent,
        bytes_text(worker.region_bytes + worker.cached_bytes), age_text(now - worker.filled));
}

std::string endpoint_line(const WorkerRecord& worker, const EndpointRecord& endpoint) {
    const bool has_link = (endpoint.flags & EndpointRecord::kHasLink) != 0;
    const bool is_measured = (endpoint.flags & EndpointRecord::kMeasured) != 0;
    const char* state =
        has_link ? ucpx_lane_state_string(static_cast<ucpx_lane_state_t>(endpoint.state)) : "-";
    const char* reason =
        has_link ? ucpx_lane_reason_string(static_cast<ucpx_lane_reason_t>(endpoint.reason)) : "-";
    if ((endpoint.flags & EndpointRecord::kFailed) != 0) state = "failed";
    const std::string messages =
        is_measured ? fmt::format("{:.0f}", endpoint.messages_per_second) : "-";
    const std::string megabytes =
        is_measured ? fmt::format("{:.1f}", endpoint.bytes_per_second * 1e-6) : "-";
    return fmt::format(
        "{:>9}{:016x} {:<22.22} {:<12} {:<10} {:>12} {:>10} {:>9} {:>4} {:>4} {:>6} {:>7}", "",
        endpoint.peer, transport_of(worker, endpoint.lane), state, reason, score_text(endpoint),
        messages, megabytes, endpoint.promotions, endpoint.demotions, endpoint.denials,
        endpoint.waiting);
}

}  // namespace

std::vector<std::string> screen_lines(std::span<const PageSample> samples, int64_t now,
                                      size_t endpoints) {
    std::set<pid_t> processes;
    for (const PageSample& sample : samples) processes.insert(sample.pid);
    std::vector<std::string> lines{
        fmt::format("swiftlane top: {} processes, {} workers", processes.size(), samples.size())};
    if (samples.empty()) {
        lines.emplace_back("No process of this user shows what it does (UCX_STATS).");
        return lines;
    }
    lines.push_back(
        fmt::format("{:>8} {:<15} {:<24} {:>5} {:>9} {:>6} {:>6} {:>6} {:>7} {:>6} {:>10} {:>7}",
                    "PID", "PROGRAM", "WORKER", "ENDP", "DEDICATED", "UP", "DOWN", "DENIED",
                    "WAITING", "RESENT", "REGISTERED", "AGE"));
    if (endpoints > 0) {
        lines.push_back(fmt::format(
            "{:>9}{:<16} {:<22} {:<12} {:<10} {:>12} {:>10} {:>9} {:>4} {:>4} {:>6} {:>7}", "",
            "PEER", "LANE", "STATE", "WHY", "SCORE", "MSG/S", "MB/S", "UP", "DOWN", "DENIED",
            "WAITING"));
    }
    for (const PageSample& sample : samples) {
        lines.push_back(worker_line(sample, now));
        const size_t shown = std::min<size_t>(endpoints, sample.worker.endpoint_count);
        for (const EndpointRecord& endpoint : std::span(sample.worker.entries).first(shown)) {
            lines.push_back(endpoint_line(sample.worker, endpoint));
        }
        if (shown > 0 && shown < sample.worker.endpoints)
            lines.push_back(fmt::format("{:>9}and {} more", "", sample.worker.endpoints - shown));
    }
    return lines;
}

}  // namespace tools
