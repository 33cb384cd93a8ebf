// SPDX-License-Identifier: BSD-3-Clause
// Many nodes, random delays, whole runs: what the protocol promises as a whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "unit/ucp/lanes/cluster.h"

namespace lanes_test {
namespace {

using ucp::lanes::kMillisecond;
using ucp::lanes::LinkId;
using ucp::lanes::Policy;
using ucp::lanes::Rank;
using ucp::lanes::with_margin;
using Pairs = std::set<std::pair<std::size_t, std::size_t>>;

constexpr Time kInterval = 100 * kMillisecond;

void heavy_tailed(Cluster& cluster, std::size_t degree, double tail) {
    cluster.measured.clear();
    std::uniform_real_distribution<double> uniform(1e-6, 1.0);
    for (std::size_t a = 0; a < cluster.size(); ++a) {
        for (std::size_t i = 0; i < degree; ++i) {
            const std::size_t b = cluster.random()() % cluster.size();
            if (a == b) continue;
            const double heat = 1000.0 * std::pow(uniform(cluster.random()), -1.0 / tail);
            cluster.measured[{a, b}] = static_cast<Score>(std::min(heat, 1e9));
        }
    }
}

Score sum_of(Cluster& cluster, std::size_t a, std::size_t b) {
    const auto score = [&](std::size_t from, std::size_t to) {
        const auto found = cluster.measured.find({from, to});
        return found == cluster.measured.end() ? Score{0} : found->second;
    };
    return score(a, b) + score(b, a);
}

Rank rank_of(Cluster& cluster, std::size_t a, std::size_t b) {
    const auto [low, high] = std::minmax(cluster[a].worker, cluster[b].worker);
    return {sum_of(cluster, a, b), LinkId{low, high, 0}};
}

Pairs all_links(Cluster& cluster) {
    Pairs links;
    for (const auto& [pair, score] : cluster.measured) {
        if (score != 0 && !cluster[pair.first].dead && !cluster[pair.second].dead) {
            links.insert(std::minmax(pair.first, pair.second));
        }
    }
    return links;
}

// An independent greedy b-matching over what is measured.
Pairs greedy(Cluster& cluster, std::size_t cap) {
    const Pairs links = all_links(cluster);
    std::vector<std::pair<std::size_t, std::size_t>> order(links.begin(), links.end());
    std::sort(order.begin(), order.end(), [&](const auto& one, const auto& other) {
        return rank_of(cluster, one.first, one.second) >
               rank_of(cluster, other.first, other.second);
    });
    std::vector<std::size_t> used(cluster.size());
    Pairs taken;
    for (const auto& [a, b] : order) {
        if (used[a] == cap || used[b] == cap) continue;
        ++used[a];
        ++used[b];
        taken.insert({a, b});
    }
    return taken;
}

double weight(Cluster& cluster, const Pairs& pairs) {
    double sum = 0;
    for (const auto& [a, b] : pairs) sum += static_cast<double>(sum_of(cluster, a, b));
    return sum;
}

// Links outside the matching that beat both ends' floors, margin included.
std::size_t blocking(Cluster& cluster, const Pairs& matching, const Config& config) {
    std::vector<std::vector<Rank>> mine(cluster.size());
    for (const auto& [a, b] : matching) {
        const Rank rank = rank_of(cluster, a, b);
        mine[a].push_back(rank);
        mine[b].push_back(rank);
    }
    const auto floor = [&](std::size_t a) {
        if (mine[a].size() < config.cap) return Rank{1, {}};
        const Rank worst = *std::min_element(mine[a].begin(), mine[a].end());
        return Rank{with_margin(worst.score, config.margin_permille), worst.id};
    };
    std::size_t count = 0;
    for (const auto& [a, b] : all_links(cluster)) {
        const Rank rank = rank_of(cluster, a, b);
        count += !matching.contains({a, b}) && rank > floor(a) && rank > floor(b);
    }
    return count;
}

Pairs admitted(Cluster& cluster) {
    const auto pairs = cluster.matched();
    return {pairs.begin(), pairs.end()};
}

void chatter(Cluster& cluster) {
    for (const auto& [pair, score] : cluster.measured) {
        if (cluster[pair.first].dead) continue;
        const auto [from, to] = pair;
        cluster.after(cluster.delay(0, 50 * kMillisecond), [&cluster, from = from, to = to] {
            cluster[from].send_data(to, 1 + cluster.random()() % 5);
            cluster[from].put(to);
        });
    }
}

std::string first_error(const Cluster& cluster) {
    return cluster.errors.empty() ? "" : cluster.errors.front();
}

Config small_config(std::uint32_t cap, std::uint32_t margin) {
    Config config = config_of_tests();
    config.cap = cap;
    config.margin_permille = margin;
    config.trickle_ratio = 0;
    config.window = 2;
    return config;
}

// Without a margin and with settled views the stable matching is unique: greedy's.
TEST(LanesSimulation, StaticPatternEqualsGreedyWithoutMargin) {
    for (std::uint64_t seed = 0; seed < part_of(600); ++seed) {
        const std::uint32_t cap = 1 + seed % 4;
        Cluster cluster(3 + seed % 8, small_config(cap, 0), seed);
        heavy_tailed(cluster, 4, 1.2);
        cluster.sample_every(kInterval);
        for (int burst = 0; burst < 10; ++burst) {
            chatter(cluster);
            cluster.run(cluster.now() + 300 * kMillisecond);
        }
        const std::uint64_t half_way = cluster.switches();
        cluster.run(2 * cluster.now());
        cluster.check_quiet();
        ASSERT_EQ("", first_error(cluster)) << "seed " << seed;
        ASSERT_EQ(half_way, cluster.switches()) << "seed " << seed;
        ASSERT_EQ(greedy(cluster, cap), admitted(cluster)) << "seed " << seed;
    }
}

TEST(LanesSimulation, StaticPatternIsStableWithinTheMargin) {
    double reached = 0, best = 0;
    for (std::uint64_t seed = 0; seed < part_of(300); ++seed) {
        const Config config = small_config(1 + seed % 4, 200);
        Cluster cluster(4 + seed % 12, config, seed);
        heavy_tailed(cluster, 6, 1.1);
        cluster.sample_every(kInterval);
        chatter(cluster);
        cluster.run(3000 * kMillisecond);
        const std::uint64_t half_way = cluster.switches();
        cluster.run(6000 * kMillisecond);
        cluster.check_quiet();
        ASSERT_EQ("", first_error(cluster)) << "seed " << seed;
        ASSERT_EQ(half_way, cluster.switches()) << "seed " << seed;
        ASSERT_EQ(0u, blocking(cluster, admitted(cluster), config)) << "seed " << seed;
        reached += weight(cluster, admitted(cluster));
        best += weight(cluster, greedy(cluster, config.cap));
    }
    EXPECT_GE(reached, 0.98 * best);
}

TEST(LanesSimulation, SixtyFourNodesReachGreedysWeight) {
    for (std::uint64_t seed = 0; seed < part_of(6); ++seed) {
        const Config config = small_config(4, 200);
        Cluster cluster(64, config, seed);
        heavy_tailed(cluster, 12, 1.1);
        cluster.sample_every(kInterval);
        cluster.run(3000 * kMillisecond);
        const std::uint64_t half_way = cluster.switches();
        cluster.run(6000 * kMillisecond);
        cluster.check_quiet();
        ASSERT_EQ("", first_error(cluster)) << "seed " << seed;
        ASSERT_EQ(half_way, cluster.switches()) << "seed " << seed;
        ASSERT_EQ(0u, blocking(cluster, admitted(cluster), config)) << "seed " << seed;
        ASSERT_GE(weight(cluster, admitted(cluster)),
                  0.95 * weight(cluster, greedy(cluster, config.cap)))
            << "seed " << seed;
        // Each slot is taken about once: the best links are asked for first.
        ASSERT_LE(half_way, 64u * 4u * 3u) << "seed " << seed;
    }
}

// Noise below the margin does not keep links moving.
TEST(LanesSimulation, NoiseBelowTheMarginSettles) {
    std::uint64_t settled = 0, moved = 0;
    for (std::uint64_t seed = 0; seed < part_of(60); ++seed) {
        Cluster cluster(8, small_config(2, 200), seed);
        heavy_tailed(cluster, 4, 1.2);
        const auto base = cluster.measured;
        cluster.sample_every(kInterval);
        cluster.run(3000 * kMillisecond);
        const std::uint64_t before = cluster.switches();
        const auto noise = [&](int steps) {
            for (int step = 0; step < steps; ++step) {
                for (const auto& [pair, score] : base) {
                    cluster.measured[pair] =
                        score - score / 32 + cluster.random()() % (score / 16 + 1);
                }
                cluster.run(cluster.now() + kInterval);
            }
        };
        // A link that stood at the very margin may move, once; none moves to and fro.
        noise(80);
        ASSERT_EQ("", first_error(cluster)) << "seed " << seed;
        for (std::size_t a = 0; a < cluster.size(); ++a) {
            for (const auto& [peer, link] : cluster[a].negotiator.links()) {
                ASSERT_LE(link.promotions, 2u) << "seed " << seed;
            }
        }
        settled += before;
        moved += cluster.switches() - before;
    }
    EXPECT_LE(moved * 20, settled);
}

// New hot links take over, old ones step down, data flows through every switch.
TEST(LanesSimulation, MovingHeat) {
    double reached = 0, best = 0;
    for (std::uint64_t seed = 0; seed < part_of(150); ++seed) {
        const Config config = small_config(1 + seed % 3, 200);
        Cluster cluster(3 + seed % 10, config, seed);
        cluster.sample_every(kInterval);
        for (int move = 0; move < 5; ++move) {
            const auto before = cluster.measured;
            heavy_tailed(cluster, 4, 1.2);
            for (const auto& [pair, score] : before) cluster.measured.try_emplace(pair, 0);
            // A new pattern leads within 20 sampling intervals, traffic going on.
            for (int i = 0; i < 10; ++i) {
                chatter(cluster);
                cluster.run(cluster.now() + 2 * kInterval);
            }
            ASSERT_EQ(0u, blocking(cluster, admitted(cluster), config))
                << "seed " << seed << " move " << move;
            reached += weight(cluster, admitted(cluster));
            best += weight(cluster, greedy(cluster, config.cap));
        }
        for (auto& [pair, score] : cluster.measured) score = 0;
        cluster.run(cluster.now() + 3000 * kMillisecond);
        cluster.check_quiet();
        ASSERT_EQ("", first_error(cluster)) << "seed " << seed;
        // What is cold gives its slot back although nobody wants it, and leaves no record.
        for (std::size_t i = 0; i < cluster.size(); ++i) {
            ASSERT_EQ(0u, cluster[i].negotiator.held()) << "seed " << seed;
            ASSERT_TRUE(cluster[i].negotiator.links().empty()) << "seed " << seed;
        }
    }
    EXPECT_GE(reached, 0.97 * best);
}

// Promotions and demotions forced at random moments, lanes that cannot be made, data and puts.
TEST(LanesSimulation, ForcedSwitchesUnderTraffic) {
    std::uint64_t switches = 0;
    for (std::uint64_t seed = 0; seed < part_of(300); ++seed) {
        Config config = small_config(1 + seed % 3, 200);
        config.min_residence = 0;
        config.retry_after = config.busy_retry;
        config.retry_max = 4 * kMillisecond;
        config.window = seed % 4;
        Cluster cluster(2 + seed % 4, config, seed);
        cluster.create_failures = seed % 5 == 0 ? 20 : 0;
        for (int i = 0; i < 300; ++i) {
            const std::size_t a = cluster.random()() % cluster.size();
            const std::size_t b =
                (a + 1 + cluster.random()() % (cluster.size() - 1)) % cluster.size();
            cluster[a].negotiator.advance(cluster.now());
            switch (cluster.random()() % 8) {
                case 0:
                    cluster[a].negotiator.set_policy(b, Policy::kScalable);
                    break;
                case 1:
                case 2:
                    cluster[a].negotiator.set_policy(b, Policy::kDedicated);
                    break;
                case 3:
                    cluster[a].negotiator.set_policy(b, Policy::kAuto);
                    break;
                default:
                    cluster[a].send_data(b, 1 + cluster.random()() % 20);
                    cluster[a].put(b);
            }
            cluster.run(cluster.now() + cluster.delay(0, 400'000));
        }
        for (std::size_t a = 0; a < cluster.size(); ++a) {
            for (std::size_t b = 0; b < cluster.size(); ++b) {
                if (a != b) cluster[a].negotiator.set_policy(b, Policy::kAuto);
            }
        }
        cluster.run(cluster.now() + 10000 * kMillisecond);
        cluster.check_quiet();
        ASSERT_EQ("", first_error(cluster)) << "seed " << seed;
        for (std::size_t a = 0; a < cluster.size(); ++a) {
            ASSERT_EQ(0u, cluster[a].negotiator.held()) << "seed " << seed;
            for (const auto& [peer, endpoint] : cluster[a].endpoints) {
                ASSERT_LE(endpoint.most_held, config.window + 1) << "seed " << seed;
                ASSERT_LE(endpoint.most_early, config.window) << "seed " << seed;
            }
        }
        switches += cluster.switches();
    }
    EXPECT_GE(switches, part_of(10000));
}

Config impatient_config(std::uint32_t cap) {
    Config config = small_config(cap, 0);
    config.wait_timeout = 50 * kMillisecond;
    config.refresh = 200 * kMillisecond;
    config.stale_after = 400 * kMillisecond;
    config.hold = 0;
    return config;
}

// Traffic while what is planned happens, and long after it the links of the greedy matching.
void expect_to_settle(Cluster& cluster, std::size_t cap) {
    for (int i = 0; i < 12; ++i) {
        chatter(cluster);
        cluster.run(cluster.now() + kInterval);
    }
    cluster.run(20000 * kMillisecond);
    cluster.check_quiet();
    ASSERT_EQ("", first_error(cluster));
    ASSERT_EQ(greedy(cluster, cap), admitted(cluster));
}

// Programs compute for a while and hear nothing. Whoever is awake posts what it sends at once, all
// the same, and in order; at the end the links are those of the greedy matching.
TEST(LanesSimulation, SleepersAtRandomStopNobody) {
    std::uint64_t parked = 0, early = 0, switches = 0;
    for (std::uint64_t seed = 0; seed < part_of(200); ++seed) {
        Config config = impatient_config(1 + seed % 3);
        config.window = 512;
        config.max_parked = seed % 4 == 0 ? 0 : 1 + seed % 5;
        Cluster cluster(3 + seed % 5, config, seed);
        heavy_tailed(cluster, 3, 1.2);
        cluster.sample_every(kInterval);
        cluster.on_step = [&] {
            for (std::size_t a = 0; a < cluster.size(); ++a) {
                parked = std::max<std::uint64_t>(parked, cluster[a].negotiator.parked());
            }
        };
        for (std::size_t i = 0; i < 4 * cluster.size(); ++i) {
            const std::size_t node = cluster.random()() % cluster.size();
            const Time begin = cluster.delay(0, 3000 * kMillisecond);
            const Time end =
                begin + cluster.delay(0, i % 3 == 0 ? 1500 * kMillisecond : 40 * kMillisecond);
            cluster.at(begin, [&cluster, node, end] { cluster.sleep(node, end); });
        }
        for (Time when = 0; when < 4000 * kMillisecond; when += 7 * kMillisecond) {
            cluster.at(when, [&cluster] {
                const std::size_t from = cluster.random()() % cluster.size();
                const std::size_t to = cluster.random()() % cluster.size();
                if (from == to || cluster[from].asleep) return;
                cluster[from].send_data(to, 1 + cluster.random()() % 3);
                cluster[from].put(to);
                const std::uint64_t wanted = cluster[from].endpoints[to].wanted;
                cluster.tell(from, kMillisecond / 2, [&cluster, from, to, wanted] {
                    if (cluster[from].endpoints[to].posted < wanted)
                        cluster.error("a sender waits");
                });
            });
        }
        for (int moves = 0; moves < 4; ++moves) {
            cluster.run(cluster.now() + 1000 * kMillisecond);
            const auto before = cluster.measured;
            heavy_tailed(cluster, 3, 1.2);
            for (const auto& [pair, score] : before) cluster.measured.insert({pair, 0});
        }
        cluster.run(cluster.now() + 20000 * kMillisecond);
        cluster.check_quiet();
        ASSERT_EQ("", first_error(cluster)) << "seed " << seed;
        ASSERT_EQ(greedy(cluster, config.cap), admitted(cluster)) << "seed " << seed;
        for (std::size_t a = 0; a < cluster.size(); ++a) {
            ASSERT_EQ(0u, cluster[a].negotiator.parked()) << "seed " << seed;
            for (const auto& [peer, endpoint] : cluster[a].endpoints) early += endpoint.most_early;
        }
        switches += cluster.switches();
    }
    EXPECT_GT(parked, 1u);
    EXPECT_GT(early, part_of(100));
    EXPECT_GT(switches, part_of(1000));
}

// A sleeper holds the only slot of whom others want.
TEST(LanesSimulation, ASlotBehindASleeperIsSoonInUse) {
    for (std::uint64_t seed = 0; seed < part_of(40); ++seed) {
        const Config config = small_config(1, 200);
        Cluster cluster(3, config, seed);
        cluster.measured = {{{0, 1}, 1000}};
        cluster.sample_every(kInterval / 10);
        cluster.run(1000 * kMillisecond);
        ASSERT_TRUE(cluster.established(0, 1)) << "seed " << seed;
        cluster.sleep(1, 60'000 * kMillisecond);
        cluster.run(cluster.now() + seed * 37 * kMillisecond);
        // Both ends ask, in turn.
        cluster.measured[{seed % 2 == 0 ? 2 : 0, seed % 2 == 0 ? 0 : 2}] = 5000;
        cluster.run(cluster.now() + kInterval / 10 + 100 * kMillisecond);
        EXPECT_TRUE(cluster.established(0, 2)) << "seed " << seed;
        EXPECT_EQ(1u, cluster[0].negotiator.parked()) << "seed " << seed;
        const std::uint64_t pings = cluster[0].negotiator.counters().pings;
        cluster.measured[{0, 1}] = 0;
        cluster.run(59'000 * kMillisecond);
        // One to be sure that it lives, ever more seldom.
        EXPECT_LE(cluster[0].negotiator.counters().pings - pings, 35u) << "seed " << seed;
        cluster.run(70'000 * kMillisecond);
        cluster.check_quiet();
        EXPECT_EQ("", first_error(cluster)) << "seed " << seed;
        EXPECT_EQ(0u, cluster[0].negotiator.parked()) << "seed " << seed;
    }
}

// Nodes die at random; survivors free the slots and settle among themselves.
TEST(LanesSimulation, DeathsAtRandom) {
    for (std::uint64_t seed = 0; seed < part_of(300); ++seed) {
        const Config config = impatient_config(1 + seed % 3);
        Cluster cluster(4 + seed % 6, config, seed);
        heavy_tailed(cluster, 3, 1.2);
        cluster.sample_every(kInterval);
        const std::size_t deaths = 1 + seed % 3;
        for (std::size_t i = 0; i < deaths; ++i) {
            cluster.at(cluster.delay(0, 900) * kMillisecond + cluster.delay(0, kMillisecond),
                       [&cluster, i] { cluster.kill(i); });
        }
        ASSERT_NO_FATAL_FAILURE(expect_to_settle(cluster, config.cap)) << "seed " << seed;
    }
}

// Ends forget their peers at random moments and live; all find to the same matching again.
TEST(LanesSimulation, ForgettingAtRandom) {
    std::uint64_t failures = 0;
    for (std::uint64_t seed = 0; seed < part_of(300); ++seed) {
        const Config config = impatient_config(1 + seed % 3);
        Cluster cluster(3 + seed % 4, config, seed);
        heavy_tailed(cluster, 3, 1.2);
        cluster.sample_every(kInterval);
        for (std::uint64_t i = 0; i < 2 + seed % 20; ++i) {
            const std::size_t a = cluster.random()() % cluster.size();
            const std::size_t b =
                (a + 1 + cluster.random()() % (cluster.size() - 1)) % cluster.size();
            cluster.at(cluster.delay(0, 900 * kMillisecond), [&cluster, a, b] {
                cluster[a].negotiator.advance(cluster.now());
                cluster.forget(a, b);
                cluster[b].send_data(a, 5);
            });
        }
        ASSERT_NO_FATAL_FAILURE(expect_to_settle(cluster, config.cap)) << "seed " << seed;
        for (std::size_t a = 0; a < cluster.size(); ++a) {
            failures += cluster[a].negotiator.counters().failures;
            ASSERT_EQ(0u, cluster[a].negotiator.counters().violations) << "seed " << seed;
        }
    }
    EXPECT_GT(failures, part_of(100));
}

// Endpoints and workers close at random moments; all of them hear `closed`, peers go on.
TEST(LanesSimulation, ClosesAtRandom) {
    for (std::uint64_t seed = 0; seed < part_of(200); ++seed) {
        Cluster cluster(3 + seed % 6, small_config(1 + seed % 3, 200), seed);
        heavy_tailed(cluster, 4, 1.2);
        cluster.sample_every(kInterval);
        for (const auto& [pair, score] : cluster.measured) {
            if (cluster.random()() % 4 != 0) continue;
            cluster.after(cluster.delay(0, 150 * kMillisecond), [&cluster, pair = pair] {
                cluster[pair.first].negotiator.advance(cluster.now());
                cluster[pair.first].negotiator.on_close(pair.second);
            });
        }
        const bool whole = seed % 2 == 0;
        if (whole) {
            cluster.after(cluster.delay(0, 250 * kMillisecond), [&cluster] {
                cluster[0].negotiator.advance(cluster.now());
                cluster[0].negotiator.withdraw_all();
            });
        }
        chatter(cluster);
        cluster.run(4000 * kMillisecond);
        cluster.check_quiet();
        ASSERT_EQ("", first_error(cluster)) << "seed " << seed;
        if (whole) {
            ASSERT_EQ(0u, cluster[0].negotiator.held()) << "seed " << seed;
        }
        for (std::size_t a = 0; a < cluster.size(); ++a) {
            for (const auto& [peer, link] : cluster[a].negotiator.links()) {
                if (link.life != Link::Life::kClosing) continue;
                ASSERT_EQ(LinkState::kIdle, link.state) << "seed " << seed;
                ASSERT_TRUE(cluster[a].endpoints[peer].closed) << "seed " << seed;
            }
        }
    }
}

// Neighbours send much to each other, all others a little, until that has settled.
void settle_with_trickle(Cluster& cluster, std::size_t workers) {
    for (std::size_t a = 0; a < workers; ++a) {
        for (std::size_t b = 0; b < workers; ++b) {
            if (a != b) cluster.measured[{a, b}] = (a ^ 1) == b ? 1'000'000 : 1'000;
        }
    }
    cluster.sample_every(kInterval);
    cluster.run(3000 * kMillisecond);
    cluster.check_quiet();
    ASSERT_EQ("", first_error(cluster));
}

// A few hot links and many that send a little: slots stay empty rather than go to the trickle.
TEST(LanesSimulation, TrickleStaysScalable) {
    for (std::uint64_t seed = 0; seed < part_of(20); ++seed) {
        Config config = config_of_tests();
        config.cap = 4;
        Cluster cluster(16, config, seed);
        ASSERT_NO_FATAL_FAILURE(settle_with_trickle(cluster, 16)) << "seed " << seed;
        Pairs hot;
        for (std::size_t a = 0; a < 16; a += 2) hot.insert({a, a + 1});
        ASSERT_EQ(hot, admitted(cluster)) << "seed " << seed;
    }
}

// With slots for all even those that send a little have one, and keep it.
TEST(LanesSimulation, TrickleTakesFreeSlots) {
    for (std::uint64_t seed = 0; seed < part_of(20); ++seed) {
        Config config = config_of_tests();
        config.cap = 4;
        Cluster cluster(5, config, seed);
        ASSERT_NO_FATAL_FAILURE(settle_with_trickle(cluster, 5)) << "seed " << seed;
        ASSERT_EQ(all_links(cluster), admitted(cluster)) << "seed " << seed;
        // One promotion at each end.
        ASSERT_EQ(20u, cluster.switches()) << "seed " << seed;
    }
}

// Every link as warm as any other, more links than slots: ties are broken once.
TEST(LanesSimulation, AllToAllDoesNotChurn) {
    for (std::uint64_t seed = 0; seed < part_of(10); ++seed) {
        Config config = config_of_tests();
        config.cap = 4;
        Cluster cluster(24, config, seed);
        for (std::size_t a = 0; a < 24; ++a) {
            for (std::size_t b = 0; b < 24; ++b) {
                if (a != b) cluster.measured[{a, b}] = 5'000;
            }
        }
        cluster.sample_every(kInterval);
        cluster.run(3000 * kMillisecond);
        const std::uint64_t half_way = cluster.switches();
        cluster.run(6000 * kMillisecond);
        cluster.check_quiet();
        ASSERT_EQ("", first_error(cluster)) << "seed " << seed;
        ASSERT_EQ(half_way, cluster.switches()) << "seed " << seed;
        ASSERT_LE(half_way, 24u * 4u) << "seed " << seed;  // one promotion counted at both ends
    }
}

// One-way traffic promotes: the receiver's program does nothing but progress.
TEST(LanesSimulation, OneWayTrafficPromotes) {
    Cluster cluster(2, small_config(1, 200), 1);
    cluster.measured[{0, 1}] = 1000;
    cluster.sample_every(kInterval);
    cluster.run(300 * kMillisecond);
    EXPECT_TRUE(cluster.established(0, 1));
    EXPECT_TRUE(cluster.established(1, 0));
    EXPECT_EQ(1000u, cluster[1].negotiator.find(0)->score());
}

}  // namespace
}  // namespace lanes_test
