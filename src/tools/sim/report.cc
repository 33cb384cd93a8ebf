// SPDX-License-Identifier: BSD-3-Clause
#include "tools/sim/study.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "tools/common/units.h"
#include "tools/report/result.h"

namespace tools {
namespace {

using Out = std::back_insert_iterator<std::string>;

std::string time_text(int64_t nanoseconds) {
    return format_time(static_cast<double>(nanoseconds));
}

void write_observations(Out out, const StudyOptions& options, const StudyRun& run) {
    const auto& counters = run.result.counters.values;
    fmt::format_to(out, "\n# {} (modelled)\n", run.result.mode);
    for (size_t index = 0; index < counters.size(); ++index) {
        fmt::format_to(out, "{:<22}{:>12}{}\n", kLaneCounters[index].name, counters[index],
                       index == 0 ? "   counted at each end of a link" : "");
    }
    const char* part =
        options.judges(StudyOptions::Judgement::kRecovery) ? "of each phase" : "of the run";
    fmt::format_to(out, "time to settle        {:>12}   last switch in the first half {}\n",
                   time_text(run.settled), part);
    fmt::format_to(out, "late switches         {:>12}   in the second half {}\n", run.late_switches,
                   part);
    fmt::format_to(out, "most dedicated lanes  {:>12}   of any node at any time; cap {}\n",
                   run.peak, run.cap);
    fmt::format_to(out, "over dedicated lanes  {:>12.4f}   of what they could save\n",
                   run.dedicated);
    fmt::format_to(out,
                   "stall of a switch     {:>12}   longest gap between two deliveries of a link\n",
                   time_text(run.stall));
    fmt::format_to(out, "other gaps            {:>12}   longest on those links; mean {}\n",
                   time_text(run.steady_gap), format_time(run.typical_gap));
}

// What the adapters were asked for, per 64 KiB that they moved.
void write_adapters(Out out, const StudyRun& run) {
    const double slices = std::max(static_cast<double>(run.bytes) / 65536, 1.0);
    fmt::format_to(out, "\n# {} (modelled), all adapters\n", run.result.mode);
    fmt::format_to(out, "doorbells             {:>12}   {:.4f} for each 64 KiB\n", run.doorbells,
                   static_cast<double>(run.doorbells) / slices);
    fmt::format_to(out, "work requests         {:>12}   {:.4f} for each 64 KiB\n",
                   run.work_requests, static_cast<double>(run.work_requests) / slices);
    fmt::format_to(out, "bytes                 {:>12}\n", run.bytes);
}

void write_matching(Out out, const StudyOptions& options, const MatchingReport& matching) {
    fmt::format_to(out, "\n# Admitted links against a greedy b-matching of the measured traffic\n");
    fmt::format_to(out, "links admitted        {:>12}   greedy {}\n", matching.admitted,
                   matching.greedy);
    fmt::format_to(out, "weight                {:>12.4f}   of the greedy one's\n",
                   matching.ratio());
    fmt::format_to(out, "links that differ     {:>12}\n", matching.differing);
    fmt::format_to(out, "outside the margin    {:>12}   of {}\n", matching.unexplained.size(),
                   options.margin);
    for (const WeightedLink& link : matching.unexplained) {
        fmt::format_to(out, "    {} - {}: {} messages\n", link.a, link.b, link.weight);
    }
}

void write_recoveries(Out out, const StudyRun& run) {
    fmt::format_to(out, "\n# {}: intervals until 0.95 of the rate before the hot set moved\n",
                   run.result.mode);
    for (size_t i = 0; i < run.recoveries.size(); ++i) {
        const Recovery& recovery = run.recoveries[i];
        fmt::format_to(out, "move {:<4}{:>12}   rate before {:.0f}/s\n", i + 1,
                       recovery.intervals ? std::to_string(*recovery.intervals) : "never",
                       recovery.rate_before);
    }
}

void write_promotions(Out out, const StudyRun& run) {
    const Promotions& promotions = *run.promotions;
    fmt::format_to(out, "\n# {}: links that carried messages\n", run.result.mode);
    fmt::format_to(out, "promoted at the end   {:>12}   of {}\n", promotions.promoted,
                   promotions.links);
    fmt::format_to(out, "demotions             {:>12}   counted at each end\n",
                   promotions.demotions);
    fmt::format_to(out, "switches after phase 2{:>12}\n", promotions.later_switches);
    if (run.completion != 0) {
        fmt::format_to(out, "longest local completion {:>9}   of a message\n",
                       time_text(run.completion));
    }
}

// Of all runs, where the work is the same in each.
void write_job_times(Out out, std::span<const StudyRun> runs) {
    fmt::format_to(out, "\n# time of the job (modelled)\n");
    const auto oracle = std::ranges::find(
        runs, kOracle, [](const StudyRun& run) { return std::string_view(run.result.mode); });
    for (const StudyRun& run : runs) {
        fmt::format_to(out, "{:<22}{:>12}", run.result.mode, time_text(run.duration));
        if (oracle != runs.end()) {
            fmt::format_to(
                out, "   {:.4f} of the oracle's",
                static_cast<double>(run.duration) / static_cast<double>(oracle->duration));
        }
        fmt::format_to(out, "\n");
    }
}

Json run_json(const StudyRun& run) {
    Json json{{"duration_ns", run.duration},
              {"messages", run.messages},
              {"switches", run.switches},
              {"late_switches", run.late_switches},
              {"settled_ns", run.settled},
              {"cap", run.cap},
              {"peak", run.peak},
              {"dedicated", run.dedicated},
              {"stall_ns", run.stall},
              {"steady_gap_ns", run.steady_gap},
              {"typical_gap_ns", run.typical_gap},
              {"longest_completion_ns", run.completion},
              {"doorbells", run.doorbells},
              {"work_requests", run.work_requests},
              {"adapter_bytes", run.bytes}};
    if (run.matching) {
        const MatchingReport& matching = *run.matching;
        json["matching"] = {{"admitted", matching.admitted},
                            {"greedy", matching.greedy},
                            {"weight", matching.weight},
                            {"greedy_weight", matching.greedy_weight},
                            {"ratio", matching.ratio()},
                            {"differing", matching.differing},
                            {"outside_margin", matching.unexplained.size()}};
    }
    if (run.promotions) {
        json["promotions"] = {{"links", run.promotions->links},
                              {"promoted", run.promotions->promoted},
                              {"demotions", run.promotions->demotions},
                              {"after_second_phase", run.promotions->later_switches}};
    }
    if (!run.recoveries.empty()) {
        json["recoveries"] = Json::array();
        for (const Recovery& recovery : run.recoveries) {
            Json entry{{"rate_before", recovery.rate_before}, {"intervals", nullptr}};
            if (recovery.intervals) entry["intervals"] = *recovery.intervals;
            json["recoveries"].push_back(std::move(entry));
        }
        json["timeline"] = run.timeline;
    }
    return json;
}

std::vector<RunResult> results_of(std::span<const StudyRun> runs) {
    std::vector<RunResult> results;
    for (const StudyRun& run : runs) results.push_back(run.result);
    return results;
}

}  // namespace

std::string study_title(const StudyOptions& options) {
    return fmt::format(
        "# swiftlane sim {}: {} ranks, cap {}, seed {}, DC costs x {}; modelled: "
        "rates and times follow from the adapter model, not from hardware\n",
        options.pattern->ranks.name, options.bench.ranks, options.cap, options.bench.seed,
        options.dc_cost_scale);
}

std::string study_text(const StudyOptions& options, std::span<const StudyRun> runs) {
    std::string text;
    const Out out = std::back_inserter(text);
    const bool latency = options.pattern->ranks.exchanges;
    for (const StudyRun& run : runs) {
        fmt::format_to(out, "\n# {} (modelled)\n{}", run.result.mode, row_header(latency));
        for (const Row& row : run.result.rows) text += row_line(row, latency);
    }
    text += comparison(results_of(runs));
    if (options.judges(StudyOptions::Judgement::kPromotions)) write_job_times(out, runs);
    for (const StudyRun& run : runs) {
        if (run.switches != 0 || run.result.mode == "dynamic") {
            write_observations(out, options, run);
        }
        if (options.judges(StudyOptions::Judgement::kAdapters)) write_adapters(out, run);
        if (run.matching) write_matching(out, options, *run.matching);
        if (!run.recoveries.empty()) write_recoveries(out, run);
        if (run.promotions) write_promotions(out, run);
    }
    return text;
}

Json study_json(const StudyOptions& options, std::span<const StudyRun> runs) {
    Json document{{"benchmark", options.pattern->ranks.name},
                  {"modelled", true},
                  {"version", SWIFTLANE_VERSION},
                  {"options", to_json(options.bench)}};
    Json& json = document["options"];
    json["cap"] = options.cap;
    json["interval_ns"] = options.interval;
    json["shipped_defaults"] = options.shipped;
    json["dc_cost_scale"] = options.dc_cost_scale;
    json["margin"] = options.margin;
    Json& model = document["model"];
    softhca::Model::for_each(options.model,
                             [&model](const char* name, double value) { model[name] = value; });
    add_runs(document, results_of(runs));
    for (const StudyRun& run : runs) {
        document["modes"][run.result.mode]["observed"] = run_json(run);
    }
    return document;
}

}  // namespace tools
