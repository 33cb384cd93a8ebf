// SPDX-License-Identifier: BSD-3-Clause

// The negotiation of thousands of workers, with the library's defaults: the negotiator itself, over
// a network and adapters that are times alone. Each worker sends by Zipf's law, in an order of the
// peers of its own, and measures that with the error of a sample. At the end the links with a lane
// are compared with those of a greedy b-matching. Exit status 0: nothing is wrong with them.
//   lanes_scale WORKERS [CAP [INTERVALS [SEED]]]

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "perf/counting.h"
#include "ucp/lanes/negotiator.h"
#include "ucs/sys/random.h"
#include "unit/ucp/lanes/config.h"

namespace lanes_test {
namespace {

using ucp::lanes::Change;
using ucp::lanes::Config;
using ucp::lanes::config_of_tests;
using ucp::lanes::kMillisecond;
using ucp::lanes::kNever;
using ucp::lanes::LinkState;
using ucp::lanes::Message;
using ucp::lanes::Negotiator;
using ucp::lanes::Peer;
using ucp::lanes::PeerId;
using ucp::lanes::Score;
using ucp::lanes::Time;

// What the library has without a variable set (docs/design/lanes.md).
constexpr Time kInterval = 100 * kMillisecond;
constexpr Score kMinScore = 6000;
constexpr std::size_t kTrackedForALane = 16, kLeastTracked = 64;
constexpr double kDecay = 0.8, kDuty = 0.1, kConfidence = 2;
// Messages a second of each worker, and what a dedicated lane saves of one, in nanoseconds.
constexpr double kMessages = 1e6, kSaved = 59;
// Peers that a worker sends to: Zipf's law leaves the others less than the trickle of rule 5.
constexpr std::size_t kMostPeers = 1024;
constexpr Time kWire = 2'000, kAdapter = 200'000, kLocal = 1'000;

// So many scores are handed over in one call of progress, as the driver does.
constexpr std::size_t kScoresAtOnce = 3;

class World;

// A worker. A peer's handle is its number.
class Node final : public ucp::lanes::Sink {
  public:
    Node(World& world, unsigned number, const Config& config, std::uint64_t id)
        : negotiator(config, id, *this), world_(world), number_(number) {}

    void sample();
    void settle_timer();

    PeerId identify(Peer peer) override;
    void send(Peer peer, const Message& message) override;
    void create_lane(Peer peer) override { make(peer); }
    void connect_lane(Peer peer, std::span<const std::uint8_t>) override;
    void destroy_lane(Peer peer) override { give_up(peer); }
    void keep_lane(Peer peer) override { give_up(peer); }
    void take_lane(Peer peer) override { make(peer); }
    void drop_kept_lane(const PeerId&) override {}
    bool makes_room(const PeerId&, Peer) override { return true; }
    void start_tx_switch(Peer peer, const Message& mark) override { post_marker(peer, mark); }
    void open_tx_window(Peer) override {}
    void open_rx_gate(Peer) override {}
    void stop_tx_and_mark(Peer peer, const Message& dmark) override { post_marker(peer, dmark); }
    void flush_lane(Peer peer) override;
    void open_early(Peer) override {}
    void resume_tx(Peer) override {}
    void fail_endpoint(Peer, ucs_status_t) override;
    void closed(Peer) override {}
    void notify(Peer peer, const Change& change) override;

    struct Traffic {
        unsigned peer;
        double rate;  // time saved by a lane, ns a second
        // What is known of it, as ucs::UsageTracker does: the mean, and the variance of what the
        // intervals saw.
        double mean = 0, noise = 0;
    };
    std::vector<Traffic> traffic;  // the most first
    Negotiator negotiator;
    unsigned lanes = 0;
    Time scheduled = kNever;

  private:
    void make(Peer peer);
    void give_up(Peer peer);
    void post_marker(Peer peer, const Message& marker);

