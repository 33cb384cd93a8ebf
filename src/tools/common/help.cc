// SPDX-License-Identifier: BSD-3-Clause
#include "tools/common/help.h"

#include <fmt/format.h>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <algorithm>
#include <string_view>
#include <vector>

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

}  // namespace

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

}  // namespace tools
