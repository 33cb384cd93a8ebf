// SPDX-License-Identifier: BSD-3-Clause
#include "tools/plot/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include "tools/common/program_output.h"

namespace tools::plot {
namespace {

constexpr unsigned kWidth = 1100;       // pixels
constexpr unsigned kPanelHeight = 330;  // of curves
constexpr unsigned kRowHeight = 20;     // of bars, and of the legend of their states
constexpr unsigned kFrame = 110;        // titles and axes of a panel of bars
constexpr unsigned kKeySample = 70;     // beside a title in the legend
constexpr unsigned kLetter = 7;         // of a title, widest on average
constexpr unsigned kColors = 8;         // of curves, before the next are dashed

// A text for gnuplot. In single quotes it replaces nothing; a quote inside becomes another sign
// that looks like it.
std::string quoted(const std::string& text) {
    std::string result = "'";
    for (const char c : text) {
        if (c == '\'') {
            result += "\u2019";
        } else {
            result += static_cast<unsigned char>(c) < ' ' ? '?' : c;
        }
    }
    return result + '\'';
}

// The same where it may be formatted.
std::string title(const std::string& text) {
    return quoted(text) + " noenhanced";
}

// States of a link: not asked for, on its way up, up, on its way down.
std::string color_of(const std::string& state) {
    using Color = std::pair<std::string_view, std::string_view>;
    constexpr Color kColors[] = {
        {"idle", "#d9d9d9"},      {"requested", "#fde0b8"}, {"withdrawing", "#cdb79e"},
        {"committed", "#fdc98a"}, {"creating", "#fdae61"},  {"connecting", "#f68d3c"},
        {"ready", "#f7dc6f"},     {"switching", "#f0c419"}, {"established", "#2a9d4a"},
        {"demoting", "#5b8fd6"},  {"releasing", "#a9c6ec"}};
    const auto* const found = std::ranges::find(kColors, state, &Color::first);
    return fmt::format("rgb '{}'", found == std::end(kColors) ? "#444444" : found->second);
}

unsigned height_of(const Panel& panel) {
    if (panel.form != Panel::Form::kBars) return kPanelHeight;
    return kFrame +
           kRowHeight * static_cast<unsigned>(std::max(panel.rows.size(), panel.bars.size()));
}

// Room at the right for the legend: of all panels the same, so that their axes are in line.
unsigned key_width(const Chart& chart) {
    size_t letters = 0;
    for (const Panel& panel : chart) {
        for (const Curve& curve : panel.curves) letters = std::max(letters, curve.title.size());
        for (const auto& [state, bars] : panel.bars) letters = std::max(letters, state.size());
    }
    return std::clamp(kKeySample + kLetter * static_cast<unsigned>(std::min<size_t>(letters, 100)),
                      kWidth / 5, kWidth / 2);
}

// The data of a panel, in blocks $d0, $d1, ...; returns the plot command.
std::string plot_of(std::string& script, const Panel& panel) {
    auto out = std::back_inserter(script);
    std::string plot;
    unsigned block = 0;
    const auto add = [&](const std::string& how) {
        plot += fmt::format("{} $d{} using {}", block == 0 ? "plot" : ",", block, how);
        ++block;
    };
    for (const Curve& curve : panel.curves) {
        fmt::format_to(out, "$d{} << EOD\n", block);
        for (const Point& point : curve.points) {
            fmt::format_to(out, "{} {}\n", point.x, point.y);
        }
        script += "EOD\n";
        const char* style =
            panel.form == Panel::Form::kSteps ? "steps lw 1.5" : "linespoints pt 7 ps 0.4 lw 1.5";
        add(fmt::format("1:2 with {} dt {} title {}", style, 1 + block / kColors,
                        title(curve.title)));
    }
    for (const auto& [state, bars] : panel.bars) {
        fmt::format_to(out, "$d{} << EOD\n", block);
        for (const Bar& bar : bars) {
            const double y = -static_cast<double>(bar.row);
            fmt::format_to(out, "{0} {1} {0} {2} {3} {4}\n", bar.from, y, bar.to, y - 0.4, y + 0.4);
        }
        script += "EOD\n";
        add(fmt::format("1:2:3:4:5:6 with boxxyerror fill solid 1 noborder fc {} title {}",
                        color_of(state), title(state)));
    }
    return plot;
}

void add_panel(std::string& script, const Panel& panel) {
    auto out = std::back_inserter(script);
    fmt::format_to(out, "set title {}\nset xlabel {}\nset ylabel {}\n", title(panel.title),
                   title(panel.x_label), title(panel.y_label));
    script += "unset logscale\nset format '%g'\nset ytics auto\nset autoscale\n";
    if (panel.log_x) script += "set logscale x 2\n";
    script += panel.log_y ? "set logscale y 10\n" : "set yrange [*<0:*]\n";
    if (panel.x_is_bytes) script += "set format x '%.0b%B'\n";
    if (panel.form == Panel::Form::kBars) {
        script += "set ytics (";
        for (size_t row = 0; row < panel.rows.size(); ++row) {
            fmt::format_to(out, "{}{} -{}", row == 0 ? "" : ", ", quoted(panel.rows[row]), row);
        }
        fmt::format_to(out, ") noenhanced\nset yrange [{}:0.7]\n",
                       -static_cast<double>(panel.rows.size()) + 0.3);
    }
    const std::string plot = plot_of(script, panel);
    script += plot + '\n';
}

// Runs gnuplot on this script.
ProgramOutput run_gnuplot(const std::string& script) {
    try {
        // Not what its user has set up for himself.
        return output_of({"gnuplot", "--default-settings"}, script);
    } catch (const std::system_error& error) {
        if (error.code().value() != ENOENT) throw;
        throw std::runtime_error("gnuplot is missing: install gnuplot-nox");
    }
}

}  // namespace

std::string gnuplot_script(const Chart& chart) {
    unsigned height = 0;
    for (const Panel& panel : chart) height += height_of(panel);
    std::string script;
    auto out = std::back_inserter(script);
    fmt::format_to(out,
                   "set encoding utf8\n"
                   "set terminal svg enhanced dynamic size {},{} font 'sans-serif,12' "
                   "background rgb 'white'\n"
                   "set multiplot\nset grid\nset key outside right top vertical\n"
                   "set lmargin at screen 0.17\nset rmargin at screen {}\n",
                   kWidth, height, 1 - static_cast<double>(key_width(chart)) / kWidth);
    double top = 1;
    for (const Panel& panel : chart) {
        const double part = static_cast<double>(height_of(panel)) / height;
        top -= part;
        fmt::format_to(out, "set origin 0,{}\nset size 1,{}\n", std::max(top, 0.0), part);
        add_panel(script, panel);
    }
    return script + "unset multiplot\n";
}

std::string draw_svg(const Chart& chart) {
    ProgramOutput drawn = run_gnuplot(gnuplot_script(chart));
    if (drawn.status != 0 || drawn.out.find("</svg>") == drawn.out.npos) {
        throw std::runtime_error(fmt::format("gnuplot fails: {}", drawn.err));
    }
    return std::move(drawn.out);
}

}  // namespace tools::plot
