// SPDX-License-Identifier: BSD-3-Clause
#include "tools/manual/pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tools/common/help.h"

namespace tools {
namespace {

constexpr std::pair<const char*, const char*> kExitCodes[] = {
    {"0", "Done."},
    {"1", "Something went wrong: said on standard error."},
    {"2", "The command line makes no sense."},
    {"130", "Interrupted: what was finished has been printed and written."},
};

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

}  // namespace

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

std::string page_head(std::string_view name, int section, std::string_view summary) {
    std::string title(name);
    std::ranges::transform(title, title.begin(), [](char c) {
        return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    });
    return fmt::format(
        ".TH {} {} \"\" \"Swiftlane {}\" \"Swiftlane Manual\"\n.SH NAME\n{} \\- {}\n", roff(title),
        section, SWIFTLANE_VERSION, roff(name), roff(summary));
}

std::string command_page(CLI::App& app, const std::string& name) {
    std::string text = page_head(name, 1, app.get_description());
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

}  // namespace tools
