// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string_view>

#include "tools/common/help.h"
#include "tools/common/interrupt.h"
#include "tools/common/program_output.h"
#include "tools/manual/pages.h"
#include "tools/program/bench_options.h"
#include "tools/report/result.h"
#include "tools/sim/replay.h"
#include "tools/sim/study.h"
#include "uct/api/module.h"
#include "uct/ib/component.h"

namespace tools {
namespace {

// UCX_DYNAMIC_TL_SWITCH_INTERVAL's default, nanoseconds.
constexpr int64_t kShippedInterval = 100'000'000;

struct SimCommand {
    StudyOptions study;
    std::vector<std::string> model;
    std::vector<std::string> settings;
    std::string json;
    bool map = false;
    std::string seeds;
    unsigned jobs = 1;
};

// "NAME=VALUE", split.
std::pair<std::string, std::string> split_setting(const std::string& option,
                                                  const std::string& text) {
    const size_t equals = text.find('=');
    if (equals == 0 || equals == text.npos) {
        throw CLI::ValidationError(option, fmt::format("'{}' is not NAME=VALUE", text));
    }
    return {text.substr(0, equals), text.substr(equals + 1)};
}

void set_model_field(softhca::Model& model, const std::string& text) {
    const auto [name, value] = split_setting("--model", text);
    bool found = false;
    softhca::Model::for_each(
        model, [&, name = name, value = value](std::string_view field, double& current) {
            if (field != name) return;
            found = true;
            try {
                size_t used = 0;
                current = std::stod(value, &used);
                if (used == value.size() && current >= 0) return;
            } catch (const std::exception&) {
            }
            throw CLI::ValidationError("--model", fmt::format("'{}' is no number", value));
        });
    if (found) return;
    std::string names;
    softhca::Model::for_each(
        model, [&](std::string_view field, double&) { names += fmt::format(" {}", field); });
    throw CLI::ValidationError("--model", fmt::format("no field '{}'; there are{}", name, names));
}

void run_sim(SimCommand& command) {
    StudyOptions& study = command.study;
    const BenchOptions& bench = study.bench;
    study.zipf.flow = study.shift.flow =
        study.streams.flow = {bench.size_max, bench.window, bench.seed, bench.verify, study.rate};
    study.zipf.time = study.shift.time = study.halo.time = study.streams.time = bench.time;
    study.shift.hot = study.cap;
    study.halo.size = bench.size_max;
    study.halo.seed = bench.seed;
    if (!study.replay.path.empty()) {
        study.replay.trace = load_trace(study.replay.path);
        study.bench.ranks = static_cast<unsigned>(study.replay.trace.ranks.size());
        study.bench.size_min = study.bench.size_max = study.replay.trace.largest;
    }
    if (study.shipped) study.interval = kShippedInterval;
    check_options(study.bench, study.pattern->ranks.in_pairs);
    for (const std::string& field : command.model) set_model_field(study.model, field);
    for (const std::string& setting : command.settings) {
        study.variables.push_back(split_setting("--set", setting));
    }

    JsonFile json(command.json);
    fmt::print("{}", study_title(study));
    std::fflush(stdout);
    const bool live = isatty(STDERR_FILENO) != 0;
    std::vector<StudyRun> runs;
    for (const std::string& mode : study.modes) {
        if (live) fmt::print(stderr, "\r\033[Ksimulating {} ...", mode);
        std::vector<WeightedLink> traffic;
        if (mode == kOracle)
            traffic = (runs.empty() ? run_mode(study, "scalable") : runs.back()).traffic;
        runs.push_back(run_mode(study, mode, traffic));
    }
    if (live) fmt::print(stderr, "\r\033[K");
    fmt::print("{}", study_text(study, runs));
    for (const StudyRun& run : runs) {
        if (command.map) fmt::print("{}", lane_map(run.result));
    }
    if (json.is_wanted()) json.write(study_json(study, runs));
}

void run_all(SimCommand& command) {
    if (command.seeds.empty()) return run_sim(command);
    const unsigned failures =
        run_seeds(parse_seeds(command.seeds), command.jobs, [&command](uint64_t seed) {
            SimCommand one = command;
            one.study.bench.seed = seed;
            if (!one.json.empty()) one.json += fmt::format(".{}", seed);
            run_sim(one);
        });
    if (failures != 0) throw std::runtime_error(fmt::format("{} seeds failed", failures));
}

void add_study_options(CLI::App& app, SimCommand& command) {
    StudyOptions& study = command.study;
    app.add_option("--lanes", study.modes, "Kinds of run, one after the other")
        ->delimiter(',')
        ->check(CLI::IsMember({"dynamic", "scalable", "dedicated", kOracle}));
    app.add_option("--cap", study.cap, "Dedicated lanes a rank may hold (UCX_MAX_PRIORITY_EPS)");
    add_time(app, "--interval", study.interval,
             "Between rankings (UCX_DYNAMIC_TL_SWITCH_INTERVAL)");
    app.add_flag("--shipped,!--scaled", study.shipped,
                 "Sample and rank with the library's defaults, every 100 ms of virtual time, "
                 "whatever --interval says; or scaled to --interval");
    app.add_option("--margin", study.margin, "Hysteresis (UCX_DYNAMIC_TL_MARGIN)")
        ->check(CLI::Range(0.0, 10.0));
    app.add_option("--dc-cost-scale", study.dc_cost_scale,
                   "Multiplies what DC costs more than RC in the model")
        ->check(CLI::PositiveNumber);
    app.add_option("--model", command.model,
                   "Set a field of the adapter model (docs/design/softhca.md)")
        ->type_name("NAME=VALUE")
        ->default_str("");
    app.add_option("--set", command.settings, "Set a UCX_ variable for all ranks")
        ->type_name("NAME=VALUE")
        ->default_str("");
    app.add_option("--json", command.json, "Write the results there")->type_name("FILE");
    app.add_option("--seeds", command.seeds,
                   "Run once for each of so many seeds; --json FILE becomes FILE.SEED")
        ->type_name("FIRST:COUNT");
    app.add_option("--jobs", command.jobs, "Processes that --seeds uses at a time")
        ->check(CLI::Range(1, 1024));
    app.add_flag("--map", command.map, "Print every endpoint's lane as well");
}

void add_window(CLI::App& app, StudyOptions& study) {
    app.add_option("--window", study.bench.window, "Messages in flight of each rank")
        ->check(CLI::PositiveNumber);
}

// What all flows of messages take.
void add_flow_options(CLI::App& app, StudyOptions& study) {
    add_window(app, study);
    app.add_option("--rate", study.rate, "Messages a second of each rank; 0: as many as it can")
        ->check(CLI::NonNegativeNumber);
}

void add_bulk_options(CLI::App& app, StudyOptions& study) {
    study.modes = {"scalable", "dedicated"};
    app.add_option("--devices", study.devices, "Adapters of each rank, its rails")
        ->check(CLI::Range(1, 4));
}

void add_zipf_options(CLI::App& app, StudyOptions& study) {
    add_flow_options(app, study);
    app.add_option("--peers", study.zipf.peers, "Peers of each rank; 0: all others");
    app.add_option("--exponent", study.zipf.exponent,
                   "The k-th hottest peer gets k^-exponent of what the hottest gets")
        ->check(CLI::Range(0.0, 10.0));
}

void add_shift_options(CLI::App& app, StudyOptions& study) {
    add_flow_options(app, study);
    app.add_option("--phases", study.shift.phases, "Hot sets, each for --time")
        ->check(CLI::Range(2, 1000));
    app.add_option("--background", study.shift.background,
                   "Part of the messages that goes to the peers that are not hot")
        ->check(CLI::Range(0.0, 0.9));
}

void add_halo_options(CLI::App& app, StudyOptions& study) {
    study.modes = {"dynamic"};
    study.cap = 20;
    app.add_option("--rate", study.halo.rate, "Exchanges of neighbours a second")
        ->check(CLI::PositiveNumber);
    app.add_option("--distance", study.halo.distance,
                   "Of the farthest neighbour; those at distance d take part in each d-th exchange")
        ->check(CLI::PositiveNumber);
}

void add_bulk_halo_options(CLI::App& app, StudyOptions& study) {
    add_halo_options(app, study);
    app.add_option("--bulk-size", study.halo.bulk_size, "Bytes of a large message")
        ->check(CLI::PositiveNumber);
    app.add_option("--bulk-rate", study.halo.bulk_rate, "Large messages a second")
        ->check(CLI::PositiveNumber);
}

void add_phase_options(CLI::App& app, StudyOptions& study) {
    add_halo_options(app, study);
    app.add_option("--phases", study.halo.phases, "Stretches of exchanges, each for --time")
        ->check(CLI::Range(1, 100000));
    add_time(app, "--compute-min", study.halo.compute_min, "Least time of computing before each");
    add_time(app, "--compute-max", study.halo.compute_max, "Most time of computing before each");
}

void add_churn_options(CLI::App& app, StudyOptions& study) {
    add_flow_options(app, study);
    app.add_option("--rounds", study.streams.rounds, "Endpoints that a rank makes and closes")
        ->check(CLI::PositiveNumber);
}

void add_sleeper_options(CLI::App& app, StudyOptions& study) {
    add_window(app, study);
    study.cap = 1;
    app.add_option("--rate", study.streams.rate, "Messages a second to each neighbour")
        ->check(CLI::PositiveNumber);
    app.add_option("--stride", study.streams.stride, "Each so-many-th rank computes mostly")
        ->check(CLI::Range(2, 1000));
    app.add_option("--quiet", study.streams.quiet, "Messages to a neighbour while it computes")
        ->check(CLI::PositiveNumber);
    add_time(app, "--awake", study.streams.awake, "Time between that it sends as the others do");
    add_time(app, "--sleep", study.streams.sleep, "Time that it computes at a stretch");
}

void add_replay_options(CLI::App& app, StudyOptions& study) {
    app.add_option("--trace", study.replay.path,
                   "What each rank does (docs/benchmarks.md); their number is the file's")
        ->type_name("FILE")
        ->required();
}

// A program of ranks with the part of the options that it takes.
template <auto kProgram, auto kOptions>
Task run(Rank& rank, const StudyOptions& study) {
    return kProgram(rank, study.*kOptions);
}

// Times in nanoseconds.
const BenchOptions kPairs{
    .ranks = 64, .size_min = 8, .size_max = 512, .time = 500'000, .settle = 4'000'000};
const BenchOptions kBlocks{.ranks = 2,
                           .window = 2,
                           .size_min = 1 << 20,
                           .size_max = 64 << 20,
                           .warmup = 2,
                           .time = 4'000'000,
                           .settle = 4'000'000};
// An interval must see several exchanges, each of which takes far longer than a window of pairs.
const BenchOptions kExchange{
    .ranks = 64, .size_min = 8, .size_max = 512, .time = 3'000'000, .settle = 30'000'000};
constexpr int64_t kExchangeInterval = 2'000'000;
const BenchOptions kFlows{
    .ranks = 64, .window = 16, .size_min = 64, .size_max = 64, .time = 8'000'000};
const BenchOptions kBeside{.ranks = 3, .size_min = 8, .size_max = 8, .time = 1'000'000'000};
const BenchOptions kPhases{.ranks = 16, .size_min = 8, .size_max = 8, .time = 1'000'000'000};
const BenchOptions kStreams{
    .ranks = 16, .window = 16, .size_min = 64, .size_max = 64, .time = 8'000'000};
const BenchOptions kSleepy{
    .ranks = 6, .window = 16, .size_min = 8, .size_max = 8, .time = 33'000'000'000};
const BenchOptions kMoving{
    .ranks = 64, .window = 64, .size_min = 64, .size_max = 64, .time = 8'000'000};

using Judgement = StudyPattern::Judgement;

// One entry for each benchmark.
const StudyPattern kPatterns[] = {
    {{"mbw_mr", "Multi-pair bandwidth and message rate", run<mbw_mr, &StudyOptions::bench>, true},
     Judgement::kNone,
     kPairs,
     nullptr},
    {{"bulk", "Large messages between pairs, over many queue pairs and rails",
      run<mbw_mr, &StudyOptions::bench>, true},
     Judgement::kAdapters,
     kBlocks,
     add_bulk_options},
    {{"alltoall", "All-to-all exchange", run<alltoall, &StudyOptions::bench>, false, true},
     Judgement::kNone,
     kExchange,
     nullptr,
     kExchangeInterval},
    {{"zipf", "Peers of heavy-tailed heat", run<zipf, &StudyOptions::zipf>},
     Judgement::kMatching,
     kFlows,
     add_zipf_options},
    {{"shift", "A hot set that moves", run<shift, &StudyOptions::shift>},
     Judgement::kRecovery,
     kMoving,
     add_shift_options},
    {{"halo", "Neighbours that exchange small messages, beside streams of large ones",
      run<halo, &StudyOptions::halo>},
     Judgement::kPromotions,
     kBeside,
     add_bulk_halo_options,
     kShippedInterval,
     true},
    {{"ring", "All send to their right neighbours", run<ring, &StudyOptions::streams>},
     Judgement::kPromotions,
     kStreams,
     add_flow_options},
    {{"incast", "All send to one", run<incast, &StudyOptions::streams>},
     Judgement::kPromotions,
     kStreams,
     add_flow_options},
    {{"churn", "Endpoints that are made, used and closed", run<churn, &StudyOptions::streams>},
     Judgement::kPromotions,
     kStreams,
     add_churn_options},
    {{"sleepers", "Short messages to neighbours some of whom compute",
      run<sleepers, &StudyOptions::streams>},
     Judgement::kPromotions,
     kSleepy,
     add_sleeper_options,
     kShippedInterval,
     true},
    {{"replay", "A program's messages and computing, from a file",
      run<replay, &StudyOptions::replay>},
     Judgement::kPromotions,
     kStreams,
     add_replay_options,
     kShippedInterval,
     true},
    {{"phases", "Neighbours that compute between stretches of exchanges",
      run<phases, &StudyOptions::halo>},
     Judgement::kPromotions,
     kPhases,
     add_phase_options,
     kShippedInterval,
     true},
};

void add_study(CLI::App& sim, const StudyPattern& pattern) {
    auto command = std::make_shared<SimCommand>();
    StudyOptions& study = command->study;
    study.pattern = &pattern;
    study.bench = pattern.defaults;
    study.interval = pattern.interval;
    study.shipped = pattern.shipped;
    study.model = softhca::Model::from_environment();
    CLI::App& app =
        *sim.add_subcommand(std::string(pattern.ranks.name), std::string(pattern.ranks.help));
    add_common_options(app, study.bench);
    if (pattern.ranks.in_pairs) add_pair_options(app, study.bench);
    if (pattern.add_options != nullptr) pattern.add_options(app, study);
    add_study_options(app, *command);
    app.callback([command] { run_all(*command); });
}

int sim_main(int argc, char** argv) {
    uct::add_component(uct::ib::component());
    CLI::App app{"Benchmarks with many ranks in one process, on modelled adapters and time",
                 "swiftlane sim"};
    app.require_subcommand(1);
    app.option_defaults()->always_capture_default();
    app.failure_message([](const CLI::App*, const CLI::Error& error) {
        return fmt::format("swiftlane: {}\nRun with --help for more information.\n", error.what());
    });
    for (const StudyPattern& pattern : kPatterns) add_study(app, pattern);
    const std::string_view asked = argc == 2 ? argv[1] : "";
    if (asked == kSayManual || asked == kSayCompletion) {
        fmt::print("{}", asked == kSayManual ? command_page(app, "swiftlane-sim")
                                             : completion_cases(app, "sim"));
        return kDone;
    }
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return tell_misuse(app, error, {argv + 1, argv + argc});
    } catch (const std::exception& error) {
        std::fflush(stdout);
        fmt::print(stderr, "swiftlane: {}\n", error.what());
        std::fflush(nullptr);
        _exit(kFailed);
    }
    return kDone;
}

}  // namespace
}  // namespace tools

// What is thrown before the commands are known ends the program.
int main(int argc, char** argv) {  // NOLINT(bugprone-exception-escape)
    return tools::sim_main(argc, argv);
}
