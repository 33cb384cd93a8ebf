// SPDX-License-Identifier: BSD-3-Clause
#include "tools/common/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "tools/common/interrupt.h"
#include "ucs/config/spelling.h"

namespace tools {
namespace {

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

// `line`, and the nearest name, if one is near.
std::string with_nearest(const std::string& line, std::string_view word,
                         const std::vector<std::string>& names) {
    size_t least = ucs::config::edit_limit(word) + 1;
    std::string near;
    for (const std::string& name : names) {
        const size_t distance = ucs::config::edit_distance(word, name);
        if (distance >= least) continue;
        least = distance;
        near = name;
    }
    return near.empty() ? line : fmt::format("{}; did you mean '{}'?", line, near);
}

std::string no_such_command(const std::string& word, const std::vector<CLI::App*>& commands) {
    std::vector<std::string> names;
    for (const CLI::App* command : commands) names.push_back(command->get_name());
    return with_nearest(fmt::format("there is no command '{}'", word), word, names);
}

std::string no_such_option(const std::string& word, const CLI::App& command) {
    std::vector<std::string> names;
    for (const CLI::Option* option : command.get_options()) {
        for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
    return with_nearest(fmt::format("there is no option '{}'", word), word, names);
}

// A line on the first word that is no command or no option; empty if all are.
std::string unknown_word(CLI::App& app, std::span<char* const> words) {
    CLI::App* at = &app;
    for (size_t i = 0; i < words.size() && !at->get_prefix_command(); ++i) {
        const std::string word = words[i];
        if (word.starts_with("--")) {
            const std::string name = word.substr(0, word.find('='));
            const CLI::Option* option = at->get_option_no_throw(name);
            if (option == nullptr) return no_such_option(name, *at);
            const bool has_value = option->get_items_expected_min() > 0 && name == word;
            i += has_value ? 1 : 0;
            continue;
        }
        const std::vector<CLI::App*> commands = commands_of(*at);
        if (word.starts_with('-') || commands.empty()) continue;
        const auto found =
            std::ranges::find(commands, word, [](const CLI::App* app) { return app->get_name(); });
        if (found == commands.end()) return no_such_command(word, commands);
        at = *found;
    }
    return {};
}

}  // namespace

std::vector<CLI::App*> commands_of(CLI::App& app) {
    return app.get_subcommands([](CLI::App*) { return true; });
}

int tell_misuse(CLI::App& app, const CLI::ParseError& error, std::span<char* const> words) {
    const bool is_wrong = error.get_exit_code() != 0;
    const std::string line = is_wrong ? unknown_word(app, words) : "";
    if (line.empty()) {
        app.exit(error);
    } else {
        fmt::print(stderr, "swiftlane: {}\nRun with --help for more information.\n", line);
    }
    return is_wrong ? kMisused : kDone;
}

std::string completion_cases(CLI::App& app, const std::string& path) {
    std::string cases;
    add_words(app, path, cases);
    return cases;
}

std::string bash_completion(const std::string& cases) {
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