    World& world_;
    const unsigned number_;
    bool is_first_ = true;  // nothing was measured yet
};

// Whom workers send to.
enum class Pattern : std::uint8_t {
    kZipf,     // everybody to many, by Zipf's law
    kClients,  // all others to worker 0, and it to all of them, each as much as any other
};

class World {
  public:
    // @param messages  a second, of each worker, or of all clients together
    World(Pattern pattern, unsigned workers, std::uint32_t cap, std::uint64_t seed,
          double messages = kMessages);
    void run(Time end);
    // From now on what worker 0 does is done within perf_measured_server().
    void measure_server() {
        measures_server_ = true;
        perf::start_counting();
    }

    Node& operator[](std::size_t number) { return *nodes_[number]; }
    std::size_t size() const { return nodes_.size(); }
    Time now() const { return now_; }
    std::uint64_t id_of(std::size_t number) const { return ids_[number]; }
    std::mt19937_64& random() { return random_; }

    // Times of one kind are all alike, so what happens to a link keeps its order.
    void after(Time delay, unsigned node, std::function<void(Node&)> what) {
        due_.push({now_ + delay, order_++, node, std::move(what)});
    }
    void wake(unsigned node, Time when) { timers_.push({when, order_++, node}); }
    void deliver(unsigned from, Peer to, const Message& message);

    std::uint64_t messages = 0, scores = 0, switches = 0;
    std::string error;

  private:
    struct Timer {
        Time when;
        std::uint64_t order;
        unsigned node;
        bool operator>(const Timer& other) const {
            return std::pair(when, order) > std::pair(other.when, other.order);
        }
    };
    struct Due : Timer {
        std::function<void(Node&)> what;
    };
    template <typename Entry>
    using Queue = std::priority_queue<Entry, std::vector<Entry>, std::greater<>>;

    std::vector<std::unique_ptr<Node>> nodes_;
    std::vector<std::uint64_t> ids_;
    void make_zipf(unsigned workers);
    void make_clients(unsigned workers, double messages);
    void look(unsigned number, const std::function<void(Node&)>& what);

