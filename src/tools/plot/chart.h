// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tools::plot {

struct Point {
    double x;
    double y;
};

struct Curve {
    std::string title;
    std::vector<Point> points;
};

struct Bar {
    size_t row;  // of Panel::rows
    double from;
    double to;
};

// A picture with axes of its own; a chart has its panels one below the other.
struct Panel {
    enum class Form : uint8_t { kLines, kSteps, kBars };

    std::string title;
    std::string x_label;
    std::string y_label{};
    Form form = Form::kLines;
    bool x_is_bytes = false;
    bool log_x = false;                              // powers of two; then all x are above zero
    bool log_y = false;                              // powers of ten; then all y are above zero
    std::vector<Curve> curves{};                     // kLines, kSteps
    std::vector<std::string> rows{};                 // kBars: from the top
    std::map<std::string, std::vector<Bar>> bars{};  // kBars: by what they stand for
};

using Chart = std::vector<Panel>;

// What gnuplot is given to draw the chart. Each curve, and each kind of bar, becomes a group of the
// picture with its title.
std::string gnuplot_script(const Chart& chart);

// The chart as SVG, drawn by the gnuplot that PATH finds. Throws std::runtime_error if there is
// none or if it fails.
std::string draw_svg(const Chart& chart);

}  // namespace tools::plot
