// SPDX-License-Identifier: BSD-3-Clause
#include "tools/plot/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <stdexcept>

namespace tools::plot {
namespace {

constexpr const char* kTime = "time (s)";

// The power of two at or below; a sixteenth of a microsecond at least.
int power_of(double microseconds) {
    return static_cast<int>(std::floor(std::log2(std::max(microseconds, 1.0 / 16))));
}

double earliest_of(double earliest, const std::vector<Point>& points) {
    return points.empty() ? earliest : std::min(earliest, points.front().x);
}

Curve shifted(std::string title, const std::vector<Point>& points, double start) {
    Curve curve{std::move(title), points};
    for (Point& point : curve.points) point.x -= start;
    return curve;
}

}  // namespace

// The events of one file, which may be long: each is looked at and let go.
class Timeline::TraceReader {
  public:
    explicit TraceReader(Timeline& timeline) : timeline_(timeline) {}

    void event(const Json& event) {
        const std::string phase = event.at("ph").get<std::string>();
        const std::string category = event.at("cat").get<std::string>();
        const double time = event.at("ts").get<double>() * 1e-6;
        if (phase == "M") {
            name(event);
            return;
        }
        begin_ = std::min(begin_, time);
        end_ = std::max(end_, time);
        if (category == "lane") {
            change(event, time);
        } else if (phase == "X") {
            add_duration(event, event.at("dur").get<double>());
        } else if (phase == "b") {
            open_[operation(event)] = time;
        } else if (phase == "e") {
            if (const auto begun = open_.extract(operation(event))) {
                add_duration(event, (time - begun.mapped()) * 1e6);
            }
        }
    }

    // The last state of each link lasts until the trace ends.
    void finish() {
        for (const LinkKey& key : changed_) {
            Link& link = timeline_.links_[key];
            link.states.back().to = end_;
            link.scores.push_back({end_, link.scores.back().y});
        }
    }

  private:
    static std::string worker_of(const Json& event) {
        return fmt::format("{}:{}", event.at("pid").get<int64_t>(), event.at("tid").get<int64_t>());
    }
    static std::string operation(const Json& event) {
        return fmt::format("{} {} {}", event.at("cat").get<std::string>(),
                           event.at("name").get<std::string>(), event.at("id").get<std::string>());
    }

    void name(const Json& event) {
        const Json& arguments = event.at("args");
        const std::string worker = arguments.at("name").get<std::string>();
        worker_names_[worker_of(event)] = worker;
        if (arguments.contains("id")) timeline_.names_[arguments["id"].get<std::string>()] = worker;
    }

    void change(const Json& event, double time) {
        const Json& arguments = event.at("args");
        const std::string worker = worker_of(event);
        const LinkKey key{worker, arguments.at("peer").get<std::string>()};
        Link& link = timeline_.links_[key];
        if (changed_.insert(key).second) {
            const auto name = worker_names_.find(worker);
            link.worker = name == worker_names_.end() ? worker : name->second;
            link.peer = key.second;
            link.states.push_back({begin_, time, arguments.at("from").get<std::string>()});
        }
        if (time < link.states.back().from) {
            throw std::runtime_error("times go back: this trace has several runs in it");
        }
        const std::string state = event.at("name").get<std::string>();
        if (state != link.states.back().state) {
            link.states.back().to = time;
            link.states.push_back({time, time, state});
        }
        const double score = arguments.at("score").get<double>();
        link.scores.push_back({time, score});
        link.best_score = std::max(link.best_score, score);
    }

    void add_duration(const Json& event, double microseconds) {
        const std::string category = event.at("cat").get<std::string>();
        std::string kind = event.at("name").get<std::string>();
        if (!kind.starts_with(category)) kind = fmt::format("{} {}", category, kind);
        ++timeline_.durations_[kind][power_of(microseconds)];
    }

