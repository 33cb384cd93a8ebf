// SPDX-License-Identifier: BSD-3-Clause
#include "tools/commands.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>

#include "tools/bench/job.h"
#include "tools/common/device_memory.h"
#include "tools/common/interrupt.h"
#include "tools/common/live_line.h"
#include "tools/common/process.h"
#include "tools/common/soft_adapter.h"
#include "tools/program/bench_options.h"
#include "tools/program/patterns.h"
#include "tools/report/json.h"
#include "tools/report/result.h"

namespace tools {
namespace {

struct BenchCommand {
    const Pattern<BenchOptions>* pattern = nullptr;
    BenchOptions options{.time = 500'000'000, .settle = 1'000'000'000};
    std::vector<std::string> modes{"dynamic"};
    std::string device = "auto";
    std::string transports = "self,dc_mlx5,rc_mlx5";
    std::string memory = "host";
    std::string json;
    std::string prefix;
    bool pin = false;
};

LaunchSettings settings_for(const BenchCommand& command, const std::string& mode) {
    LaunchSettings settings;
    settings.exec.pin = command.pin;
    settings.exec.prefix = command.prefix;
    settings.exec.environment = library_environment(command.device == "soft", command.transports);
    settings.exec.environment.emplace_back("UCX_LANES", mode);
    return settings;
}

RunResult run_mode(const BenchCommand& command, const std::string& mode) {
    const bool latency = command.pattern->exchanges;
    const BenchOptions& options = command.options;
    std::string title =
        fmt::format("# swiftlane bench {}: {} ranks", command.pattern->name, options.ranks);
    if (!latency) {
        title += fmt::format(", {} pairs, window {}", options.hot_pairs(), options.window);
        if (options.unused != 0) title += fmt::format(", {} unused", options.unused);
        if (options.unused != 0 && options.trickle != 0) {
            title += fmt::format(", trickle 1 in {}", options.trickle);
        }
    }
    fmt::print("{}, lanes {}{}\n{}{}", title, mode, options.verify ? ", payloads verified" : "",
               command.device == "soft" ? kEmulatedNote : "", row_header(latency));
    std::fflush(stdout);

    const LiveLine line;
    size_t rows = 0;
    const size_t sizes = options.sizes().size();
    LaunchSettings settings = settings_for(command, mode);
    settings.on_row = [&](const Row& row) {
        line.clear();
        ++rows;
        fmt::print("{}", row_line(row, latency));
        std::fflush(stdout);
    };
    if (line.enabled()) {
        settings.on_progress = [&](double rate) {
            line.show(fmt::format("{}: size {} of {}, {:.0f} messages/s", mode,
                                  std::min(rows + 1, sizes), sizes, rate));
        };
    }
    RunResult run = launch(options, settings);
    line.clear();
    run.mode = mode;
    return run;
}

void run_bench(BenchCommand& command) {
    if (const auto place = JobPlace::find(2)) {
        try {
            run_child(*place, *command.pattern, command.options, command.memory);
        } catch (const std::exception& error) {
            // What the library still holds refers to coroutines that are gone: no clean-up.
            fmt::print(stderr, "swiftlane: rank {}: {}\n", place->rank, error.what());
            std::fflush(nullptr);
            _exit(1);
        }
        return;
    }
    command.device = chosen_device(command.device, command.memory != "host");
    JsonFile json(command.json);
    const Interrupt interrupt;
    std::vector<RunResult> runs;
    for (const std::string& mode : command.modes) {
        if (Interrupt::is_requested()) break;
        if (!runs.empty()) fmt::print("\n");
        runs.push_back(run_mode(command, mode));
    }
    fmt::print("{}", comparison(runs));
    for (const RunResult& run : runs) fmt::print("{}{}", memory_line(run), lane_map(run));
    Json document{
        {"benchmark", command.pattern->name},   {"modelled", false},
        {"emulated", command.device == "soft"}, {"interrupted", Interrupt::is_requested()},
        {"version", SWIFTLANE_VERSION},         {"options", to_json(command.options)}};
    add_runs(document, runs);
    json.write(document);
    std::fflush(stdout);
    if (Interrupt::is_requested()) throw Interrupted();
}

std::string check_place(const std::string& text) {
    try {
        const MemoryPlace place = MemoryPlace::parse(text);
        return place.is_pinned ? "pinned memory is for swiftlane perf" : "";
    } catch (const std::invalid_argument& error) {
        return error.what();
    }
}

void add_benchmark(CLI::App& bench, const Pattern<BenchOptions>& pattern) {
    auto command = std::make_shared<BenchCommand>();
    command->pattern = &pattern;
    CLI::App& app = *bench.add_subcommand(std::string(pattern.name), std::string(pattern.help));
    add_common_options(app, command->options);
    if (pattern.in_pairs) add_pair_options(app, command->options);
    app.add_option("--lanes", command->modes, "Kinds of run, one after the other")
        ->delimiter(',')
        ->check(CLI::IsMember({"dynamic", "scalable", "dedicated"}));
    add_device_options(app, command->device);
    app.add_option("--tls", command->transports, "Transports, unless UCX_TLS is set");
    app.add_option("--memory", command->memory,
                   "Where hot messages lie: host, cuda or cuda:DEVICE, vmm or vmm:DEVICE (virtual "
                   "memory made to be shared); without DEVICE, ranks take the devices in turn")
        ->type_name("PLACE")
        ->check(check_place);
    app.add_option("--json", command->json, "Write the results there")->type_name("FILE");
    app.add_option("--prefix", command->prefix,
                   "Words before the command of each rank, %r is its number: "
                   "\"ip netns exec node%r\"")
        ->type_name("COMMAND");
    app.add_flag("--pin", command->pin, "Bind each rank to a processor");
    app.callback([command] {
        check_options(command->options, command->pattern->in_pairs);
        run_bench(*command);
    });
}

}  // namespace

void add_bench(CLI::App& app) {
    CLI::App& bench = *app.add_subcommand("bench", "Benchmarks between processes of this machine");
    bench.require_subcommand(1);
    bench.option_defaults()->always_capture_default();
    for (const auto& pattern : kBenchPatterns) add_benchmark(bench, pattern);
}

}  // namespace tools
