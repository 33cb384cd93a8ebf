// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "tools/commands.h"
#include "tools/common/help.h"
#include "tools/common/interrupt.h"
#include "tools/common/paths.h"
#include "tools/common/process.h"
#include "tools/common/program_output.h"

namespace tools {
namespace {

// Hands its arguments to the simulator: a program of its own, since it has the library and the
// emulated adapter linked in.
void add_sim(CLI::App& app) {
    CLI::App* sim = app.add_subcommand(
        "sim", "Benchmarks with many ranks in one process, on modelled adapters and time");
    sim->prefix_command();
    sim->set_help_flag();
    sim->set_help_all_flag();
    sim->callback([sim] {
        std::vector<std::string> words = sim->remaining();
        words.insert(words.begin(), "swiftlane sim");
        become_program(Paths::find().simulator, std::move(words));
    });
}

}  // namespace
}  // namespace tools

// What is thrown before the commands are known ends the program.
int main(int argc, char** argv) {  // NOLINT(bugprone-exception-escape)
    CLI::App app{"Swiftlane: benchmarks, simulation and information", "swiftlane"};
    app.require_subcommand(1);
    app.failure_message([](const CLI::App*, const CLI::Error& error) {
        return fmt::format("swiftlane: {}\nRun with --help for more information.\n", error.what());
    });
    app.set_help_all_flag("--help-all", "Help of all commands");
    tools::add_bench(app);
    tools::add_perf(app);
    tools::add_sim(app);
    tools::add_explain(app);
    tools::add_info(app);
    tools::add_top(app);
    tools::add_plot(app);
    app.add_subcommand("completion", "For bash: source <(swiftlane completion)")->callback([&app] {
        fmt::print("{}", tools::bash_completion(tools::simulator_says(tools::kSayCompletion) +
                                                tools::completion_cases(app, "")));
    });
    tools::add_manual(app);
    // CLI11 would read a program's options after "--" as its own.
    char** const dashes = std::find(argv, argv + argc, std::string_view("--"));
    tools::add_run(app, {std::min(dashes + 1, argv + argc), argv + argc});
    try {
        tools::require_own_library();
        app.parse(static_cast<int>(dashes - argv), argv);
    } catch (const CLI::ParseError& error) {
        return tools::tell_misuse(app, error, {argv + 1, dashes});
    } catch (const tools::Interrupted&) {
        return tools::kInterrupted;
    } catch (const std::exception& error) {
        std::fflush(stdout);
        fmt::print(stderr, "swiftlane: {}\n", error.what());
        return tools::kFailed;
    }
    return tools::kDone;
}
