// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "tools/plot/chart.h"

namespace tools::plot {

// An HTML page with the picture in it, and the figures of each panel as a table: it needs no other
// file and no network.
std::string html_page(const std::string& title, const std::string& svg, const Chart& chart);

}  // namespace tools::plot
