// SPDX-License-Identifier: BSD-3-Clause
#include "unit/ucp/lanes/schedule.h"

#include <algorithm>
#include <array>

namespace lanes_test {

using ucp::lanes::kMillisecond;
using ucp::lanes::Policy;

namespace {

constexpr std::size_t kSteps = 120;

struct Frequency {
    Action action;
    const char* name;
    unsigned weight;  // how often it is chosen
    Time longest;     // `amount` of it is up to this
};
constexpr std::array kActions{
    Frequency{Action::kPromote, "Promote", 30, 0},
    Frequency{Action::kDemote, "Demote", 12, 0},
    Frequency{Action::kLeaveAlone, "LeaveAlone", 8, 0},
    Frequency{Action::kSend, "Send", 30, 0},
    Frequency{Action::kScore, "Score", 20, 0},
    Frequency{Action::kSleep, "Sleep", 3, 60 * kMillisecond},
    Frequency{Action::kDie, "Die", 1, 0},
    Frequency{Action::kForget, "Forget", 1, 0},
    Frequency{Action::kLaneFull, "LaneFull", 2, 0},
    Frequency{Action::kLoseKept, "LoseKept", 2, 0},
    Frequency{Action::kSlow, "Slow", 2, 40 * kMillisecond},
    Frequency{Action::kFewLanes, "FewLanes", 2, 20 * kMillisecond},
};

const Frequency& of(Action action) {
    return *std::ranges::find(kActions, action, &Frequency::action);
}

bool is_fault(Action action) {
    return action >= Action::kSleep;
}

std::size_t workers_of(std::uint64_t seed) {
    return 3 + seed % 4;
}

Config config_of(std::uint64_t seed) {
    Config config = config_of_tests();
    config.cap = 1 + seed / 4 % 3;
    if (seed % 5 == 4) config.host_cap = 1 + seed / 8 % 2;
    config.trickle_ratio = 0;
    config.min_residence = 0;
    config.retry_after = config.busy_retry;
    config.retry_max = 4 * kMillisecond;
    config.keep = seed / 2 % 2 == 0 ? 60'000 * kMillisecond : 2 * kMillisecond;
    config.max_parked = seed / 12 % 5;
    config.wait_timeout = 20 * kMillisecond;
    config.patience = kMillisecond;
    config.refresh = 200 * kMillisecond;
    config.stale_after = 400 * kMillisecond;
    config.hold = 0;
    config.window = 512;
    return config;
}

// Each timer's time, but for what takes longer than a schedule.
std::vector<Time> timers_of(const Config& config) {
    std::vector<Time> timers{config.busy_retry,   config.retry_max, config.patience,
                             config.wait_timeout, config.refresh,   config.stale_after};
    if (config.keep < config.refresh) timers.push_back(config.keep);
    return timers;
}

// One play of a schedule.
class Play {
  public:
    explicit Play(std::uint64_t seed) : cluster_(workers_of(seed), config_of(seed), seed) {
        const Weather weather = weather_of(seed);
        if (weather.has_tails) cluster_.tails = timers_of(config_of(seed));
        for (std::size_t i = 0; i < cluster_.size() && weather.has_skew; ++i) {
            cluster_[i].clock = {cluster_.delay(0, 5'000 * kMillisecond),
                                 static_cast<std::int64_t>(cluster_.delay(0, 400)) - 200};
        }
        cluster_.sample_every(10 * kMillisecond);
    }

    void step(const Step& step) {
        cluster_.run(cluster_.now() + step.after);
        const std::size_t a = step.a, b = step.b;
        if (!can_act(a, b)) return;
        Node& node = cluster_[a];
        Negotiator& negotiator = node.negotiator;
        node.advance();
        switch (step.action) {
            case Action::kPromote:
                negotiator.set_policy(b, Policy::kDedicated);
                break;
            case Action::kDemote:
                negotiator.set_policy(b, Policy::kScalable);
                break;
            case Action::kLeaveAlone:
                negotiator.set_policy(b, Policy::kAuto);
                break;
            case Action::kSend:
                break;
            case Action::kScore:
                cluster_.measured[{a, b}] = step.amount;
                break;
            case Action::kSleep:
                cluster_.sleep(a, cluster_.now() + step.amount);
                break;
            case Action::kDie:
                if (alive() < 3) return;
                cluster_.kill(a);
                break;
            case Action::kForget:
                cluster_.forget(a, b);
                cluster_[b].send_data(a, 1);
                break;
            case Action::kLaneFull:
                negotiator.on_lane_full(b);
                break;
            case Action::kLoseKept:
                node.lose_kept(b);
                break;
            case Action::kSlow:
                cluster_.slow_until = cluster_.now() + step.amount;
                break;
            case Action::kFewLanes:
                node.no_lanes_until = cluster_.now() + step.amount;
                break;
        }
        outcome_.faults += is_fault(step.action);
        if (node.dead) return;
        node.send_data(b, 1 + a % 3);
        node.put(b);
    }

    // From now on messages take as long as they usually do.
    void calm_down() { cluster_.tails.clear(); }

    void promote_and_demote(std::uint64_t least_switches) {
        constexpr int kMostRounds = 200;
        for (int round = 0; round < kMostRounds && cluster_.switches() < least_switches; ++round) {
            const std::size_t a = cluster_.random()() % cluster_.size();
            const std::size_t b =
                (a + 1 + cluster_.random()() % (cluster_.size() - 1)) % cluster_.size();
            step({0, Action::kLeaveAlone, b, a, 0});
            step({5 * kMillisecond, Action::kPromote, a, b, 0});
            step({5 * kMillisecond, Action::kDemote, a, b, 0});
        }
    }

    Outcome end() {
        for (auto& [pair, score] : cluster_.measured) score = 0;
        cluster_.run(cluster_.now() + 100 * kMillisecond);  // whoever sleeps is awake
        for (std::size_t a = 0; a < cluster_.size(); ++a) {
            for (std::size_t b = 0; b < cluster_.size(); ++b) {
                if (!can_act(a, b)) continue;
                cluster_[a].advance();
                cluster_[a].negotiator.set_policy(b, Policy::kAuto);
            }
        }
        cluster_.run(cluster_.now() + 10'000 * kMillisecond);
        cluster_.check_quiet();
        for (std::size_t a = 0; a < cluster_.size(); ++a) {
            const Node& node = cluster_[a];
            if (node.dead) continue;
            const std::string who = "worker " + std::to_string(a);
            if (node.negotiator.held() != 0) cluster_.error(who + " holds a slot for nobody");
            if (node.negotiator.parked() != 0) cluster_.error(who + " has a parked lane");
            if (node.kept.size() != node.negotiator.kept()) {
                cluster_.error(who + " keeps another number of lanes than it has");
            }
            if (node.negotiator.counters().violations != 0) {
                cluster_.error(who + " saw a violation of the protocol");
            }
        }
        if (!cluster_.errors.empty()) outcome_.error = cluster_.errors.front();
        outcome_.switches = cluster_.switches();
        return outcome_;
    }

  private:
    bool can_act(std::size_t a, std::size_t b) {
        const Node& node = cluster_[a];
        return !node.dead && !node.asleep && !cluster_[a].endpoints[b].failed;
    }
    std::size_t alive() {
        std::size_t count = 0;
        for (std::size_t i = 0; i < cluster_.size(); ++i) count += !cluster_[i].dead;
        return count;
    }

    Cluster cluster_;
    Outcome outcome_;
};

}  // namespace

const char* name(Action action) {
    return of(action).name;
}

Weather weather_of(std::uint64_t seed) {
    const std::uint64_t drawn = std::mt19937_64(seed + 1)();
    return {drawn % 2 == 0, drawn / 2 % 2 == 0};
}

std::vector<Step> schedule_of(std::uint64_t seed) {
    std::mt19937_64 random(~seed);
    unsigned all = 0;
    for (const Frequency& one : kActions) all += one.weight;
    const std::size_t workers = workers_of(seed);
    std::vector<Step> schedule;
    for (std::size_t i = 0; i < kSteps; ++i) {
        unsigned drawn = static_cast<unsigned>(random() % all);
        const Frequency* chosen = kActions.data();
        for (; drawn >= chosen->weight; ++chosen) drawn -= chosen->weight;
        const std::size_t a = random() % workers;
        const std::size_t b = (a + 1 + random() % (workers - 1)) % workers;
        std::uint64_t amount = 0;
        if (chosen->action == Action::kScore) amount = random() % 4 == 0 ? 0 : random() % 5000;
        // Most short, few long.
        if (chosen->longest != 0) amount = 1 + random() % (chosen->longest >> random() % 8);
        schedule.push_back({random() % (700'000), chosen->action, a, b, amount});
    }
    return schedule;
}

Outcome play(std::uint64_t seed, const std::vector<Step>& schedule, std::uint64_t least_switches) {
    Play play(seed);
    for (const Step& step : schedule) play.step(step);
    play.calm_down();
    play.promote_and_demote(least_switches);
    return play.end();
}

std::vector<Step> shrink(std::vector<Step> schedule,
                         const std::function<bool(const std::vector<Step>&)>& fails) {
    for (std::size_t length = schedule.size() / 2; length > 0; length /= 2) {
        for (std::size_t first = 0; first + length <= schedule.size();) {
            std::vector<Step> less = schedule;
            const auto begin = less.begin() + static_cast<std::ptrdiff_t>(first);
            const auto end = begin + static_cast<std::ptrdiff_t>(length);
            // What follows happens when it did.
            Time waited = 0;
            for (auto step = begin; step != end; ++step) waited += step->after;
            if (end != less.end()) end->after += waited;
            less.erase(begin, end);
            if (fails(less)) {
                schedule = std::move(less);
            } else {
                first += length;
            }
        }
    }
    return schedule;
}

std::string as_test(std::uint64_t seed, const std::vector<Step>& schedule) {
    std::string text = "TEST(LanesSchedules, Seed" + std::to_string(seed) +
                       ") {\n    EXPECT_EQ(\"\", play(" + std::to_string(seed) + ", {\n";
    for (const Step& step : schedule) {
        text += "        {" + std::to_string(step.after) + ", Action::k" + name(step.action) +
                ", " + std::to_string(step.a) + ", " + std::to_string(step.b) + ", " +
                std::to_string(step.amount) + "},\n";
    }
    return text + "    }).error);\n}\n";
}

}  // namespace lanes_test
