// SPDX-License-Identifier: BSD-3-Clause

// What is told about commands and variables is complete, for people and for programs.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "test/tools/command.h"

namespace tools {
namespace {

using nlohmann::json;

std::string source_file(const std::string& path) {
    const char* folder = std::getenv("srcdir");
    return read_text(std::string(folder != nullptr ? folder : "..") + "/" + path);
}

json parse_output(const Outcome& outcome) {
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return json::parse(outcome.out, nullptr, false);
}

// A paragraph for each variable.
std::set<std::string> variables_in(const std::string& text) {
    std::set<std::string> paragraphs;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("**`UCX_")) paragraphs.insert(line);
    }
    return paragraphs;
}

TEST(Variables, AreAllInTheReference) {
    const std::set<std::string> documented = variables_in(source_file("docs/variables.md"));
    const std::set<std::string> known = variables_in(run_command({"manual", "--variables"}).out);
    ASSERT_FALSE(documented.empty());
    ASSERT_FALSE(known.empty());
    for (const std::string& variable : known) {
        EXPECT_TRUE(documented.contains(variable))
            << "not in docs/variables.md (make variables writes it): " << variable;
    }
    for (const std::string& variable : documented) {
        // A build without the module does not know those.
        EXPECT_TRUE(known.contains(variable) || variable.starts_with("**`UCX_CUDA_"))
            << "in docs/variables.md only (make variables writes it): " << variable;
    }
}

TEST(ExplainJson, HasTheTablesOfTheText) {
    const std::vector<std::string> arguments{"explain", "--soft", "--other-host"};
    std::vector<std::string> with_json = arguments;
    with_json.insert(with_json.end(), {"--json", "-"});
    const json document = parse_output(run_command(with_json));
    const json& tables = document.at("tables");
    ASSERT_EQ(tables.size(), 4u);
    unsigned chosen = 0;
    for (const json& row : tables.at(0).at("rows")) {
        if (row.at("transport") != "dc_mlx5") continue;
        ++chosen;
        EXPECT_EQ(row.at("why"), "chosen; hot endpoints go to rc_mlx5");
        EXPECT_TRUE(row.at("sum_ns").is_number_unsigned());
    }
    EXPECT_EQ(chosen, 1u);
    for (const json& table : tables) {
        EXPECT_FALSE(table.at("title").get<std::string>().empty()) << table;
        EXPECT_FALSE(table.at("rows").empty()) << table.at("title");
    }
    // As many lines on tagged messages as people are told.
    const std::string text = run_command(arguments).out;
    const std::regex line("\n# tag[ ,]");
    size_t rows = 0;
    for (const json& table : tables) {
        for (const json& row : table.at("rows"))
            rows += row.value("operation", "").starts_with("tag") ? 1 : 0;
    }
    EXPECT_EQ(rows, static_cast<size_t>(
                        std::distance(std::sregex_iterator(text.begin(), text.end(), line), {})));
}

TEST(JsonFile, IsTriedBeforeAnythingElse) {
    for (const char* command : {"info", "explain", "top"}) {
        const Outcome outcome = run_command({command, "--json", "/proc/no/such/file"});
        EXPECT_EQ(outcome.status, 1) << command;
        EXPECT_NE(outcome.err.find("cannot write /proc/no/such/file"), std::string::npos)
            << outcome.err;
        EXPECT_TRUE(outcome.out.empty()) << outcome.out;
    }
}

class PageFolder {
  public:
    PageFolder() : path_(std::filesystem::temp_directory_path() / "swiftlane-manual-XXXXXX") {
        std::string name = path_.string();
        EXPECT_NE(mkdtemp(name.data()), nullptr);
        path_ = name;
    }
    ~PageFolder() { std::filesystem::remove_all(path_); }
    PageFolder(const PageFolder&) = delete;
    PageFolder& operator=(const PageFolder&) = delete;
    const std::filesystem::path& path() const { return path_; }

  private:
    std::filesystem::path path_;
};

TEST(ManualPages, DescribeEveryCommandAndOption) {
    const PageFolder folder;
    const Outcome outcome = run_command({"manual", "--to", folder.path().string()});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const std::string main_page = read_text(folder.path() / "swiftlane.1");
    unsigned pages = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
        ++pages;
        const std::string name = entry.path().stem().string();
        const std::string text = read_text(entry.path());
        EXPECT_TRUE(text.starts_with(".TH ")) << name;
        const bool is_command = name.starts_with("swiftlane-") && entry.path().extension() == ".1";
        const std::string listed = is_command ? "\n.B " + name.substr(10) + "\n" : "";
        EXPECT_NE(main_page.find(listed), std::string::npos) << name;
        // Each term is followed by a text that is no command of roff, nor nothing.
        static const std::regex bare("\\.TP\n\\.B ([^\n]*)\n(\\.[A-Z]|\n|$)");
        std::smatch match;
        EXPECT_FALSE(std::regex_search(text, match, bare)) << name << ": " << match.str(1);
    }
    EXPECT_GT(pages, 9u);
    // The simulator is a program of its own.
    const std::string simulator = read_text(folder.path() / "swiftlane-sim.1");
    EXPECT_NE(simulator.find("\n.SS swiftlane sim zipf\n"), std::string::npos) << simulator;
    EXPECT_NE(simulator.find("\\-\\-seeds"), std::string::npos) << simulator;
    const json variables = parse_output(run_command({"info", "-c", "--json", "-"}));
    std::string page = read_text(folder.path() / "swiftlane-variables.7");
    for (const json& variable : variables.at("variables")) {
        EXPECT_NE(page.find(variable.at("name").get<std::string>() + "="), std::string::npos)
            << variable;
    }
}

TEST(ExitCodes, AreThoseOfTheTable) {
    const std::string table = source_file("docs/tools.md");
    for (const char* code : {"| 0 | done", "| 1 | failed", "| 2 | ", "| 130 | interrupted"})
        EXPECT_NE(table.find(code), std::string::npos) << code;
    EXPECT_EQ(run_command({"info", "-v"}).status, 0);
    EXPECT_EQ(run_command({"explain", "--to", "/proc/no/such/file"}).status, 1);
    EXPECT_EQ(run_command({"tpo"}).status, 2);
    EXPECT_NE(run_command({"tpo"}).err.find("did you mean 'top'"), std::string::npos);
}

}  // namespace
}  // namespace tools
