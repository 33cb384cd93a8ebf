// SPDX-License-Identifier: BSD-3-Clause
// Whole runs with several faults each, of all kinds, as many as there is time for: `make
// check-seeds` has a million. LANES_SEEDS=FIRST:COUNT says which; a seed that fails is one line.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "unit/ucp/lanes/cluster.h"

namespace lanes_test {
namespace {

using ucp::lanes::kMillisecond;
using ucp::lanes::Policy;

struct Seeds {
    std::uint64_t first, count;
};

Seeds wanted_seeds() {
    Seeds seeds{0, part_of(1500)};
    const char* text = std::getenv("LANES_SEEDS");
    if (text == nullptr) return seeds;
    const bool is_good = std::sscanf(text, "%lu:%lu", &seeds.first, &seeds.count) == 2;
    EXPECT_TRUE(is_good) << "LANES_SEEDS=" << text << " is not FIRST:COUNT";
    return seeds;
}

class FaultyRun {
  public:
    static constexpr unsigned kLeastFaults = 2;
    static constexpr std::uint64_t kLeastSwitches = 20;

    explicit FaultyRun(std::uint64_t seed)
        : config_(config_of(seed)),
          cluster_(3 + seed / 3 % 4, config_, seed),
          forgets_(seed / 2 % 2 != 0) {
        cluster_.create_failures = seed % 5 == 0 ? 20 : 0;
        if (seed % 7 == 0) cluster_.most_lanes = config_.cap + 1;
    }

    // Links are wanted and not wanted any more, with traffic on all of them, until enough has
    // happened; then nobody wants anything.
    void play() {
        for (unsigned step = 0; step < kMostSteps && !is_enough(step); ++step) {
            const auto [a, b] = any_pair();
            if (may_act(a, b)) act(a, b);
            if (chance(100 / kLeastFaults)) break_something();
            cluster_.run(cluster_.now() + cluster_.delay(0, 700'000));
        }
        for (std::size_t a = 0; a < cluster_.size(); ++a) {
            for (std::size_t b = 0; b < cluster_.size(); ++b) {
                if (a == b || cluster_[a].dead) continue;
                cluster_[a].negotiator.set_policy(b, Policy::kAuto);
            }
        }
        cluster_.run(cluster_.now() + 10'000 * kMillisecond);
    }

    // Of what must hold, what does not; empty if all does.
    std::string verdict() {
        cluster_.check_quiet();
        if (!cluster_.errors.empty()) return cluster_.errors.front();
        for (std::size_t a = 0; a < cluster_.size(); ++a) {
            const Node& node = cluster_[a];
            if (node.dead) continue;
            if (node.negotiator.held() != 0) return "a lane that nobody wants";
            if (node.negotiator.parked() != 0) return "a lane that is parked for ever";
            if (node.kept.size() != node.negotiator.kept()) return "kept lanes that differ";
            if (node.negotiator.counters().violations != 0) return "a violation";
        }
        if (faults_ < kLeastFaults) return "too few faults";
        if (cluster_.switches() < kLeastSwitches) return "too few switches";
        return "";
    }
    unsigned faults() const { return faults_; }
    std::uint64_t switches() const { return cluster_.switches(); }

  private:
    static constexpr unsigned kMostSteps = 3000;

    static Config config_of(std::uint64_t seed) {
        Config config;
        config.cap = 1 + seed % 3;
        config.trickle_ratio = 0;
        config.min_residence = 0;
        config.retry_after = config.busy_retry;
        config.retry_max = 4 * kMillisecond;
        config.keep = seed % 2 == 0 ? 60'000 * kMillisecond : 2 * kMillisecond;
        config.max_parked = seed % 6;
        config.wait_timeout = 20 * kMillisecond;
        config.patience = kMillisecond;
        config.window = 512;
        return config;
    }

    bool chance(unsigned in) { return cluster_.random()() % in == 0; }
    std::pair<std::size_t, std::size_t> any_pair() {
        const std::size_t a = cluster_.random()() % cluster_.size();
        return {a, (a + 1 + cluster_.random()() % (cluster_.size() - 1)) % cluster_.size()};
    }
    bool may_act(std::size_t a, std::size_t b) {
        return !cluster_[a].dead && !cluster_[a].asleep && !cluster_[a].endpoints[b].failed;
    }
    bool is_enough(unsigned step) const {
        return step >= 100 && faults_ >= kLeastFaults && cluster_.switches() >= kLeastSwitches;
    }

    void act(std::size_t a, std::size_t b) {
        cluster_[a].negotiator.advance(cluster_.now());
        switch (cluster_.random()() % 8) {
            case 0:
            case 1:
                cluster_[a].negotiator.set_policy(b, Policy::kScalable);
                break;
            case 2:
            case 3:
            case 4:
                cluster_[a].negotiator.set_policy(b, Policy::kDedicated);
                break;
            case 5:
                cluster_[a].negotiator.set_policy(b, Policy::kAuto);
                break;
            default:
                break;
        }
        cluster_[a].send_data(b, 1 + cluster_.random()() % 5);
        cluster_[a].put(b);
    }

    void break_something() {
        const auto [a, b] = any_pair();
        if (!may_act(a, b)) return;
        cluster_[a].negotiator.advance(cluster_.now());
        switch (cluster_.random()() % 6) {
            case 0:  // three are left
                if (is_anybody_dead_ || cluster_.size() == 3) return;
                is_anybody_dead_ = true;
                cluster_.kill(a);
                break;
            case 1:
            case 2:
                // What a lost endpoint had sent and its peer sleeps over is in no order with what
                // the next one sends: a run has the one or the other.
                if (forgets_) {
                    cluster_.forget(a, b);
                } else {
                    cluster_.sleep(a, cluster_.now() + cluster_.delay(0, 6 * kMillisecond));
                }
                break;
            case 3:
                if (forgets_) return;
                cluster_.sleep(a, cluster_.now() + cluster_.delay(0, 200 * kMillisecond));
                break;
            case 4:
                if (!cluster_[a].kept.contains(b)) return;
                cluster_[a].lose_kept(b);
                break;
            default:
                cluster_[a].negotiator.on_lane_full(b);
        }
        ++faults_;
    }

    const Config config_;
    Cluster cluster_;
    const bool forgets_;
    unsigned faults_ = 0;
    bool is_anybody_dead_ = false;
};

TEST(LanesSeeds, FaultsOfAllKindsAtRandom) {
    const Seeds seeds = wanted_seeds();
    std::uint64_t faults = 0, switches = 0;
    for (std::uint64_t i = 0; i < seeds.count; ++i) {
        const std::uint64_t seed = seeds.first + i;
        FaultyRun run(seed);
        run.play();
        ASSERT_EQ("", run.verdict()) << "seed " << seed;
        faults += run.faults();
        switches += run.switches();
    }
    std::printf("%lu seeds, %lu faults, %lu switches\n", seeds.count, faults, switches);
}

}  // namespace
}  // namespace lanes_test
