// SPDX-License-Identifier: BSD-3-Clause
#include "tools/plot/results.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tools::plot {
namespace {

constexpr const char* kSize = "message size (bytes)";

void add_panel(Chart& chart, Panel panel, const std::vector<Curve>& curves) {
    if (curves.empty()) return;
    panel.curves = curves;
    chart.push_back(std::move(panel));
}

}  // namespace

Curve& Results::curve(std::vector<Curve>& curves, const std::string& title) {
    const auto found = std::ranges::find(curves, title, &Curve::title);
    return found != curves.end() ? *found : curves.emplace_back(Curve{title, {}});
}

// Axes are logarithmic: what was not measured, or is nothing, has no point.
void Results::add_row(const Json& row, const std::string& name) {
    const double size = row.at("size").get<double>();
    const auto add = [&](std::vector<Curve>& curves, const char* key, const char* what) {
        const double value = row.value(key, 0.0);
        if (size > 0 && value > 0) curve(curves, name + what).points.push_back({size, value});
    };
    add(bandwidth_, "mb_per_s", "");
    add(rate_, "messages_per_s", "");
    if (row.contains("latency_median_us")) {
        add(latency_, "latency_median_us", ", median");
        add(latency_, "latency_p99_us", ", 99 of 100 below");
    } else {
        add(latency_, "latency_us", "");
    }
}

void Results::add(const Json& document, const std::string& name) {
    std::string whose = name;
    if (document.value("emulated", false)) whose += " (emulated)";
    if (document.value("modelled", false)) whose += " (modelled)";
    for (const Json& row : document.at("rows")) {
        add_row(row, row.contains("lanes") ? whose + " " + row["lanes"].get<std::string>() : whose);
    }
    const Json modes = document.value("modes", Json::object());
    for (const auto& [mode, run] : modes.items()) {
        if (!run.contains("observed") || !run["observed"].contains("timeline")) continue;
        const double interval = document.at("options").at("interval_ns").get<double>() / 1e6;
        Curve& delivered = curve(deliveries_, fmt::format("{} {}", whose, mode));
        for (const Json& messages : run["observed"]["timeline"]) {
            const auto index = static_cast<double>(delivered.points.size());
            delivered.points.push_back({index * interval, messages.get<double>()});
        }
    }
}

Chart Results::panels() const {
    Chart chart;
    const auto add_by_size = [&](const char* title, const char* unit,
                                 const std::vector<Curve>& curves) {
        add_panel(chart,
                  {.title = title,
                   .x_label = kSize,
                   .y_label = unit,
                   .x_is_bytes = true,
                   .log_x = true,
                   .log_y = true},
                  curves);
    };
    add_by_size("Bandwidth", "MB/s", bandwidth_);
    add_by_size("Message rate", "messages/s", rate_);
    add_by_size("Latency", "us", latency_);
    add_panel(chart,
              {.title = "Messages delivered",
               .x_label = "virtual time (ms)",
               .y_label = "messages in an interval",
               .form = Panel::Form::kSteps},
              deliveries_);
    return chart;
}

}  // namespace tools::plot
