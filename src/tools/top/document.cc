// SPDX-License-Identifier: BSD-3-Clause
#include "tools/top/document.h"

#include <fmt/format.h>
#include <ucp/api/ucpx.h>

#include <algorithm>
#include <chrono>
#include <span>

namespace tools {
namespace {

double seconds(int64_t nanoseconds) {
    return static_cast<double>(std::max<int64_t>(nanoseconds, 0)) * 1e-9;
}

Json endpoint_json(const WorkerRecord& worker, const EndpointRecord& endpoint) {
    Json json{{"peer", fmt::format("{:016x}", endpoint.peer)},
              {"lane", transport_of(worker, endpoint.lane)},
              {"other_lane", transport_of(worker, endpoint.other)},
              {"failed", (endpoint.flags & EndpointRecord::kFailed) != 0},
              {"by_program", (endpoint.flags & EndpointRecord::kUsers) != 0},
              {"waiting", endpoint.waiting}};
    if ((endpoint.flags & EndpointRecord::kMeasured) != 0) {
        json["messages_per_s"] = endpoint.messages_per_second;
        json["bytes_per_s"] = endpoint.bytes_per_second;
    }
    if ((endpoint.flags & EndpointRecord::kHasLink) == 0) return json;
    json["state"] = ucpx_lane_state_string(static_cast<ucpx_lane_state_t>(endpoint.state));
    json["reason"] = ucpx_lane_reason_string(static_cast<ucpx_lane_reason_t>(endpoint.reason));
    json["state_age_s"] = seconds(worker.filled - endpoint.state_since);
    json["score"] = endpoint.advertised_score + endpoint.remote_score;
    json["local_score"] = endpoint.local_score;
    json["remote_score"] = endpoint.remote_score;
    json["promotions"] = endpoint.promotions;
    json["demotions"] = endpoint.demotions;
    json["denials"] = endpoint.denials;
    return json;
}

Json worker_json(const PageSample& sample, int64_t now) {
    const WorkerRecord& worker = sample.worker;
    Json json{{"name", worker.name},
              {"id", fmt::format("{:016x}", worker.id)},
              {"context", fmt::format("{:016x}", worker.context)},
              {"age_s", seconds(now - worker.filled)},
              {"fills", worker.fills}};
    for (const Figure& figure : kFigures) json[figure.name] = worker.*figure.value;
    json["transports"] = Json::array();
    for (const TransportRecord& transport :
         std::span(worker.transports).first(worker.transport_count)) {
        json["transports"].push_back({{"name", transport.name},
                                      {"device", transport.device},
                                      {"endpoints_made", transport.endpoints_made},
                                      {"retransmissions", transport.retransmissions}});
    }
    json["endpoint_list"] = Json::array();
    for (const EndpointRecord& endpoint : std::span(worker.entries).first(worker.endpoint_count)) {
        json["endpoint_list"].push_back(endpoint_json(worker, endpoint));
    }
    return json;
}

}  // namespace

int64_t monotonic_now() {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string transport_of(const WorkerRecord& worker, uint8_t index) {
    if (index >= worker.transport_count) return {};
    const TransportRecord& transport = worker.transports[index];
    return fmt::format("{}/{}", transport.name, transport.device);
}

Json to_json(std::span<const PageSample> samples, int64_t now) {
    Json processes = Json::array();
    for (const PageSample& sample : samples) {
        if (processes.empty() || processes.back()["pid"] != sample.pid) {
            processes.push_back(
                {{"pid", sample.pid}, {"program", sample.program}, {"workers", Json::array()}});
        }
        processes.back()["workers"].push_back(worker_json(sample, now));
    }
    return {{"version", ucp::stats::kVersion}, {"time_s", seconds(now)}, {"processes", processes}};
}

}  // namespace tools
