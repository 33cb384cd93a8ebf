// SPDX-License-Identifier: BSD-3-Clause
#include "tools/commands.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "tools/common/help.h"
#include "tools/common/paths.h"
#include "tools/common/program_output.h"
#include "tools/info/variables.h"
#include "tools/manual/pages.h"

namespace tools {
namespace {

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
    std::map<std::string, std::string> pages{{"swiftlane.1", command_page(app, "swiftlane")}};
    for (CLI::App* command : commands_of(app)) {
        const std::string name = "swiftlane-" + command->get_name();
        pages[name + ".1"] = command_page(*command, name);
    }
    return pages;
}

std::string variables_page(std::span<const Variable> variables) {
    std::string text = page_head("swiftlane-variables", 7, "environment variables of Swiftlane");
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
    const std::string simulator = simulator_says(kSayManual);
    if (!simulator.empty()) pages["swiftlane-sim.1"] = simulator;
    pages["swiftlane-variables.7"] = variables_page(read_variables());
    for (const auto& [name, text] : pages) write_file(folder / name, text);
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