    Queue<Due> due_;
    Queue<Timer> timers_;
    std::mt19937_64 random_;
    bool measures_server_ = false;
    Time now_ = 0;
    std::uint64_t order_ = 0;
};

// --- Node

PeerId Node::identify(Peer peer) {
    return {world_.id_of(peer), 0};
}

void Node::send(Peer peer, const Message& message) {
    world_.deliver(number_, peer, message);
}

void Node::make(Peer peer) {
    ++lanes;
    if (lanes > negotiator.config().cap) world_.error = "a lane above the cap";
    world_.after(kAdapter, number_, [peer](Node& self) {
        const std::uint8_t address[8]{};
        self.negotiator.on_lane_created(peer, UCS_OK, address);
    });
}

void Node::give_up(Peer peer) {
    world_.after(kAdapter, number_, [peer](Node& self) {
        --self.lanes;
        self.negotiator.on_lane_destroyed(peer);
    });
}

void Node::connect_lane(Peer peer, std::span<const std::uint8_t>) {
    world_.after(kAdapter, number_,
                 [peer](Node& self) { self.negotiator.on_lane_ready(peer, UCS_OK); });
}

void Node::post_marker(Peer peer, const Message& marker) {
    send(peer, marker);
    world_.after(kLocal, number_, [peer](Node& self) { self.negotiator.on_marker_posted(peer); });
}

// The marker is posted before, by as much.
void Node::flush_lane(Peer peer) {
    world_.after(2 * kWire, number_, [peer](Node& self) { self.negotiator.on_flushed(peer); });
}

void Node::fail_endpoint(Peer, ucs_status_t) {
    world_.error = "an endpoint failed";
}

void Node::notify(Peer, const Change& change) {
    world_.switches += change.from != change.to && (change.to == LinkState::kEstablished ||
                                                    change.from == LinkState::kEstablished);
}

// What the tracker finds of the peers that this worker sends most to, whose messages come by
// chance. Of a mean that decays by `d` an interval the variance is (1 - d) / (1 + d) of an
// interval's.
void Node::sample() {
    const double share = (1 - kDecay) / (1 + kDecay);
    const double seconds = static_cast<double>(kInterval) / 1e9 * kDuty;
    std::vector<ucp::lanes::Measured> some;
    const std::size_t tracked = std::min<std::size_t>(
        traffic.size(), std::max(kLeastTracked, kTrackedForALane * negotiator.config().cap));
    for (std::size_t i = 0; i < tracked; ++i) {
        Traffic& each = traffic[i];
        std::poisson_distribution<unsigned> messages(each.rate / kSaved * seconds);
        const double seen = messages(world_.random()) * kSaved / seconds;
        const double distance = seen - each.mean;
        each.noise = is_first_ ? seen * kSaved / seconds
                               : kDecay * each.noise + (1 - kDecay) * distance * distance;
        each.mean = is_first_ ? seen : kDecay * each.mean + (1 - kDecay) * seen;
        some.push_back({each.peer, static_cast<Score>(each.mean),
                        static_cast<Score>(kConfidence * std::sqrt(share * each.noise))});
        const bool is_last = i + 1 == tracked;
        if (some.size() < kScoresAtOnce && !is_last) continue;
        negotiator.on_scores(some, is_last);
        world_.scores += some.size();
        some.clear();
    }
    is_first_ = false;
    world_.after(kInterval, number_, [](Node& self) { self.sample(); });
}

void Node::settle_timer() {
    const Time due = negotiator.next_deadline();
    const Time next = due == kNever ? kNever : std::max(due, world_.now() + kLocal);
    if (next >= scheduled) return;
    scheduled = next;
    world_.wake(number_, next);
}

// --- World

World::World(Pattern pattern, unsigned workers, std::uint32_t cap, std::uint64_t seed,
             double messages)
    : random_(seed) {
    Config config = config_of_tests();
    config.cap = cap;
    config.min_score = kMinScore;
    config.window = 512;
    config.max_links =
        static_cast<std::uint32_t>(2 * std::max(kLeastTracked, kTrackedForALane * cap));
    for (unsigned number = 0; number < workers; ++number) {
        ids_.push_back(ucs::mix64(seed + number));
        nodes_.push_back(std::make_unique<Node>(*this, number, config, ids_[number]));
    }
    pattern == Pattern::kZipf ? make_zipf(workers) : make_clients(workers, messages);
    for (unsigned number = 0; number < workers; ++number)
        after(random_() % kInterval, number, [](Node& self) { self.sample(); });
}

void World::make_clients(unsigned workers, double messages) {
    const double rate = messages * kSaved / (workers - 1);
    for (unsigned number = 1; number < workers; ++number) {
        nodes_[number]->traffic.push_back({0, rate});
        nodes_[0]->traffic.push_back({number, rate});
    }
}

void World::make_zipf(unsigned workers) {
    std::vector<unsigned> order;
    for (unsigned number = 0; number < workers; ++number) order.push_back(number);
    double all = 0;
    for (unsigned k = 1; k < workers; ++k) all += 1.0 / k;
    const std::size_t peers = std::min<std::size_t>(kMostPeers, workers - 1);
    for (unsigned number = 0; number < workers; ++number) {
        Node& node = *nodes_[number];
        for (std::size_t i = 0; i < workers && node.traffic.size() < peers; ++i) {
            std::swap(order[i], order[i + random_() % (workers - i)]);
            if (order[i] == number) continue;
            const double share = 1 / (static_cast<double>(node.traffic.size() + 1) * all);
            node.traffic.push_back({order[i], kMessages * kSaved * share});
        }
    }
}

void World::deliver(unsigned from, Peer to, const Message& message) {
    ++messages;
    after(kWire, static_cast<unsigned>(to), [this, from, message](Node& self) {
        if (self.negotiator.on_message(from, message) != UCS_OK) {
            error = std::string("a violation: ") + name(message.type);
        }
        self.negotiator.settle();
    });
}

// What test/perf/instructions.py counts.
extern "C" [[gnu::noinline]] void perf_measured_server(Node& node,
                                                       const std::function<void(Node&)>& what) {
    what(node);
}

void World::look(unsigned number, const std::function<void(Node&)>& what) {
    if (number == 0 && measures_server_) {
        perf_measured_server(*nodes_[number], what);
    } else {
        what(*nodes_[number]);
    }
}

void World::run(Time end) {
    while (error.empty()) {
        const Time due = due_.empty() ? kNever : due_.top().when;
        const Time timer = timers_.empty() ? kNever : timers_.top().when;
        if (std::min(due, timer) > end) break;
        now_ = std::min(due, timer);
        unsigned number;
        if (due <= timer) {
            number = due_.top().node;
            // The queue compares what is left of it no more.
            const auto what = std::move(const_cast<Due&>(due_.top()).what);
            due_.pop();
            nodes_[number]->negotiator.set_time(now_);
            look(number, what);
        } else {
            number = timers_.top().node;
            timers_.pop();
            if (nodes_[number]->scheduled != now_) continue;
            nodes_[number]->scheduled = kNever;
            look(number, [this](Node& node) { node.negotiator.advance(now_); });
        }
        nodes_[number]->settle_timer();
    }
    now_ = end;
}

// --- what came of it

struct Pair {
    unsigned a, b;
    double rate = 0;  // of both ends
};

std::uint64_t key_of(unsigned a, unsigned b) {
    return std::uint64_t{std::min(a, b)} << 32 | std::max(a, b);
}

// The heaviest first.
std::vector<Pair> pairs_of(World& world) {
    std::unordered_map<std::uint64_t, double> rates;
    for (unsigned number = 0; number < world.size(); ++number) {
        for (const Node::Traffic& each : world[number].traffic)
            rates[key_of(number, each.peer)] += each.rate;
    }
    std::vector<Pair> pairs;
    for (const auto& [key, rate] : rates)
        pairs.push_back({static_cast<unsigned>(key >> 32), static_cast<unsigned>(key), rate});
    std::ranges::sort(pairs, [](const Pair& one, const Pair& other) {
        return one.rate != other.rate ? one.rate > other.rate
                                      : key_of(one.a, one.b) < key_of(other.a, other.b);
    });
    return pairs;
}

bool is_established(World& world, unsigned from, unsigned to) {
    const auto* link = world[from].negotiator.find(to);
    return link != nullptr && link->state == LinkState::kEstablished;
}

struct Outcome {
    double weight = 0;          // of the links with a lane, of the greedy matching's
    std::size_t links = 0;      // with a lane
    std::size_t outside = 0;    // without one, although both ends would rather have them
    std::size_t one_ended = 0;  // with a lane at one end
};

Outcome judge(World& world, std::uint32_t cap) {
    const std::vector<Pair> pairs = pairs_of(world);
    std::vector<std::uint32_t> greedy(world.size());
    std::vector<std::vector<double>> held(world.size());
    Outcome outcome;
    double best = 0, reached = 0;
    for (const auto& [a, b, rate] : pairs) {
        if (greedy[a] < cap && greedy[b] < cap) {
            ++greedy[a];
            ++greedy[b];
            best += rate;
        }
        const bool there = is_established(world, a, b), back = is_established(world, b, a);
        outcome.one_ended += there != back;
        if (!there || !back) continue;
        reached += rate;
        ++outcome.links;
        for (const unsigned end : {a, b}) held[end].push_back(rate);
    }
    const auto would_take = [&](unsigned end, double rate) {
        return held[end].size() < cap || rate > 1.2 * held[end].back();
    };
    for (const auto& [a, b, rate] : pairs) {
        if (is_established(world, a, b) || !would_take(a, rate) || !would_take(b, rate)) continue;
        ++outcome.outside;
    }
    outcome.weight = reached / best;
    return outcome;
}

int run(unsigned workers, std::uint32_t cap, unsigned intervals, std::uint64_t seed) {
    const auto start = std::chrono::steady_clock::now();
    World world(Pattern::kZipf, workers, cap, seed);
    world.run(intervals / 2 * kInterval);
    const std::uint64_t half_way = world.switches;
    const std::uint64_t messages_half_way = world.messages;
    const Time second_half = (intervals - intervals / 2) * kInterval;
    world.run(intervals * kInterval);
    for (std::size_t number = 0; number < world.size(); ++number) {
        if (!world[number].negotiator.consistent()) world.error = "inconsistent";
    }
    const Outcome outcome = judge(world, cap);
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf(
        "%u workers, cap %u, %u intervals of 100 ms, seed %llu (modelled)\n"
        "weight of a greedy matching's  %.4f, %zu links\n"
        "outside the margin             %zu\n"
        "at one end alone               %zu\n"
        "switches                       %llu, %llu of them in the second half\n"
        "messages                       %.1f a second of each worker in the second half\n"
        "scores                         %llu\n"
        "took                           %.0f s, %.2f GiB\n",
        workers, cap, intervals, static_cast<unsigned long long>(seed), outcome.weight,
        outcome.links, outcome.outside, outcome.one_ended,
        static_cast<unsigned long long>(world.switches),
        static_cast<unsigned long long>(world.switches - half_way),
        static_cast<double>(world.messages - messages_half_way) * 1e9 /
            (static_cast<double>(second_half) * workers),
        static_cast<unsigned long long>(world.scores), seconds,
        static_cast<double>(used.ru_maxrss) / (1 << 20));
    if (!world.error.empty()) std::printf("FAILED: %s\n", world.error.c_str());
    if (outcome.weight < 0.95) std::printf("FAILED: less than 0.95 of the greedy matching\n");
    return world.error.empty() && outcome.weight >= 0.95 ? 0 : 1;
}

// One server and clients that are all as busy. Prints the seconds in which the server's part is
// measured, when all has settled, and on stderr how many messages it sent and got in a second.
int run_clients(unsigned clients, unsigned intervals, double messages) {
    World world(Pattern::kClients, clients + 1, 20, 1, messages);
    world.run(intervals / 2 * kInterval);
    world.measure_server();
    const std::uint64_t before = world.messages;
    const Time end = intervals * kInterval;
    const double seconds = static_cast<double>(end - world.now()) / 1e9;
    world.run(end);
    std::fprintf(stderr, "%.0f messages a second, %u lanes %s\n",
                 static_cast<double>(world.messages - before) / seconds, world[0].lanes,
                 world.error.c_str());
    std::printf("%g\n", seconds);
    return world.error.empty() ? 0 : 1;
}

}  // namespace
}  // namespace lanes_test

int main(int argc, char** argv) {
    const auto number = [&](int i, unsigned long otherwise) {
        return i < argc ? std::strtoul(argv[i], nullptr, 10) : otherwise;
    };
    const bool are_clients = argc > 1 && std::strcmp(argv[1], "clients") == 0;
    if (are_clients && number(2, 0) > 20) {
        return lanes_test::run_clients(static_cast<unsigned>(number(2, 0)),
                                       static_cast<unsigned>(number(4, 60)),
                                       static_cast<double>(number(3, 1'000'000)));
    }
    if (argc < 2 || number(1, 0) < 2 || number(2, 20) == 0 || number(3, 100) < 2) {
        std::fputs(
            "usage: lanes_scale WORKERS [CAP [INTERVALS [SEED]]]\n"
            "       lanes_scale clients COUNT [MESSAGES [INTERVALS]]\n",
            stderr);
        return 2;
    }
    return lanes_test::run(static_cast<unsigned>(number(1, 0)),
                           static_cast<std::uint32_t>(number(2, 20)),
                           static_cast<unsigned>(number(3, 100)), number(4, 1));
}
