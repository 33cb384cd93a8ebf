// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "softhca/model/model.h"
#include "tools/program/flow.h"
#include "tools/program/patterns.h"
#include "tools/report/json.h"
#include "tools/report/result.h"
#include "tools/sim/matching.h"
#include "tools/sim/replay.h"

namespace CLI {
class App;
}  // namespace CLI

namespace tools {

struct StudyOptions;

// A benchmark of `swiftlane sim`.
struct StudyPattern {
    Pattern<StudyOptions> ranks;
    // What is said of it beyond rates and switches.
    enum class Judgement { kNone, kAdapters, kMatching, kRecovery, kPromotions } judgement;
    BenchOptions defaults;
    void (*add_options)(CLI::App& app, StudyOptions& options);  // of its own; null: none
    int64_t interval = 200'000;
    bool shipped = false;  // with the library's defaults: interval, residence, duty, confidence
};

// What a simulation is asked for.
struct StudyOptions {
    using Judgement = StudyPattern::Judgement;
    bool judges(Judgement judgement) const { return pattern->judgement == judgement; }

    const StudyPattern* pattern = nullptr;
    BenchOptions bench;
    ZipfOptions zipf;
    ShiftOptions shift;
    HaloOptions halo;
    StreamOptions streams;
    ReplayOptions replay;
    std::vector<std::string> modes{"scalable", "dedicated", "dynamic"};
    unsigned cap = 4;
    double rate = 0;             // of flows: messages a second of each rank; 0: as many as it can
    unsigned devices = 1;        // adapters of each rank's node
    int64_t interval = 200'000;  // nanoseconds between the library's rankings
    bool shipped = false;        // the library's defaults for all that is measured and when
    double dc_cost_scale = 1;
    double margin = 0.2;
    softhca::Model model;
    std::vector<std::pair<std::string, std::string>> variables;  // UCX_*, as the user gave them
};

// After each move of the hot set: sampling intervals until the rate is back to 0.95 of what it was
// before (1: it fell for less than one, or not at all); nothing if it never was.
struct Recovery {
    double rate_before = 0;  // messages per second
    std::optional<unsigned> intervals;
};

// Which of the links in use are promoted at the end.
struct Promotions {
    unsigned links = 0;
    unsigned promoted = 0;
    uint64_t demotions = 0;       // ends of links that left a dedicated lane
    uint64_t later_switches = 0;  // phases: ends that took or left one after the second phase
};

// One mode's simulation, with what only an observer of the whole cluster can see. Times are virtual
// nanoseconds.
struct StudyRun {
    RunResult result;
    int64_t duration = 0;
    uint64_t messages = 0;       // delivered
    uint64_t switches = 0;       // ends of links that took or left a dedicated lane
    uint64_t late_switches = 0;  // of these, in the second half (shift: of a phase)
    int64_t settled = 0;         // time of the last switch of the first half (shift: phase)
    unsigned cap = 0;
    unsigned peak = 0;       // most dedicated lanes that any node ever held
    int64_t stall = 0;       // longest gap between deliveries on a link across a switch
    int64_t steady_gap = 0;  // longest on the same links otherwise
    double typical_gap = 0;  // mean on the same links
    double dedicated = 0;    // part of what lanes could save that went over dedicated lanes
    int64_t completion = 0;  // sleepers: longest local completion of a message
    std::optional<MatchingReport> matching;  // zipf, dynamic
    std::vector<Recovery> recoveries;        // shift
    std::optional<Promotions> promotions;    // halo, phases; dynamic
    // What lanes could save on each link that was used: bytes, a message counted as a slice's.
    std::vector<WeightedLink> traffic;
    uint64_t doorbells = 0, work_requests = 0, bytes = 0;  // of all adapters
    std::vector<uint64_t> timeline;                        // messages delivered in each interval
    int64_t interval = 0;
};

// With UCX_LANES as the mode says; or as kOracle, for which `traffic` must be known from a run of
// another mode.
StudyRun run_mode(const StudyOptions& options, const std::string& mode,
                  const std::vector<WeightedLink>& traffic = {});

// A mode: lanes are dynamic, but the links of a greedy matching of the whole run's traffic have the
// lanes, from the start to the end.
inline constexpr const char* kOracle = "oracle";

// What was run, as a heading.
std::string study_title(const StudyOptions& options);

// Rates of all modes, then what the observer saw of each, then the dynamic run's special tables.
std::string study_text(const StudyOptions& options, std::span<const StudyRun> runs);

Json study_json(const StudyOptions& options, std::span<const StudyRun> runs);

// FIRST:COUNT
struct SeedRange {
    uint64_t first = 1;
    uint64_t count = 1;
};

// Throws std::invalid_argument.
SeedRange parse_seeds(const std::string& text);

// Call run(seed) for each seed, each in a process of its own, at most `jobs` at a time. What they
// print comes out seed by seed. A seed fails if run() throws or its process dies.
// @return how many seeds failed; they are named at the end
unsigned run_seeds(const SeedRange& seeds, unsigned jobs,
                   const std::function<void(uint64_t seed)>& run);

}  // namespace tools
