// SPDX-License-Identifier: BSD-3-Clause
#include "tools/plot/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

namespace tools::plot {
namespace {

constexpr size_t kMostLines = 500;  // of a table

constexpr const char* kStyle =
    "body{font-family:sans-serif;margin:1em auto;max-width:75em;padding:0 1em}"
    "svg{width:100%;height:auto}table{border-collapse:collapse}"
    "th,td{padding:.1em .8em;text-align:right}th:first-child,td:first-child{text-align:left}"
    "tr:nth-child(even){background:#f2f2f2}";

std::string escaped(const std::string& text) {
    std::string result;
    for (const char c : text) {
        switch (c) {
            case '&':
                result += "&amp;";
                break;
            case '<':
                result += "&lt;";
                break;
            case '>':
                result += "&gt;";
                break;
            case '"':
                result += "&quot;";
                break;
            default:
                result += c;
        }
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
                   "<details><summary>{}: {} figures</summary>\n"
                   "<table><tr><th></th><th>{}</th><th>{}</th></tr>\n",
                   escaped(panel.title), lines.size(),
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

}  // namespace

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

}  // namespace tools::plot
