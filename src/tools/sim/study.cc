// SPDX-License-Identifier: BSD-3-Clause
#include "tools/sim/study.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/sim/world.h"

namespace tools {
namespace {

// A lane is kept for at least so many rankings, as in the library's defaults.
constexpr int64_t kResidenceIntervals = 2;
// Simulated intervals are short, to save messages: all of each is looked at. With half of them, a
// score of two ends is off by a twentieth or more, and of 128 pairs beside one another some differ
// by more than the margin now and then; the library's windows hold a hundred times as many
// messages.
constexpr const char* kDuty = "1";
// The doubt about sampled scores grows as intervals shrink, with the root: 2 standard errors at the
// library's 100 ms are as much as this at the 200 us that runs are made with.
constexpr const char* kConfidence = "0.1";
// A receiver that is overrun makes its senders wait a millisecond, many intervals: it starts with
// the buffers that a long run would have come to.
constexpr const char* kReceiveBuffers = "2048";
// Of the usual length each of them would be a page or more of this process's memory that is hardly
// filled: a third of the work of 64 ranks. Messages that fit into short ones behave the same.
constexpr const char* kShortBuffer = "2k";
constexpr uint64_t kShortMessage = 1024;
constexpr double kRecovered = 0.95;
// No measured score earns a lane beside those that the program asks for.
constexpr const char* kUnreachableScore = "1e15";
// Bytes of a slice, UCX_BULK_SLICE_SIZE's default: large transfers save as much for each as for a
// message.
constexpr uint64_t kSlice = 65536;
// The rate before a move is the mean over so many intervals.
constexpr unsigned kReferenceIntervals = 5;

softhca::Model scaled_model(const StudyOptions& options) {
    softhca::Model model = options.model;
    const double scale = options.dc_cost_scale;
    model.dci_switch *= scale;
    model.dc_header *= scale;
    // What a DC work request costs more than one of RC.
    model.thread_gap_dc = model.thread_gap_rc + (model.thread_gap_dc - model.thread_gap_rc) * scale;
    model.nic_gap_dc = model.nic_gap_rc + (model.nic_gap_dc - model.nic_gap_rc) * scale;
    return model;
}

WorldOptions world_options(const StudyOptions& options, const std::string& mode) {
    WorldOptions world;
    world.ranks = options.bench.ranks;
    world.devices = options.devices;
    world.seed = options.bench.seed;
    world.model = scaled_model(options);
    world.interval = options.interval;
    world.variables = {
        {"UCX_TLS", "self,dc_mlx5,rc_mlx5"},
        {"UCX_LANES", mode == kOracle ? "dynamic" : mode},
        {"UCX_MAX_PRIORITY_EPS", std::to_string(options.cap)},
        {"UCX_IB_RX_QUEUE_INITIAL", kReceiveBuffers},
        {"UCX_DYNAMIC_TL_MARGIN", fmt::format("{}", options.margin)},
    };
    if (!options.shipped) {
        const auto set = [&world](const char* name, std::string value) {
            world.variables.emplace_back(name, std::move(value));
        };
        set("UCX_DYNAMIC_TL_SWITCH_INTERVAL", fmt::format("{}ns", options.interval));
        set("UCX_DYNAMIC_TL_MIN_RESIDENCE",
            fmt::format("{}ns", kResidenceIntervals * options.interval));
        set("UCX_DYNAMIC_TL_DUTY", kDuty);
        set("UCX_DYNAMIC_TL_CONFIDENCE", kConfidence);
    }
    if (options.bench.size_max <= kShortMessage) {
        world.variables.emplace_back("UCX_IB_SEG_SIZE", kShortBuffer);
    }
    if (options.judges(StudyOptions::Judgement::kRecovery)) {
        // Fewer initiators than hot peers: each message costs a change of target, and a hot set
        // that has moved away from its lanes shows in the rate.
        world.variables.emplace_back("UCX_DC_MLX5_NUM_DCI",
                                     std::to_string(std::max(1u, options.shift.hot / 2)));
    }
    world.variables.insert(world.variables.end(), options.variables.begin(),
                           options.variables.end());
    if (mode == kOracle)
        world.variables.emplace_back("UCX_DYNAMIC_TL_MIN_SCORE", kUnreachableScore);
    return world;
}

// Marks half-time on behalf of all ranks.
Task call_half_time(Rank& rank, JobObserver& observer, int64_t when) {
    co_await rank.sleep_until(when);
    observer.mark();
}

// The rank's part, once it has asked for its lanes of those links.
Task run_with_lanes(Rank& rank, const StudyOptions& options,
                    const std::vector<WeightedLink>& links) {
    for (const WeightedLink& link : links) {
        if (link.a != rank.index() && link.b != rank.index()) continue;
        const unsigned peer = link.a == rank.index() ? link.b : link.a;
        rank.connect(peer);
        tools::check(ucpx_ep_lanes_request(rank.endpoint(peer), UCPX_LANE_POLICY_DEDICATED),
                     "a lane for good");
    }
    co_await options.pattern->ranks.program(rank, options);
}

// The links that were used, by what weight() says of either direction.
template <typename Weight>
std::vector<WeightedLink> used_links(const JobObserver& observer, unsigned ranks, Weight weight) {
    std::vector<WeightedLink> links;
    for (unsigned a = 0; a < ranks; ++a) {
        for (unsigned b = a + 1; b < ranks; ++b) {
            const uint64_t both = weight(observer.link(a, b)) + weight(observer.link(b, a));
            if (both != 0) links.push_back({a, b, both});
        }
    }
    return links;
}

MatchingReport judge_matching(const StudyOptions& options, const JobObserver& observer,
                              const std::vector<LaneEntry>& map) {
    const unsigned ranks = options.bench.ranks;
    const std::vector<WeightedLink> links = used_links(
        observer, ranks, [](const LinkTraffic& way) { return way.messages - way.before_mark; });
    std::vector<WeightedLink> admitted;
    for (const WeightedLink& link : links) {
        const bool holds = std::ranges::any_of(map, [&](const LaneEntry& entry) {
            return entry.state == "established" && std::min(entry.rank, entry.peer) == link.a &&
                   std::max(entry.rank, entry.peer) == link.b;
        });
        if (holds) admitted.push_back(link);
    }
    return compare_matching(links, admitted, ranks, options.cap, options.margin);
}

void judge_switches(const StudyOptions& options, const JobObserver& observer, StudyRun& run) {
    const bool shifts = options.judges(StudyOptions::Judgement::kRecovery);
    const int64_t phase = shifts ? options.shift.time : run.duration;
    run.switches = observer.switches().size();
    for (const SwitchEvent& event : observer.switches()) {
        // The ranks' first phase starts a little after time 0, the end may be a little late.
        const int64_t index =
            std::min<int64_t>(event.time / phase, shifts ? options.shift.phases - 1 : 0);
        const int64_t in_phase = event.time - index * phase;
        if (in_phase > phase / 2) {
            ++run.late_switches;
        } else {
            run.settled = std::max(run.settled, in_phase);
        }
    }
}

// What dedicated lanes save of so much, in bytes.
uint64_t savings_of(uint64_t messages, uint64_t bytes) {
    return bytes + kSlice * messages;
}

double judge_lanes(const JobObserver& observer, unsigned ranks) {
    uint64_t all = 0, dedicated = 0;
    for (unsigned a = 0; a < ranks; ++a) {
        for (unsigned b = 0; b < ranks; ++b) {
            const LinkTraffic& link = observer.link(a, b);
            all += savings_of(link.messages, link.bytes);
            dedicated += savings_of(link.dedicated_messages, link.dedicated_bytes);
        }
    }
    return all == 0 ? 0 : static_cast<double>(dedicated) / static_cast<double>(all);
}

// A link is in use if messages went over it.
Promotions judge_promotions(const JobObserver& observer, const StudyRun& run, unsigned ranks) {
    Promotions promotions;
    for (unsigned a = 0; a < ranks; ++a) {
        for (unsigned b = a + 1; b < ranks; ++b) {
            if (observer.link(a, b).messages + observer.link(b, a).messages == 0) continue;
            ++promotions.links;
            promotions.promoted += std::ranges::any_of(run.result.map, [&](const LaneEntry& entry) {
                return entry.state == "established" && std::min(entry.rank, entry.peer) == a &&
                       std::max(entry.rank, entry.peer) == b;
            });
        }
    }
    const bool has_phases = observer.phases().size() > 2;
    for (const SwitchEvent& event : observer.switches()) {
        promotions.demotions += !event.promotion;
        promotions.later_switches += has_phases && event.time > observer.phases()[2];
    }
    return promotions;
}

void judge_gaps(const JobObserver& observer, unsigned ranks, StudyRun& run) {
    uint64_t messages = 0;
    for (unsigned a = 0; a < ranks; ++a) {
        for (unsigned b = 0; b < ranks; ++b) {
            const LinkTraffic& link = observer.link(a, b);
            if (link.longest_switch_gap == 0) continue;
            run.stall = std::max(run.stall, link.longest_switch_gap);
            run.steady_gap = std::max(run.steady_gap, link.longest_gap);
            run.typical_gap += static_cast<double>(link.sum_of_gaps);
            messages += link.gaps;
        }
    }
    if (messages != 0) run.typical_gap /= static_cast<double>(messages);
}

void judge_recovery(const StudyOptions& options, StudyRun& run) {
    const int64_t per_phase = options.shift.time / run.interval;
    const auto size = static_cast<int64_t>(run.timeline.size());
    for (unsigned phase = 1; phase < options.shift.phases; ++phase) {
        const int64_t moved = phase * per_phase;
        if (moved >= size || moved < kReferenceIntervals) continue;
        double before = 0;
        for (int64_t i = moved - kReferenceIntervals; i < moved; ++i) {
            before += static_cast<double>(run.timeline[i]) / kReferenceIntervals;
        }
        Recovery recovery;
        recovery.rate_before = before * 1e9 / static_cast<double>(run.interval);
        const auto is_low = [&](int64_t i) {
            return static_cast<double>(run.timeline[i]) < kRecovered * before;
        };
        // The ranks' phases start a little after their time: the fall may show in the next
        // interval.
        const int64_t end = std::min(moved + per_phase, size);
        int64_t back = is_low(moved) ? moved : moved + 1;
        while (back < end && is_low(back)) ++back;
        if (back < end) recovery.intervals = static_cast<unsigned>(back - moved);
        run.recoveries.push_back(recovery);
    }
}

}  // namespace

StudyRun run_mode(const StudyOptions& options, const std::string& mode,
                  const std::vector<WeightedLink>& traffic) {
    const std::vector<WeightedLink> held =
        mode == kOracle ? greedy_matching(traffic, options.bench.ranks, options.cap)
                        : std::vector<WeightedLink>{};
    World world(world_options(options, mode));
    JobObserver& observer = world.observer();
    world.run([&](Rank& rank) {
        if (rank.index() == 0 && options.judges(StudyOptions::Judgement::kMatching)) {
            rank.spawn(call_half_time(rank, observer, options.zipf.time / 2));
        }
        return run_with_lanes(rank, options, held);
    });

    StudyRun run;
    run.duration = world.now();
    run.interval = observer.interval();
    run.messages = observer.messages();
    run.timeline = observer.timeline();
    const softhca::Counters adapters = world.adapter_counters();
    run.doorbells = adapters.doorbells;
    run.work_requests = adapters.wqes;
    run.bytes = adapters.bytes;
    run.result.mode = mode;
    for (const auto& samples : world.samples()) run.result.rows.push_back(combine(samples));
    run.result.map = world.lanes();
    run.result.counters = world.counters();
    for (unsigned rank = 0; rank < world.size(); ++rank) {
        const SlotUse slots = world.slots(rank);
        run.cap = std::max(run.cap, slots.cap);
        run.peak = std::max(run.peak, slots.peak);
    }
    run.completion = observer.longest_completion();
    run.traffic = used_links(observer, world.size(), [](const LinkTraffic& way) {
        return savings_of(way.messages, way.bytes);
    });
    run.dedicated = judge_lanes(observer, world.size());
    judge_switches(options, observer, run);
    judge_gaps(observer, world.size(), run);
    if (options.judges(StudyOptions::Judgement::kMatching) && mode == "dynamic") {
        run.matching = judge_matching(options, observer, run.result.map);
    }
    if (options.judges(StudyOptions::Judgement::kRecovery)) judge_recovery(options, run);
    if (options.judges(StudyOptions::Judgement::kPromotions) && mode == "dynamic") {
        run.promotions = judge_promotions(observer, run, world.size());
    }
    world.run([](Rank& rank) { return rank.leave(); });
    return run;
}

}  // namespace tools
