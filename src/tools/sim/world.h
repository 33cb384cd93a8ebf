// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "softhca/softhca.h"
#include "tools/program/rank.h"
#include "tools/program/worker.h"
#include "tools/report/result.h"
#include "tools/sim/observer.h"
#include "ucp/context/context.h"
#include "ucs/sys/environment.h"
#include "ucs/sys/random.h"
#include "ucs/sys/time.h"

namespace tools {

struct WorldOptions {
    unsigned ranks = 2;
    unsigned devices = 1;  // adapters of each node
    uint64_t seed = 1;
    softhca::Model model;
    std::vector<std::pair<std::string, std::string>> variables;  // UCX_* of every rank
    int64_t interval = 200'000;  // nanoseconds of one entry of the observer's timeline
};

// How a rank's dedicated lanes stood at the end.
struct SlotUse {
    unsigned cap = 0;
    unsigned peak = 0;  // most held at any time
};

// A simulated cluster: one host, adapter and rank a node, on virtual time.
//
// A rank runs when its processor is free: its step takes the processor time that the adapter
// model charges for posts and polls, and the next step starts after it. A rank that finds nothing
// to do sleeps until its adapter has something or a deadline comes. Everything is a function of
// the options: no wall clock, no thread, no address enters.
//
// While a world lives it owns the process's runtime seams (clock, entropy, environment).
class World {
  public:
    explicit World(const WorldOptions& options);
    ~World();
    World(const World&) = delete;

    // Run the program on all ranks to its end. Throws what a rank threw, or std::runtime_error if
    // nothing moves any more.
    void run(const std::function<Task(Rank&)>& program);

    int64_t now() const { return static_cast<int64_t>(fabric_.now()); }
    unsigned size() const { return static_cast<unsigned>(nodes_.size()); }
    JobObserver& observer() { return observer_; }
    softhca::Counters adapter_counters() const { return fabric_.total(); }

    // By index of the size: the samples of all ranks.
    const std::vector<std::vector<Sample>>& samples() const { return samples_; }
    std::vector<LaneEntry> lanes() const;
    LaneCounters counters() const;
    SlotUse slots(unsigned rank) const;

  private:
    class FabricClock;
    class NodeHost;
    struct Node;

    struct Turn {
        uint64_t when;
        unsigned node;
        uint64_t version;  // of the node's schedule; an older one is void
        bool operator>(const Turn& other) const {
            return when != other.when ? when > other.when : node > other.node;
        }
    };

    void start_node(unsigned index);
    void schedule(unsigned node, uint64_t when);
    void wake(unsigned node);
    void run_node(unsigned node);
    uint64_t idle_deadline(const Node& node) const;
    void take_sample(unsigned node, const Sample& sample);

    const WorldOptions options_;
    softhca::VirtualFabric fabric_;
    std::unique_ptr<FabricClock> clock_;
    ucs::SeededEntropy entropy_;
    ucs::MapEnvironment environment_;
    JobObserver observer_;

    std::vector<std::unique_ptr<Node>> nodes_;
    std::unordered_map<uint64_t, unsigned> rank_of_uid_;
    std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns_;
    uint64_t barriers_entered_ = 0;
    unsigned running_ = 0;       // ranks whose program has not ended
    uint64_t last_resumed_ = 0;  // when a rank's program last got on
    std::vector<std::vector<Sample>> samples_;
};

}  // namespace tools
