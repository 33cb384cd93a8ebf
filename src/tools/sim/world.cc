// SPDX-License-Identifier: BSD-3-Clause
#include "tools/sim/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "tools/report/result.h"
#include "ucp/base/handles.h"
#include "ucs/runtime/runtime.h"

namespace tools {
namespace {

// A job whose programs do not get on for so long is stuck.
constexpr uint64_t kLongestSilence = 5'000'000'000;

}  // namespace

class World::FabricClock final : public ucs::Clock {
  public:
    explicit FabricClock(const softhca::VirtualFabric& fabric) : fabric_(fabric) {}
    ucs::Time now() const override { return ucs::Time(ucs::Duration(fabric_.now())); }

  private:
    const softhca::VirtualFabric& fabric_;
};

class World::NodeHost final : public Host {
  public:
    NodeHost(World& world, unsigned node) : world_(world), node_(node) {}

    int64_t now() override { return world_.now(); }
    void barrier_enter(uint64_t ticket) override {
        if (++world_.barriers_entered_ < ticket * world_.size()) return;
        world_.observer_.pause();
        for (unsigned node = 0; node < world_.size(); ++node) world_.wake(node);
    }
    bool barrier_open(uint64_t ticket) override {
        return world_.barriers_entered_ >= ticket * world_.size();
    }
    void report(const Sample& sample) override { world_.take_sample(node_, sample); }
    void progressed(uint64_t) override {}
    void compute(int64_t nanoseconds) override;
    void completed(int64_t nanoseconds) override { world_.observer_.completed(nanoseconds); }

  private:
    World& world_;
    const unsigned node_;
};

struct World::Node {
    Node(World& world, unsigned index) : host(world, index) {}

