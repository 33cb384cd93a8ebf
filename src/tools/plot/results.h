// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "tools/plot/chart.h"
#include "tools/report/json.h"

namespace tools::plot {

// Results of perf, bench and sim, side by side.
class Results {
  public:
    // `name` says whose they are. Throws nlohmann::json::exception where the document is no result.
    void add(const Json& document, const std::string& name);

    // Bandwidth, rate and latency by size, and what a simulation delivered over time: what there
    // is.
    Chart panels() const;

  private:
    // The curve of that title, new if there is none yet.
    static Curve& curve(std::vector<Curve>& curves, const std::string& title);
    void add_row(const Json& row, const std::string& name);

    std::vector<Curve> bandwidth_;
    std::vector<Curve> rate_;
    std::vector<Curve> latency_;
    std::vector<Curve> deliveries_;
};

}  // namespace tools::plot
