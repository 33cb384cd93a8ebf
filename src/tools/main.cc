// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>

#include "tools/bench/command.h"
#include "tools/common/exit_codes.h"
#include "tools/common/help.h"
#include "tools/common/paths.h"
#include "tools/explain/command.h"
#include "tools/info/command.h"
#include "tools/manual/command.h"
#include "tools/perf/command.h"
#include "tools/plot/command.h"
#include "tools/run/command.h"
#include "tools/sim/exec.h"
#include "tools/top/command.h"

// What is thrown before the commands are known ends the program.
int main(int argc, char** argv) {  // NOLINT(bugprone-exception-escape)
    CLI::App app{"Swiftlane: benchmarks, simulation and information", "swiftlane"};
    app.require_subcommand(1);
    app.failure_message([](const CLI::App*, const CLI::Error& error) {
        return fmt::format("swiftlane: {}\nRun with --help for more information.\n", error.what());
    });
    app.set_help_all_flag("--help-all", "Help of all commands");
    tools::add_bench(app, argc, argv);
    tools::add_perf(app, argc, argv);
    tools::add_sim(app);
    tools::add_explain(app);
    tools::add_info(app);
    tools::add_top(app);
    tools::add_plot(app);
    app.add_subcommand("completion", "For bash: source <(swiftlane completion)")->callback([&app] {
        fmt::print("{}", tools::bash_completion(app));
    });
    tools::add_manual(app);
    // CLI11 would read a program's options after "--" as its own.
    char** const dashes = std::find(argv, argv + argc, std::string_view("--"));
    tools::add_run(app, {std::min(dashes + 1, argv + argc), argv + argc});
    try {
        tools::require_own_library();
        app.parse(static_cast<int>(dashes - argv), argv);
    } catch (const CLI::ParseError& error) {
        const bool is_wrong = error.get_exit_code() != 0;
        const std::string line = is_wrong ? tools::unknown_command(app, {argv + 1, dashes}) : "";
        if (line.empty()) {
            app.exit(error);
        } else {
            fmt::print(stderr, "swiftlane: {}\nRun with --help for more information.\n", line);
        }
        return is_wrong ? tools::kMisused : tools::kDone;
    } catch (const tools::Interrupted&) {
        return tools::kInterrupted;
    } catch (const std::exception& error) {
        std::fflush(stdout);
        fmt::print(stderr, "swiftlane: {}\n", error.what());
        return tools::kFailed;
    }
    return tools::kDone;
}
