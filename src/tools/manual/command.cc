// SPDX-License-Identifier: BSD-3-Clause
#include "tools/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/info/variables.h"

namespace tools {
namespace {

constexpr std::pair<const char*, const char*> kExitCodes[] = {
    {"0", "Done."},
    {"1", "Something went wrong: said on standard error."},
    {"2", "The command line makes no sense."},
    {"130", "Interrupted: what was finished has been printed and written."},
};

// Text as roff takes it: no command at the start of a line, dashes that can be copied.
std::string roff(std::string_view text) {
    std::string result;
    if (text.starts_with('.') || text.starts_with('\'')) result += "\\&";
    for (const char c : text) {
        if (c == '\\') {
            result += "\\e";
        } else if (c == '-') {
            result += "\\-";
        } else {
            result += c;
        }
    }
    return result;
}

std::string head(std::string_view name, int section, std::string_view summary) {
    std::string title(name);
    std::ranges::transform(title, title.begin(), [](char c) {
        return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    });
    return fmt::format(
        ".TH {} {} \"\" \"Swiftlane {}\" \"Swiftlane Manual\"\n.SH NAME\n{} \\- {}\n", roff(title),
        section, SWIFTLANE_VERSION, roff(name), roff(summary));
}

std::vector<CLI::App*> commands_of(CLI::App& app) {
    return app.get_subcommands([](CLI::App*) { return true; });
}

void add_options(const CLI::App& app, std::string& text) {
    for (const CLI::Option* option : app.get_options()) {
        std::string value;
        if (option->get_items_expected_max() > 0) {
            value = " " + option->get_type_name();
            if (!option->get_default_str().empty())
                value += fmt::format(" [{}]", option->get_default_str());
        }
        text += fmt::format(".TP\n.B {}\n{}\n", roff(option->get_name(false, true) + value),
                            roff(option->get_description()));
    }
}

std::string page(CLI::App& app, const std::string& name) {
    std::string text = head(name, 1, app.get_description());
    std::string words = name;
    std::ranges::replace(words, '-', ' ');
    const bool has_commands = !commands_of(app).empty();
    text += fmt::format(".SH SYNOPSIS\n.B {}\n.I {}\n", roff(words),
                        has_commands ? "COMMAND [OPTIONS]" : "[OPTIONS]");
    if (has_commands) {
        text += ".SH COMMANDS\n";
        for (const CLI::App* command : commands_of(app)) {
            text += fmt::format(".TP\n.B {}\n{}\n", roff(command->get_name()),
                                roff(command->get_description()));
        }
    }
    text += ".SH OPTIONS\n";
    add_options(app, text);
    for (const CLI::App* command : commands_of(app)) {
        // The pages of the program's own commands say what these take.
        if (name == "swiftlane") break;
        text += fmt::format(".SS {}\n", roff(words + " " + command->get_name()));
        add_options(*command, text);
    }
    text += ".SH EXIT STATUS\n";
    for (const auto& [code, meaning] : kExitCodes)
        text += fmt::format(".TP\n.B {}\n{}\n", code, meaning);
    text += fmt::format(".SH SEE ALSO\n{}.BR swiftlane\\-variables (7)\n",
                        name == "swiftlane" ? "" : ".BR swiftlane (1),\n");
    return text;
}

// Text in a cell of a table, or in a line.
std::string markdown(std::string_view text) {
    std::string result;
    for (const char c : text) {
        if (c == '|' || c == '<' || c == '*' || c == '_' || c == '\\') result += '\\';
        result += c;
    }
    return result;
}

// Manual pages of the program and of each of its commands, made from the commands themselves: file
// name (swiftlane-perf.1) to text for man(7).
std::map<std::string, std::string> command_pages(CLI::App& app) {
    std::map<std::string, std::string> pages{{"swiftlane.1", page(app, "swiftlane")}};
    for (CLI::App* command : commands_of(app)) {
        const std::string name = "swiftlane-" + command->get_name();
        pages[name + ".1"] = page(*command, name);
    }
    return pages;
}

std::string variables_page(std::span<const Variable> variables) {
    std::string text = head("swiftlane-variables", 7, "environment variables of Swiftlane");
    text +=
        ".SH DESCRIPTION\nThe environment, and what a program sets, configure the library.\n"
        ".B swiftlane info \\-c\nprints the values in use.\n";
    std::string table;
    for (const Variable& variable : variables) {
        if (variable.table != table) text += fmt::format(".SH {}\n", roff(table = variable.table));
        text +=
            fmt::format(".TP\n.B {}={}\n{}\n.br\nExpected: {}.\n", roff(variable.name),
                        roff(variable.default_value), roff(variable.help), roff(variable.expected));
        for (const std::string& fallback : variable.fallbacks)
            text += fmt::format(".br\nFalls back to {}.\n", roff(fallback));
    }
    text += ".SH SEE ALSO\n.BR swiftlane\\-info (1)\n";
    return text;
}

std::string variables_markdown(std::span<const Variable> variables) {
    std::string text =
        "# Variables\n\n"
        "Every variable of the environment that the library and its modules read, with its "
        "default. "
        "`swiftlane info -c` prints\nthe values in use, `-f` with these texts. Made by `swiftlane "
        "manual --variables`; where no module for it is built, a\nvariable is missing there.\n";
    std::string table;
    for (const Variable& variable : variables) {
        if (variable.table != table)
            text += fmt::format("\n## {}\n", markdown(table = variable.table));
        text += fmt::format("\n**`{}={}`** {} Expected: {}.", variable.name, variable.default_value,
                            markdown(variable.help), markdown(variable.expected));
        for (const std::string& fallback : variable.fallbacks)
            text += fmt::format(" Falls back to `{}`.", fallback);
        text += '\n';
    }
    return text;
}

void write_pages(CLI::App& app, const std::filesystem::path& folder) {
    std::filesystem::create_directories(folder);
    auto pages = command_pages(app);
    pages["swiftlane-variables.7"] = variables_page(read_variables());
    for (const auto& [name, text] : pages) {
        std::ofstream file(folder / name);
        file << text;
        file.close();
        if (!file) throw std::runtime_error((folder / name).string() + " cannot be written");
    }
}

}  // namespace

void add_manual(CLI::App& app) {
    auto folder = std::make_shared<std::string>();
    auto variables = std::make_shared<bool>(false);
    CLI::App* manual = app.add_subcommand("manual", "Manual pages of all commands and variables");
    auto* to = manual->add_option("--to", *folder, "Write the pages to this folder");
    manual->add_flag("--variables", *variables, "Print all variables, in Markdown")->excludes(to);
    manual->callback([folder, variables, &app] {
        if (*variables) {
            fmt::print("{}", variables_markdown(read_variables()));
        } else if (!folder->empty()) {
            write_pages(app, *folder);
        } else {
            throw CLI::CallForHelp();
        }
    });
}

}  // namespace tools
