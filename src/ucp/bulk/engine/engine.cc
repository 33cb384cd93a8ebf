// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/engine/engine.h"

#include <algorithm>
#include <array>

#include "ucp/bulk/engine/engine_state.h"
#include "ucp/mem/memory.h"
#include "ucp/worker/worker.h"

namespace ucp::bulk {

Engine::State::State(Worker& owner)
    : worker(owner),
      rules{.slice = std::max<size_t>(owner.config().bulk_slice_size, 1),
            .window = std::max<size_t>(owner.config().bulk_window, 1),
            .chain = std::clamp<unsigned>(owner.config().bulk_max_wr_per_post, 1, kMaxChain)},
      slices{.slice = rules.slice, .fragment = owner.config().bulk_fragment_limit} {
    if (owner.config().bulk_workers != 0 && !owner.context().virtual_time()) {
        const MoverRules mover_rules{.schedule = rules,
                                     .max_retries = owner.config().bulk_max_retries,
                                     .stall_timeout = owner.config().bulk_stall_timeout};
        pool = std::make_unique<Pool>(owner, mover_rules);
    }
    worker.set_handler(AmId::kBulkCut, on_cut);
    worker.set_handler(AmId::kBulkCutDone, on_cut_done);
}

Engine::Engine(Worker& worker) : state_(std::make_unique<State>(worker)) {}
Engine::~Engine() = default;

bool Engine::takes(Endpoint& endpoint, Direction direction, std::span<const Piece> pieces) {
    const Lane lane = endpoint.one_sided_lane();
    const uint32_t capability = direction == Direction::kPut ? uct::kPutChain : uct::kGetChain;
    if ((lane.attributes.capabilities & capability) == 0 || pieces.empty() ||
        endpoint.is_waiting()) {
        return false;
    }
    return std::ranges::all_of(pieces, [&](const Piece& piece) {
        return piece.memory->handle(lane.domains.local) != nullptr &&
               piece.key->find(lane.domains) != uct::kInvalidRemoteKey;
    });
}

ucs_status_t Engine::start(Request& request, Direction direction, std::span<const Piece> pieces,
                           Notification* notification) {
    State& state = *state_;
    Group& group = state.make(*request.endpoint);
    // Slices are the same for all paths, so that any may take over from any.
    SliceRules rules = state.slices;
    for (const auto& path : group.paths) {
        const uct::InterfaceAttributes& attributes = attributes_of(*path);
        const size_t limit =
            direction == Direction::kPut ? attributes.put.max_zcopy : attributes.get.max_zcopy;
        if (limit == 0) continue;
        rules.slice = std::min(rules.slice, limit);
        rules.fragment = std::min(rules.fragment, limit - rules.slice);
    }
    rules.fragment = std::min(rules.fragment, rules.slice - 1);
    Job* job = state.jobs.create(pieces, rules);
    if (job == nullptr) return UCS_ERR_NO_MEMORY;
    job->engine = &state;
    job->direction = direction;
    job->request = &request;
    job->notification = notification;
    job->group = &group;
    job->fence.job = job;
    job->fence.due = request.endpoint->has_fenced();
    ++request.count;
    job->number = request.endpoint->remote_operation_started();
    group.jobs.push_back(*job);
    if (!job->work.has_next()) {
        state.finish_if_over(*job);
        return UCS_OK;
    }
    group.waiting.push_back(*job);
    state.watch(group);
    state.pump(group);
    return UCS_OK;
}

bool Engine::hand_over(Request& request, Direction direction, const Piece& piece) {
    return is_bulk(*request.endpoint, piece.length) &&
           takes(*request.endpoint, direction, {&piece, 1}) &&
           start(request, direction, {&piece, 1}) == UCS_OK;
}

Path* Engine::add_path(Endpoint& endpoint, const PathParams& params, PathOwner& owner) {
    State& state = *state_;
    Group& group = state.make(endpoint);
    if (group.paths.size() == kMaxPaths) return nullptr;
    auto path = std::make_unique<Path>(
        group, Path::Kind::kStrand, expected_rate(state.worker, params.interface) * params.weight);
    path->transport = params.transport;
    path->interface = params.interface;
    path->domains = params.domains;
    path->owner = &owner;
    path->name = params.name;
    group.paths.push_back(std::move(path));
    if (state.pool != nullptr) state.adopt(*group.paths.back());
    endpoint.greet();
    state.wake(group);
    return group.paths.back().get();
}

void Engine::remove_path(Path& path) {
    if (path.state == Path::State::kLent) return state_->stop_lent(path);
    if (path.state != Path::State::kUp) return;
    path.state = Path::State::kLeaving;
    path.stop_waiting();
    state_->wake(path.group);
}

Pool* Engine::pool() {
    return state_->pool.get();
}

void Engine::set_wakeup(const Wakeup* wakeup) {
    if (state_->pool != nullptr) state_->pool->returns.set_wakeup(wakeup);
}

void Engine::set_end_owner(PathOwner* owner) {
    state_->end_owner = owner;
}

}  // namespace ucp::bulk

ucp::bulk::Ways ucp::bulk::ways_of(Endpoint& endpoint) {
    Worker& worker = endpoint.worker();
    const Lane lane = endpoint.one_sided_lane();
    const auto& domain = *worker.context().domains()[lane.domains.local].memory;
    Ways ways{.latency = lane.attributes.latency.at(1),
              .overhead = lane.attributes.overhead,
              .registration = domain.attributes().register_overhead,
              .bandwidth = lane.attributes.bandwidth,
              .together = lane.attributes.bandwidth,
              .slice = worker.config().bulk_slice_size};
    for (const Rail& rail : worker.rails(endpoint.remote_uuid())) {
        ways.together += worker.interface(rail.interface).transport->attributes().bandwidth;
    }
    return ways;
}

bool ucp::is_bulk(Endpoint& endpoint, size_t length) {
    if (const auto& configured = endpoint.worker().config().bulk_threshold) {
        return length >= *configured;
    }
    if (length < bulk::kLeastAnnounced) return false;
    return length >= bulk::kBulkThreshold ||
           length >= bulk::threshold_among_others(bulk::ways_of(endpoint));
}

void ucp::register_for_bulk(Endpoint& endpoint, const Memory& memory, size_t length) {
    if (!is_bulk(endpoint, length)) return;
    const Worker& worker = endpoint.worker();
    std::array<DomainPair, RemoteMemory::kMaxKeys> pairs;
    for (const DomainPair pair : worker.domain_pairs(endpoint, pairs)) {
        (void)memory.handle(pair.local);
    }
}
