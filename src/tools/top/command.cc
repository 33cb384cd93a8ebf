// SPDX-License-Identifier: BSD-3-Clause
#include "tools/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tools/common/interrupt.h"
#include "tools/program/bench_options.h"
#include "tools/report/json.h"
#include "tools/top/document.h"
#include "tools/top/terminal.h"

namespace tools {
namespace {

struct TopCommand {
    std::vector<pid_t> processes;
    size_t endpoints = 10;
    int64_t interval = 1'000'000'000;
    bool once = false;
    std::string json;
    std::string record;
};

void print_lines(const TopCommand& command) {
    const auto samples = ucp::stats::read_pages(command.processes);
    for (const std::string& line : screen_lines(samples, monotonic_now(), command.endpoints)) {
        fmt::print("{}\n", line);
    }
    std::fflush(stdout);
}

// A document a line, until the user wants no more or all processes have gone that were there: one
// that is stopped while it writes its page cannot be read for a look or two.
void record(const TopCommand& command, int wait) {
    std::ofstream file(command.record, std::ios::trunc);
    const Interrupt interrupt;
    constexpr unsigned kLooksForTheEnd = 3;
    unsigned missed = 0;
    for (bool has_seen_any = false; !Interrupt::is_requested();) {
        const auto samples = ucp::stats::read_pages(command.processes);
        missed = samples.empty() ? missed + 1 : 0;
        if (has_seen_any && missed == kLooksForTheEnd) return;
        has_seen_any |= !samples.empty();
        if (!samples.empty()) {
            file << to_json(samples, monotonic_now()).dump() << '\n' << std::flush;
        }
        if (!file) {
            throw std::runtime_error(
                fmt::format("cannot write {}: {}", command.record, std::strerror(errno)));
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(wait));
    }
}

void run_top(const TopCommand& command) {
    if (!command.json.empty()) {
        JsonFile file(command.json);
        const auto samples = ucp::stats::read_pages(command.processes);
        file.write(to_json(samples, monotonic_now()));
        return;
    }
    if (command.once) {
        print_lines(command);
        return;
    }
    const auto wait =
        static_cast<int>(std::clamp<int64_t>(command.interval / 1'000'000, 100, INT_MAX));
    if (!command.record.empty()) {
        record(command, wait);
        return;
    }
    if (Terminal::is_there()) {
        Terminal terminal;
        do {
            const auto samples = ucp::stats::read_pages(command.processes);
            terminal.show(screen_lines(samples, monotonic_now(), command.endpoints));
        } while (terminal.wait(wait));
        return;
    }
    const Interrupt interrupt;
    for (;;) {
        print_lines(command);
        std::this_thread::sleep_for(std::chrono::milliseconds(wait));
        if (Interrupt::is_requested()) return;
        fmt::print("\n");
    }
}

void add_process_option(CLI::App& command, std::vector<pid_t>& processes) {
    command.add_option("--pid", processes, "These processes alone")
        ->check(CLI::Range(1, INT_MAX))
        ->delimiter(',');
}

}  // namespace

void add_top(CLI::App& app) {
    auto command = std::make_shared<TopCommand>();
    CLI::App* top = app.add_subcommand(
        "top", "What running processes do: endpoints, lanes, scores, rates (\"q\" ends it)");
    add_process_option(*top, command->processes);
    top->add_option("--endpoints", command->endpoints, "Endpoints of each worker, at most");
    add_time(*top, "--interval", command->interval, "From one look to the next");
    top->add_flag("--once", command->once, "Print what there is, and end");
    top->add_option("--json", command->json,
                    "Once, all in JSON to this file; without a name or with -: standard output")
        ->expected(0, 1)
        ->default_str("-");
    top->add_option("--record", command->record,
                    "All in JSON to this file, a line an interval, for swiftlane plot; ends when "
                    "the processes end")
        ->excludes("--once")
        ->excludes("--json");
    top->callback([command] { run_top(*command); });

    auto processes = std::make_shared<std::vector<pid_t>>();
    CLI::App* metrics =
        app.add_subcommand("metrics", "The same figures once, in Prometheus's text format");
    add_process_option(*metrics, *processes);
    metrics->callback([processes] {
        fmt::print("{}", exposition(ucp::stats::read_pages(*processes), monotonic_now()));
    });
}

}  // namespace tools
