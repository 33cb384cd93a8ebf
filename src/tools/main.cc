// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/commands.h"
#include "tools/common/interrupt.h"
#include "tools/common/paths.h"
#include "tools/common/process.h"
#include "ucs/config/spelling.h"

namespace tools {
namespace {

std::vector<CLI::App*> commands_of(CLI::App& app) {
    return app.get_subcommands([](CLI::App*) { return true; });
}

void add_words(CLI::App& app, const std::string& path, std::string& cases) {
    std::string words;
    for (const CLI::App* command : commands_of(app)) words += command->get_name() + " ";
    for (const CLI::Option* option : app.get_options()) {
        for (const std::string& name : option->get_lnames()) words += "--" + name + " ";
    }
    cases += fmt::format("        \"{}\") words=\"{}\" ;;\n", path, words);
    for (CLI::App* command : commands_of(app)) {
        const std::string below = path.empty() ? "" : path + " ";
        add_words(*command, below + command->get_name(), cases);
    }
}

// A line on the first word that is no command where one is expected, with the nearest one that is;
// empty if there is none such. `words` are those behind the program's name.
std::string unknown_command(CLI::App& app, std::span<char* const> words) {
    CLI::App* at = &app;
    for (const char* word : words) {
        if (*word == '-') continue;
        const std::vector<CLI::App*> commands = commands_of(*at);
        if (commands.empty()) return {};
        const auto found = std::ranges::find(
            commands, std::string_view(word),
            [](const CLI::App* command) -> std::string_view { return command->get_name(); });
        if (found != commands.end()) {
            at = *found;
            continue;
        }
        std::string line = fmt::format("there is no command '{}'", word);
        size_t least = ucs::config::edit_limit(word) + 1;
        std::string near;
        for (const CLI::App* command : commands) {
            const size_t distance = ucs::config::edit_distance(word, command->get_name());
            if (distance >= least) continue;
            least = distance;
            near = command->get_name();
        }
        return near.empty() ? line : fmt::format("{}; did you mean '{}'?", line, near);
    }
    return {};
}

// A program for bash that completes commands and options, made from the commands themselves:
// source <(swiftlane completion)
std::string bash_completion(CLI::App& app) {
    std::string cases;
    add_words(app, "", cases);
    return fmt::format(R"(_swiftlane() {{
    local word path="" words="" i
    for ((i = 1; i < COMP_CWORD; ++i)); do
        word=${{COMP_WORDS[i]}}
        [[ $word == -- ]] && return
        [[ $word == -* ]] && break
        path+="${{path:+ }}$word"
    done
    case $path in
{}    esac
    COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _swiftlane swiftlane
)",
                       cases);
}

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
