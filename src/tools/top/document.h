// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tools/report/json.h"
#include "ucp/stats/page.h"
#include "ucp/stats/page_reader.h"

namespace tools {

// CLOCK_MONOTONIC in nanoseconds: what pages are dated by.
int64_t monotonic_now();

// "rc_mlx5/mlx5_0:1"; empty for kNoTransport.
std::string transport_of(const ucp::stats::WorkerRecord& worker, uint8_t index);

// All that the pages say; docs/observability.md describes the keys.
Json to_json(std::span<const ucp::stats::PageSample> samples, int64_t now);

// Of the pages that every output shows.
using ucp::stats::EndpointRecord;
using ucp::stats::PageSample;
using ucp::stats::TransportRecord;
using ucp::stats::WorkerRecord;

// A number of a worker's page as all outputs show it.
struct Figure {
    enum class Kind : uint8_t { kGauge, kCounter };
    // Workers of one context share their registered memory.
    enum class Of : uint8_t { kWorker, kContext };

    const char* name;
    uint64_t WorkerRecord::*value;
    Kind kind;
    Of of;
    const char* help;
};

inline constexpr Figure kFigures[] = {
    {"endpoints", &WorkerRecord::endpoints, Figure::Kind::kGauge, Figure::Of::kWorker,
     "Endpoints, those of the library's own included"},
    {"links", &WorkerRecord::links, Figure::Kind::kGauge, Figure::Of::kWorker,
     "Endpoints that take part in the selection of lanes now"},
    {"cap", &WorkerRecord::cap, Figure::Kind::kGauge, Figure::Of::kWorker,
     "Dedicated lanes allowed at a time"},
    {"dedicated", &WorkerRecord::dedicated, Figure::Kind::kGauge, Figure::Of::kWorker,
     "Dedicated lanes held, those coming up and going down included"},
    {"dedicated_peak", &WorkerRecord::dedicated_peak, Figure::Kind::kGauge, Figure::Of::kWorker,
     "Dedicated lanes ever held at a time"},
    {"promotions", &WorkerRecord::promotions, Figure::Kind::kCounter, Figure::Of::kWorker,
     "Dedicated lanes that were established"},
    {"demotions", &WorkerRecord::demotions, Figure::Kind::kCounter, Figure::Of::kWorker,
     "Dedicated lanes that were given up, other than by failure"},
    {"failures", &WorkerRecord::failures, Figure::Kind::kCounter, Figure::Of::kWorker,
     "Dedicated lanes that failed under traffic"},
    {"requests", &WorkerRecord::requests, Figure::Kind::kCounter, Figure::Of::kWorker,
     "Requests for a dedicated lane that were sent to peers"},
    {"denials", &WorkerRecord::denials_received, Figure::Kind::kCounter, Figure::Of::kWorker,
     "Own requests that peers denied"},
    {"denials_sent", &WorkerRecord::denials_sent, Figure::Kind::kCounter, Figure::Of::kWorker,
     "Requests of peers that were denied"},
    {"withdrawals", &WorkerRecord::withdrawals, Figure::Kind::kCounter, Figure::Of::kWorker,
     "Own requests that were taken back"},
    {"violations", &WorkerRecord::violations, Figure::Kind::kCounter, Figure::Of::kWorker,
     "Messages that no correct peer sends, dropped"},
    {"replays", &WorkerRecord::replays, Figure::Kind::kCounter, Figure::Of::kWorker,
     "Operations that waited on one lane and were sent on the other"},
    {"held", &WorkerRecord::held_messages, Figure::Kind::kCounter, Figure::Of::kWorker,
     "Messages that came early on a dedicated lane and were held back"},
    {"windows", &WorkerRecord::windows, Figure::Kind::kCounter, Figure::Of::kWorker,
     "Windows in which sends were sampled"},
    {"samples", &WorkerRecord::samples, Figure::Kind::kCounter, Figure::Of::kWorker,
     "Operations counted in those windows"},
    {"regions", &WorkerRecord::regions, Figure::Kind::kGauge, Figure::Of::kContext,
     "Memory regions that peers may access"},
    {"region_bytes", &WorkerRecord::region_bytes, Figure::Kind::kGauge, Figure::Of::kContext,
     "Bytes of the memory regions that peers may access"},
    {"cached_regions", &WorkerRecord::cached_regions, Figure::Kind::kGauge, Figure::Of::kContext,
     "Registrations that are kept for later operations"},
    {"cached_bytes", &WorkerRecord::cached_bytes, Figure::Kind::kGauge, Figure::Of::kContext,
     "Bytes of the registrations that are kept for later operations"},
    {"registrations_made", &WorkerRecord::registrations_made, Figure::Kind::kCounter,
     Figure::Of::kContext, "Registrations that were made, to be kept"},
    {"registrations_found", &WorkerRecord::registrations_found, Figure::Kind::kCounter,
     Figure::Of::kContext, "Operations that found their memory registered"},
};

// The pages in Prometheus's text format, version 0.0.4.
std::string exposition(std::span<const ucp::stats::PageSample> samples, int64_t now);

// What people read: a line for each worker, and below it those of its endpoints.
// @param endpoints  of each worker, at most
std::vector<std::string> screen_lines(std::span<const ucp::stats::PageSample> samples, int64_t now,
                                      size_t endpoints);

}  // namespace tools