    Timeline& timeline_;
    double begin_ = std::numeric_limits<double>::max();
    double end_ = 0;
    std::set<LinkKey> changed_;
    std::map<std::string, std::string> worker_names_;
    std::map<std::string, double> open_;
};

void Timeline::add_trace(std::istream& file) {
    TraceReader reader(*this);
    const auto on_event = [&reader](int depth, Json::parse_event_t what, Json& parsed) {
        using What = Json::parse_event_t;
        const bool is_whole =
            what == What::object_end || what == What::array_end || what == What::value;
        if (depth != 1 || !is_whole) return true;
        reader.event(parsed);
        return false;  // not kept
    };
    const Json rest = Json::parse(file, on_event);
    reader.finish();
}

void Timeline::add_look(const Json& document) {
    const double time = document.at("time_s").get<double>();
    if (time < last_look_)
        throw std::runtime_error("times go back: several recordings in one file");
    for (const Json& process : document.at("processes")) {
        for (const Json& worker : process.at("workers")) add_look_at(worker, time);
    }
    last_look_ = time;
}

void Timeline::add_look_at(const Json& worker, double time) {
    const std::string id = worker.at("id").get<std::string>();
    const std::string name = worker.at("name").get<std::string>();
    names_[id] = name;
    dedicated_[name].push_back({time, worker.at("dedicated").get<double>()});
    for (const Json& endpoint : worker.at("endpoint_list")) {
        const std::string peer = endpoint.at("peer").get<std::string>();
        Link& link = links_[{id, peer}];
        link.worker = name;
        link.peer = peer;
        if (endpoint.contains("messages_per_s")) {
            link.messages.push_back({time, endpoint["messages_per_s"].get<double>()});
            link.megabytes.push_back({time, endpoint.at("bytes_per_s").get<double>() / 1e6});
        }
        if (!endpoint.contains("state")) continue;
        const std::string state = endpoint["state"].get<std::string>();
        const double score = endpoint.at("score").get<double>();
        link.scores.push_back({time, score});
        link.best_score = std::max(link.best_score, score);
        // It was in no selection at the last look: what came before has ended then.
        const bool goes_on = !link.states.empty() && link.states.back().to >= last_look_;
        if (goes_on) link.states.back().to = time;
        if (!goes_on || link.states.back().state != state)
            link.states.push_back({time, time, state});
    }
}

std::string Timeline::title_of(const Link& link) const {
    const auto peer = names_.find(link.peer);
    return fmt::format("{} to {}", link.worker, peer == names_.end() ? link.peer : peer->second);
}

std::vector<const Timeline::Link*> Timeline::best(size_t most) const {
    std::vector<const Link*> all;
    for (const auto& [key, link] : links_) all.push_back(&link);
    std::ranges::stable_sort(all, std::greater(), &Link::best_score);
    all.resize(std::min(all.size(), most));
    return all;
}

Chart Timeline::panels(size_t most) const {
    double start = std::numeric_limits<double>::max();
    for (const auto& [key, link] : links_) {
        if (!link.states.empty()) start = std::min(start, link.states.front().from);
        start = earliest_of(start, link.messages);
    }
    for (const auto& [name, points] : dedicated_) start = earliest_of(start, points);

    const std::vector<const Link*> shown = best(most);
    const std::string which = shown.size() == links_.size()
                                  ? ""
                                  : fmt::format(", {} of {} links", shown.size(), links_.size());
    Panel lanes{.title = "Lanes" + which, .x_label = kTime, .form = Panel::Form::kBars};
    Panel scores{.title = "Scores" + which,
                 .x_label = kTime,
                 .y_label = "ns saved in a second",
                 .form = Panel::Form::kSteps};
    Panel messages{.title = "Messages sent" + which, .x_label = kTime, .y_label = "messages/s"};
    Panel megabytes{.title = "Bytes sent" + which, .x_label = kTime, .y_label = "MB/s"};
    for (const Link* link : shown) {
        const std::string title = title_of(*link);
        if (!link->states.empty()) {
            for (const Stretch& stretch : link->states) {
                lanes.bars[stretch.state].push_back(
                    {lanes.rows.size(), stretch.from - start, stretch.to - start});
            }
            lanes.rows.push_back(title);
        }
        if (!link->scores.empty()) scores.curves.push_back(shifted(title, link->scores, start));
        if (!link->messages.empty()) {
            messages.curves.push_back(shifted(title, link->messages, start));
            megabytes.curves.push_back(shifted(title, link->megabytes, start));
        }
    }
    Panel dedicated{.title = "Dedicated lanes held",
                    .x_label = kTime,
                    .y_label = "lanes",
                    .form = Panel::Form::kSteps};
    for (const auto& [name, points] : dedicated_) {
        dedicated.curves.push_back(shifted(name, points, start));
    }
    Panel durations{.title = "How long operations took",
                    .x_label = "us, to the next power of two",
                    .y_label = "operations",
                    .form = Panel::Form::kSteps,
                    .log_x = true};
    for (const auto& [kind, counts] : durations_) {
        Curve& curve = durations.curves.emplace_back(Curve{kind, {}});
        for (int power = counts.begin()->first; power <= counts.rbegin()->first + 1; ++power) {
            const auto found = counts.find(power);
            const auto count = found == counts.end() ? 0 : static_cast<double>(found->second);
            curve.points.push_back({std::exp2(power), count});
        }
    }
    Chart chart;
    for (Panel* panel : {&lanes, &scores, &messages, &megabytes, &dedicated, &durations}) {
        if (!panel->curves.empty() || !panel->rows.empty()) chart.push_back(std::move(*panel));
    }
    return chart;
}

}  // namespace tools::plot
