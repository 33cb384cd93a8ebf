// SPDX-License-Identifier: BSD-3-Clause

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "tools/top/document.h"

namespace tools {
namespace {

std::string escaped(std::string_view text) {
    std::string result;
    for (const char c : text) {
        if (c == '\\' || c == '"') result += '\\';
        result += c;
    }
    return result;
}

// A process, and one of its workers or contexts.
std::string labels(const PageSample& sample, Figure::Of of) {
    const bool is_worker = of == Figure::Of::kWorker;
    const std::string part = is_worker ? fmt::format("worker=\"{:016x}\",name=\"{}\"",
                                                     sample.worker.id, escaped(sample.worker.name))
                                       : fmt::format("context=\"{:016x}\"", sample.worker.context);
    return fmt::format("pid=\"{}\",program=\"{}\",{}", sample.pid, escaped(sample.program), part);
}

std::string transport_labels(const PageSample& sample, const TransportRecord& transport) {
    return fmt::format("{},transport=\"{}\",device=\"{}\"", labels(sample, Figure::Of::kWorker),
                       escaped(transport.name), escaped(transport.device));
}

void begin(std::string& text, const std::string& name, Figure::Kind kind, const char* help) {
    text += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, help,
                        kind == Figure::Kind::kGauge ? "gauge" : "counter");
}

void add_figure(std::string& text, const Figure& figure, std::span<const PageSample> samples) {
    const char* end = figure.kind == Figure::Kind::kCounter ? "_total" : "";
    const std::string name = fmt::format("swiftlane_{}{}", figure.name, end);
    begin(text, name, figure.kind, figure.help);
    std::set<std::pair<pid_t, uint64_t>> contexts;
    for (const PageSample& sample : samples) {
        if (figure.of == Figure::Of::kContext &&
            !contexts.emplace(sample.pid, sample.worker.context).second)
            continue;
        text += fmt::format("{}{{{}}} {}\n", name, labels(sample, figure.of),
                            sample.worker.*figure.value);
    }
}

template <typename Value>
void add_by_transport(std::string& text, const std::string& name, Figure::Kind kind,
                      const char* help, std::span<const PageSample> samples, Value value) {
    begin(text, name, kind, help);
    for (const PageSample& sample : samples) {
        for (uint32_t index = 0; index < sample.worker.transport_count; ++index) {
            text += fmt::format("{}{{{}}} {}\n", name,
                                transport_labels(sample, sample.worker.transports[index]),
                                value(sample.worker, index));
        }
    }
}

// Of the endpoints in the page whose messages take that transport.
template <typename Value>
auto sum_over_lanes(Value value) {
    return [value](const WorkerRecord& worker, uint32_t index) {
        decltype(value(worker.entries[0])) sum{};
        for (uint32_t i = 0; i < worker.endpoint_count; ++i) {
            if (worker.entries[i].lane == index) sum += value(worker.entries[i]);
        }
        return sum;
    };
}

}  // namespace

std::string exposition(std::span<const PageSample> samples, int64_t now) {
    using Kind = Figure::Kind;
    std::string text;
    for (const Figure& figure : kFigures) add_figure(text, figure, samples);
    const auto add = [&](const char* name, Kind kind, const char* help, auto value) {
        add_by_transport(text, fmt::format("swiftlane_transport_{}", name), kind, help, samples,
                         value);
    };
    add("endpoints_made_total", Kind::kCounter, "Endpoints made on a transport",
        [](const WorkerRecord& worker, uint32_t i) { return worker.transports[i].endpoints_made; });
    add("retransmissions_total", Kind::kCounter, "Packets that a transport has sent again",
        [](const WorkerRecord& worker, uint32_t i) {
            return worker.transports[i].retransmissions;
        });
    add("lanes", Kind::kGauge, "Endpoints whose messages take a transport, of those in the page",
        sum_over_lanes([](const EndpointRecord&) { return uint64_t{1}; }));
    add("messages_per_second", Kind::kGauge,
        "Messages sent on a transport, as far as they are sampled",
        sum_over_lanes([](const EndpointRecord& record) { return record.messages_per_second; }));
    add("bytes_per_second", Kind::kGauge, "Bytes sent on a transport, as far as they are sampled",
        sum_over_lanes([](const EndpointRecord& record) { return record.bytes_per_second; }));
    add("waiting", Kind::kGauge,
        "Requests that wait in the send queues of endpoints, of those in the page",
        sum_over_lanes([](const EndpointRecord& record) { return uint64_t{record.waiting}; }));
    begin(text, "swiftlane_age_seconds", Kind::kGauge, "Since a worker has last shown its figures");
    for (const PageSample& sample : samples) {
        const int64_t age = std::max<int64_t>(now - sample.worker.filled, 0);
        text += fmt::format("swiftlane_age_seconds{{{}}} {}\n", labels(sample, Figure::Of::kWorker),
                            static_cast<double>(age) * 1e-9);
    }
    return text;
}

}  // namespace tools
