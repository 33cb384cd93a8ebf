// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <istream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tools/plot/chart.h"
#include "tools/report/json.h"

namespace tools::plot {

// What links did over time, from traces (UCX_TRACE) and recordings (`swiftlane top --record`): both
// are dated by the same clock on one host.
class Timeline {
  public:
    // Events of one process. Only what is drawn is kept in memory.
    // Throws std::runtime_error or nlohmann::json::exception where it is no trace.
    void add_trace(std::istream& file);

    // One document of `swiftlane top`; they come in the order of time.
    void add_look(const Json& document);

    // Lanes, scores and rates of the links with the highest scores, `most` at most; dedicated lanes
    // of workers; how long traced operations took.
    Chart panels(size_t most) const;

  private:
    struct Stretch {
        double from;
        double to;
        std::string state;
    };
    struct Link {
        std::string worker;  // a name
        std::string peer;    // an id
        double best_score = 0;
        std::vector<Stretch> states;
        std::vector<Point> scores;
        std::vector<Point> messages;   // a second
        std::vector<Point> megabytes;  // a second
    };
    using LinkKey = std::pair<std::string, std::string>;  // worker, peer
    class TraceReader;

    std::string title_of(const Link& link) const;
    std::vector<const Link*> best(size_t most) const;
    void add_look_at(const Json& worker, double time);

    std::map<LinkKey, Link> links_;
    std::map<std::string, std::string> names_;                  // of workers, by id
    std::map<std::string, std::vector<Point>> dedicated_;       // by worker's name
    std::map<std::string, std::map<int, uint64_t>> durations_;  // by kind, by power of two
    double last_look_ = 0;
};

}  // namespace tools::plot
