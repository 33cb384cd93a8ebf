// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "tools/plot/chart.h"

namespace tools::plot {

// What gnuplot is given to draw the chart. Each curve, and each kind of bar, becomes a group of the
// picture with its title.
std::string gnuplot_script(const Chart& chart);

// The chart as SVG, drawn by the gnuplot that PATH finds. Throws std::runtime_error if there is
// none or if it fails.
std::string draw_svg(const Chart& chart);

}  // namespace tools::plot
