// SPDX-License-Identifier: BSD-3-Clause
#include "tools/manual/command.h"

#include <fmt/format.h>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>

#include "tools/info/variables.h"
#include "tools/manual/pages.h"

namespace tools {
namespace {

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
