// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <cstdio>
#include <exception>

#include "tools/bench/command.h"
#include "tools/info/command.h"
#include "tools/run/command.h"
#include "tools/sim/exec.h"

int main(int argc, char** argv) {
    CLI::App app{"Swiftlane: benchmarks, simulation and information", "swiftlane"};
    app.require_subcommand(1);
    app.failure_message([](const CLI::App*, const CLI::Error& error) {
        return fmt::format("swiftlane: {}\nRun with --help for more information.\n", error.what());
    });
    app.set_help_all_flag("--help-all", "Help of all commands");
    tools::add_bench(app, argc, argv);
    tools::add_sim(app);
    tools::add_info(app);
    tools::add_run(app);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error);
    } catch (const std::exception& error) {
        std::fflush(stdout);
        fmt::print(stderr, "swiftlane: {}\n", error.what());
        return 1;
    }
    return 0;
}
