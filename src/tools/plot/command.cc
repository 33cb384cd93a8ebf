// SPDX-License-Identifier: BSD-3-Clause
#include "tools/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/common/paths.h"
#include "tools/plot/chart.h"
#include "tools/plot/results.h"
#include "tools/plot/timeline.h"
#include "tools/report/json.h"

namespace tools {
namespace {

using plot::Bar;
using plot::Chart;
using plot::Curve;
using plot::Panel;
using plot::Point;
using plot::Results;
using plot::Timeline;

constexpr size_t kMostLines = 500;  // of a table

constexpr const char* kStyle =
    "body{font-family:sans-serif;margin:1em auto;max-width:75em;padding:0 1em}"
    "svg{width:100%;height:auto}table{border-collapse:collapse}"
    "th,td{padding:.1em .8em;text-align:right}th:first-child,td:first-child{text-align:left}"
    "tr:nth-child(even){background:#f2f2f2}";

std::string escaped(const std::string& text) {
    using Entity = std::pair<char, std::string_view>;
    constexpr Entity kEntities[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}};
    std::string result;
    for (const char c : text) {
        const auto* const entity = std::ranges::find(kEntities, c, &Entity::first);
        entity == std::end(kEntities) ? result += c : result += entity->second;
    }
    return result;
}

std::string line(const std::string& name, double x, double y) {
    return fmt::format("<tr><td>{}</td><td>{:.6g}</td><td>{:.6g}</td></tr>\n", escaped(name), x, y);
}

void add_table(std::string& page, const Panel& panel) {
    std::vector<std::string> lines;
    for (const Curve& curve : panel.curves) {
        for (const Point& point : curve.points)
            lines.push_back(line(curve.title, point.x, point.y));
    }
    for (const auto& [state, bars] : panel.bars) {
        for (const Bar& bar : bars) {
            lines.push_back(line(panel.rows.at(bar.row) + ": " + state, bar.from, bar.to));
        }
    }
    const bool is_bars = panel.form == Panel::Form::kBars;
    fmt::format_to(std::back_inserter(page),
                   "<details><summary>{}: {} figure{}</summary>\n"
                   "<table><tr><th></th><th>{}</th><th>{}</th></tr>\n",
                   escaped(panel.title), lines.size(), lines.size() == 1 ? "" : "s",
                   is_bars ? "from (s)" : escaped(panel.x_label),
                   is_bars ? "to (s)" : escaped(panel.y_label));
    const size_t shown = std::min(lines.size(), kMostLines);
    for (size_t i = 0; i < shown; ++i) page += lines[i];
    page += "</table>\n";
    if (shown < lines.size()) {
        fmt::format_to(std::back_inserter(page), "<p>The first {} of them.</p>\n", shown);
    }
    page += "</details>\n";
}

// An HTML page with the picture in it, and the figures of each panel as a table: it needs no other
// file and no network.
std::string html_page(const std::string& title, const std::string& svg, const Chart& chart) {
    std::string page = fmt::format(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
        "<title>{0}</title>\n<style>{1}</style></head>\n<body>\n<h1>{0}</h1>\n",
        escaped(title), kStyle);
    // Inside of HTML the picture has no XML declaration and no document type.
    page += svg.substr(svg.find("<svg"));
    for (const Panel& panel : chart) add_table(page, panel);
    return page + "</body></html>\n";
}

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

void run_plot(const PlotCommand& command) {
    Timeline timeline;
    Results results;
    for (const std::string& path : command.files) read_any(path, timeline, results);
    Chart chart = timeline.panels(command.links);
    for (Panel& panel : results.panels()) chart.push_back(std::move(panel));
    if (chart.empty()) throw std::runtime_error("there is nothing to draw in these files");

    const std::string svg = plot::draw_svg(chart);
    if (command.to == "-") {
        fmt::print("{}", svg);
    } else if (command.to.ends_with(".html")) {
        std::string names;
        for (const std::string& path : command.files) {
            names += (names.empty() ? "" : ", ") + std::filesystem::path(path).filename().string();
        }
        write_file(command.to, html_page(names, svg, chart));
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