    NodeHost host;
    std::unique_ptr<ucp::Context> context;
    std::unique_ptr<Worker> worker;
    std::unique_ptr<Rank> rank;
    World* world = nullptr;
    uint64_t busy_until = 0;  // its processor
    uint64_t computes = 0;    // asked for in this step, to begin after it
    uint64_t scheduled = softhca::VirtualFabric::kNever;
    uint64_t version = 0;
    size_t samples = 0;
    bool running = false;
};

void World::NodeHost::compute(int64_t nanoseconds) {
    if (node_ == 0) world_.observer_.phase();
    world_.nodes_[node_]->computes += static_cast<uint64_t>(nanoseconds);
}

World::World(const WorldOptions& options)
    : options_(options),
      fabric_(
          {.nodes = options.ranks, .devices_per_node = options.devices, .model = options.model}),
      clock_(std::make_unique<FabricClock>(fabric_)),
      entropy_(options.seed),
      observer_(options.ranks, options.interval) {
    ucs::Runtime& runtime = ucs::runtime();
    const ucs::ProcessEnvironment process;
    for (const std::string& name : process.names("UCX_")) {
        environment_.set(name, *process.get(name));
    }
    for (const auto& [name, value] : options.variables) environment_.set(name, value);
    runtime.environment = &environment_;
    runtime.clock = clock_.get();
    runtime.entropy = &entropy_;

    fabric_.make_current();
    fabric_.on_activity([this](unsigned node) { wake(node); });
    for (unsigned index = 0; index < options.ranks; ++index) start_node(index);
    std::vector<std::string> addresses;
    for (const auto& node : nodes_) addresses.push_back(node->worker->address());
    for (unsigned index = 0; index < options.ranks; ++index) {
        Node& node = *nodes_[index];
        node.rank = std::make_unique<Rank>(index, node.worker->handle(), addresses, node.host);
        node.rank->observe_deliveries(&observer_);
    }
}

World::~World() {
    // Nodes that go wake nobody, lanes that go with their workers are of no interest, and ranks go
    // first.
    fabric_.on_activity({});
    for (auto& node : nodes_) {
        ucpx_worker_set_lane_callback(node->worker->handle(), nullptr, nullptr);
        fabric_.set_current_node(static_cast<unsigned>(&node - nodes_.data()));
        node.reset();
    }
    static constinit ucs::WallClock wall;
    static constinit ucs::SystemEntropy system;
    static constinit ucs::ProcessEnvironment process;
    ucs::Runtime& runtime = ucs::runtime();
    runtime.environment = &process;
    runtime.clock = &wall;
    runtime.entropy = &system;
}

void World::start_node(unsigned index) {
    fabric_.set_current_node(index);
    auto node = std::make_unique<Node>(*this, index);
    node->world = this;

    ucp::Config config;
    std::string error;
    ucs_status_t status =
        ucp::kConfigTable.load(ucs::config::Source::from_environment(), config, error);
    if (status != UCS_OK) throw std::runtime_error(error);
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
    params.features = UCP_FEATURE_TAG;
    params.estimated_num_eps = options_.ranks;
    ucp::ContextSeams seams;
    seams.clock = clock_.get();
    seams.virtual_time = true;
    seams.seed = ucs::mix64(options_.seed) + index;
    status = ucp::Context::create(params, config, seams, &node->context);
    if (status != UCS_OK) {
        throw std::runtime_error(fmt::format("context: {}", ucs_status_string(status)));
    }
    // The worker's own choice would have the number of this process in it.
    node->worker =
        std::make_unique<Worker>(ucp::wrap(node->context.get()), fmt::format("rank{}", index));

    ucpx_worker_attr_t attr{};
    attr.field_mask = UCPX_WORKER_ATTR_FIELD_UID;
    if (ucpx_worker_query(node->worker->handle(), &attr) == UCS_OK) rank_of_uid_[attr.uid] = index;
    const auto on_change = [](void* arg, const ucpx_lane_event_t* event) {
        const Node& changed = *static_cast<Node*>(arg);
        World& world = *changed.world;
        const auto peer = world.rank_of_uid_.find(event->peer_uid);
        if (peer == world.rank_of_uid_.end()) return;
        world.observer_.lane_changed(changed.rank->index(), peer->second, *event);
    };
    ucpx_worker_set_lane_callback(node->worker->handle(), on_change, node.get());
    nodes_.push_back(std::move(node));
}

void World::schedule(unsigned node, uint64_t when) {
    Node& state = *nodes_[node];
    state.scheduled = when;
    ++state.version;
    if (when != softhca::VirtualFabric::kNever) turns_.push({when, node, state.version});
}

void World::wake(unsigned node) {
    if (node >= nodes_.size() || !nodes_[node]->rank) return;
    const uint64_t when = std::max(fabric_.now(), nodes_[node]->busy_until);
    if (when < nodes_[node]->scheduled) schedule(node, when);
}

uint64_t World::idle_deadline(const Node& node) const {
    ucpx_worker_attr_t attr{};
    attr.field_mask = UCPX_WORKER_ATTR_FIELD_IDLE;
    ucpx_worker_query(node.worker->handle(), &attr);
    const int64_t deadline =
        attr.idle == INT64_MAX ? INT64_MAX : static_cast<int64_t>(fabric_.now()) + attr.idle;
    const int64_t next = std::min(deadline, node.rank->next_timer());
    if (next == INT64_MAX) return softhca::VirtualFabric::kNever;
    return std::max<uint64_t>(static_cast<uint64_t>(std::max<int64_t>(next, 0)), fabric_.now() + 1);
}

void World::run_node(unsigned index) {
    Node& node = *nodes_[index];
    fabric_.set_current_node(index);
    observer_.set_time(now());
    node.scheduled = softhca::VirtualFabric::kNever;
    const bool moved = node.rank->step();
    if (node.rank->resumed()) last_resumed_ = std::max(last_resumed_, fabric_.now());
    if (node.running && node.rank->finished()) {
        node.running = false;
        --running_;
    }
    // A step that costs nothing must not stop the clock.
    const uint64_t cost = std::max<uint64_t>(fabric_.take_cpu_time(index), 1);
    const uint64_t computes = std::exchange(node.computes, 0);
    node.busy_until = fabric_.now() + cost + computes;
    if (computes != 0) last_resumed_ = std::max(last_resumed_, node.busy_until);
    // What came meanwhile, to its own adapter or through a barrier, waits for the processor too.
    const uint64_t wanted = moved ? 0 : std::min(node.scheduled, idle_deadline(node));
    schedule(index, std::max(wanted, node.busy_until));
}

void World::run(const std::function<Task(Rank&)>& program) {
    for (const auto& node : nodes_) {
        node->rank->spawn(program(*node->rank));
        node->running = true;
    }
    running_ = size();
    for (unsigned node = 0; node < size(); ++node) wake(node);
    last_resumed_ = fabric_.now();
    while (running_ != 0) {
        while (!turns_.empty() && turns_.top().version != nodes_[turns_.top().node]->version) {
            turns_.pop();
        }
        const uint64_t turn = turns_.empty() ? softhca::VirtualFabric::kNever : turns_.top().when;
        const uint64_t event = fabric_.next_event_time();
        const uint64_t next = std::min(turn, event);
        if (next == softhca::VirtualFabric::kNever || next > last_resumed_ + kLongestSilence) {
            throw std::runtime_error(
                fmt::format("the simulated job is stuck since {} ns", last_resumed_));
        }
        fabric_.advance_to(next);
        if (event <= turn) continue;
        const unsigned node = turns_.top().node;
        turns_.pop();
        run_node(node);
    }
}

void World::take_sample(unsigned node, const Sample& sample) {
    const size_t index = nodes_[node]->samples++;
    if (index >= samples_.size()) samples_.resize(index + 1);
    samples_[index].push_back(sample);
}

std::vector<LaneEntry> World::lanes() const {
    std::vector<LaneEntry> map;
    for (const auto& node : nodes_) {
        const std::vector<LaneEntry> entries = query_lanes(*node->rank);
        map.insert(map.end(), entries.begin(), entries.end());
    }
    return map;
}

LaneCounters World::counters() const {
    LaneCounters sum;
    for (const auto& node : nodes_) sum += query_counters(*node->rank);
    return sum;
}

SlotUse World::slots(unsigned rank) const {
    ucpx_worker_attr_t attr{};
    attr.field_mask = UCPX_WORKER_ATTR_FIELD_SLOTS;
    if (ucpx_worker_query(nodes_[rank]->worker->handle(), &attr) != UCS_OK) return {};
    return {attr.cap, attr.dedicated_peak};
}

}  // namespace tools
