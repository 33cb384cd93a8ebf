// SPDX-License-Identifier: BSD-3-Clause
#include "tools/plot/command.h"

#include <fmt/format.h>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tools/plot/chart.h"
#include "tools/plot/gnuplot.h"
#include "tools/plot/page.h"
#include "tools/plot/results.h"
#include "tools/plot/timeline.h"
#include "tools/report/json.h"

namespace tools {
namespace {

using plot::Chart;
using plot::Results;
using plot::Timeline;

struct PlotCommand {
    std::vector<std::string> files;
    std::string to;
    size_t links = 12;
};

// A document a line, as `top --record` writes them. One that was cut short ends the recording.
void read_recording(std::istream& file, Timeline& timeline) {
    for (std::string line; std::getline(file, line);) {
        const Json document = Json::parse(line, nullptr, false);
        if (document.is_discarded()) {
            if (file.peek() == std::istream::traits_type::eof()) return;
            throw std::runtime_error("a line is no JSON");
        }
        timeline.add_look(document);
    }
}

// What is in the file says what it is.
void read_file(const std::string& path, Timeline& timeline, Results& results) {
    std::ifstream file(path);
    if (!file) throw std::runtime_error(std::strerror(errno));
    file >> std::ws;
    if (file.peek() == '[') {
        timeline.add_trace(file);
        return;
    }
    std::string line;
    std::getline(file, line);
    const Json first = Json::parse(line, nullptr, false);
    const bool is_recording = first.is_object() && first.contains("processes");
    file.clear();
    file.seekg(0);
    if (is_recording) {
        read_recording(file, timeline);
        return;
    }
    const Json document = Json::parse(file);
    if (document.contains("processes")) {
        throw std::runtime_error("one look has no course of time: swiftlane top --record");
    }
    results.add(document, std::filesystem::path(path).stem().string());
}

void read_any(const std::string& path, Timeline& timeline, Results& results) {
    try {
        read_file(path, timeline, results);
    } catch (const nlohmann::json::exception&) {
        throw std::runtime_error(
            path +
            ": is no trace (UCX_TRACE), recording (top --record) or result (--json of perf, "
            "bench, sim)");
    } catch (const std::runtime_error& error) {
        throw std::runtime_error(fmt::format("{}: {}", path, error.what()));
    }
}

void write_file(const std::string& path, const std::string& text) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << text;
    file.close();
    if (!file)
        throw std::runtime_error(fmt::format("cannot write {}: {}", path, std::strerror(errno)));
}

void run_plot(const PlotCommand& command) {
    Timeline timeline;
    Results results;
    for (const std::string& path : command.files) read_any(path, timeline, results);
    Chart chart = timeline.panels(command.links);
    for (plot::Panel& panel : results.panels()) chart.push_back(std::move(panel));
    if (chart.empty()) throw std::runtime_error("there is nothing to draw in these files");

    const std::string svg = plot::draw_svg(chart);
    if (command.to == "-") {
        fmt::print("{}", svg);
    } else if (command.to.ends_with(".html")) {
        std::string names;
        for (const std::string& path : command.files) {
            names += (names.empty() ? "" : ", ") + std::filesystem::path(path).filename().string();
        }
        write_file(command.to, plot::html_page(names, svg, chart));
    } else {
        write_file(command.to, svg);
    }
}

}  // namespace

void add_plot(CLI::App& app) {
    auto command = std::make_shared<PlotCommand>();
    CLI::App* plot = app.add_subcommand(
        "plot", "Pictures of traces, recordings (top --record) and results (--json), by gnuplot");
    plot->add_option("FILES", command->files, "What is drawn, in one picture")->required();
    plot->add_option("--to", command->to,
                     "FILE.svg, FILE.html (a page of its own), or -: SVG on standard output")
        ->required()
        ->check([](const std::string& path) {
            const bool is_known = path == "-" || path.ends_with(".svg") || path.ends_with(".html");
            return is_known ? std::string() : path + ": is not FILE.svg, FILE.html or -";
        });
    plot->add_option("--links", command->links, "Links with the highest scores, at most")
        ->check(CLI::Range(1, 200));
    plot->callback([command] { run_plot(*command); });
}

}  // namespace tools
