// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/engine/engine.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "ucp/bulk/engine/path_health.h"
#include "ucp/bulk/engine/path_table.h"
#include "ucp/bulk/engine/poster.h"
#include "ucp/bulk/engine/revocation.h"
#include "ucp/bulk/engine/run_queue.h"
#include "ucp/bulk/engine/thread_handover.h"
#include "ucp/bulk/engine/transfer_table.h"
#include "ucp/bulk/schedule/rules.h"
#include "ucp/mem/memory.h"
#include "ucp/trace/probe.h"
#include "ucp/trace/trace.h"

namespace ucp::bulk {
namespace {

constexpr ucs::Duration kTick = std::chrono::milliseconds(5);

void trace_start(const Transfer& transfer, std::span<const Piece> pieces) {
    SWIFTLANE_PROBE(transfer_begin, &transfer, transfer.request->endpoint->remote_uuid(),
                    pieces.size());
    Trace* const trace = Trace::active();
    if (trace == nullptr) return;
    uint64_t bytes = 0;
    for (const Piece& piece : pieces) bytes += piece.length;
    const Endpoint& endpoint = *transfer.request->endpoint;
    trace->begin("bulk", "bulk", endpoint.local_uuid(), &transfer,
                 {{"direction", transfer.direction == Direction::kPut ? "put" : "get"},
                  {"bytes", bytes},
                  {"pieces", pieces.size()},
                  {"peer", fmt::format("{:016x}", endpoint.remote_uuid())}});
}

}  // namespace

struct Engine::Parts {
    Parts(DeferredWork& work, InterfaceSet& interfaces, EndpointTable& endpoints,
          const RailTable& rails, const ucs::Clock& time, const Rules& configured)
        : clock(time),
          rules(configured),
          run_queue(work),
          transfers(run_queue),
          paths(interfaces, rails, run_queue, rules.schedule.slice),
          poster(clock, rules.schedule, rules.max_retries, paths, transfers),
          revocation(interfaces, endpoints, paths, run_queue, rules.cut_timeout),
          health(rules, clock, paths, transfers, poster, revocation) {}

    const ucs::Clock& clock;
    const Rules rules;
    RunQueue run_queue;
    TransferTable transfers;
    PathTable paths;
    Poster poster;
    Revocation revocation;
    PathHealth health;
    std::unique_ptr<ThreadHandover> handover;  // null: there are no threads
    ucs::Time tick{};                          // when groups are looked at next
};

Engine::Engine(DeferredWork& work, InterfaceSet& interfaces, EndpointTable& endpoints,
               const RailTable& rails, const ucs::Clock& clock, const Rules& rules)
    : parts_(std::make_unique<Parts>(work, interfaces, endpoints, rails, clock, rules)) {}

Engine::~Engine() = default;

bool Engine::can_serve(Endpoint& endpoint, Direction direction, std::span<const Piece> pieces) {
    const Lane lane = endpoint.one_sided_lane();
    const uint32_t capability = direction == Direction::kPut ? uct::kPutChain : uct::kGetChain;
    if ((lane.attributes.capabilities & capability) == 0 || pieces.empty() ||
        endpoint.is_waiting()) {
        return false;
    }
    return std::ranges::all_of(pieces, [&](const Piece& piece) {
        return piece.memory != nullptr && piece.memory->handle(lane.domains.local) != nullptr &&
               piece.key->find(lane.domains) != uct::kInvalidRemoteKey;
    });
}

ucs_status_t Engine::start(Request& request, Direction direction, std::span<const Piece> pieces,
                           Notification* notification) {
    PathGroup& group = parts_->paths.find_or_make(*request.endpoint);
    // Slices are the same for all paths, so that any may take over from any.
    SliceRules rules{.slice = parts_->rules.schedule.slice, .fragment = parts_->rules.fragment};
    for (const auto& path : group.paths) {
        const size_t limit = path->longest_slice(direction);
        if (limit == 0) continue;
        rules.slice = std::min(rules.slice, limit);
        rules.fragment = std::min(rules.fragment, limit - rules.slice);
    }
    rules.fragment = std::min(rules.fragment, rules.slice - 1);
    Transfer* transfer = parts_->transfers.create(pieces, rules);
    if (transfer == nullptr) return UCS_ERR_NO_MEMORY;
    transfer->direction = direction;
    transfer->request = &request;
    transfer->notification = notification;
    transfer->group = &group;
    transfer->fence.due = request.endpoint->fence().before() != 0;
    ++request.count;
    transfer->number = request.endpoint->remote_operation_started();
    group.transfers.push_back(*transfer);
    trace_start(*transfer, pieces);
    if (!transfer->slices.has_next()) {
        parts_->transfers.finish_if_over(*transfer);
        return UCS_OK;
    }
    group.note_start(transfer->slices.bytes_waiting(), parts_->clock.now());
    group.waiting.push_back(*transfer);
    group.run_queue.watch(group);
    post_waiting(group);
    return UCS_OK;
}

bool Engine::try_start(Request& request, Direction direction, const Piece& piece) {
    return is_bulk(*request.endpoint, piece.length) &&
           can_serve(*request.endpoint, direction, {&piece, 1}) &&
           start(request, direction, {&piece, 1}) == UCS_OK;
}

void Engine::post_waiting(PathGroup& group) {
    if (group.waiting.empty()) return;
    if (group.shared_queue != nullptr) parts_->handover->hand_over(group);
    parts_->poster.post_waiting(group);
}

// --- queue pairs that others own

Path* Engine::add_path(Endpoint& endpoint, const PathParams& params, PathOwner& owner) {
    PathGroup& group = parts_->paths.find_or_make(endpoint);
    Path* path = parts_->paths.add_queue_pair(group, params, owner);
    if (path == nullptr) return nullptr;
    if (parts_->handover != nullptr) parts_->handover->attach(*path);
    endpoint.greet();
    group.wake();
    return path;
}

void Engine::remove_path(Path& path) {
    if (path.state == Path::State::kOnThread) return ThreadHandover::stop(path);
    if (path.state != Path::State::kUp) return;
    path.state = Path::State::kDraining;
    path.stop_waiting();
    path.group.wake();
}

void Engine::set_provider(QueuePairProvider* provider) {
    parts_->paths.set_provider(provider);
}

// --- threads

void Engine::use_threads(std::unique_ptr<ThreadPool> pool) {
    parts_->handover = std::make_unique<ThreadHandover>(
        std::move(pool), parts_->clock, parts_->rules.schedule, parts_->rules.stall_timeout,
        parts_->paths, parts_->transfers, parts_->poster);
}

ThreadPool* Engine::threads() {
    return parts_->handover == nullptr ? nullptr : &parts_->handover->pool();
}

// --- the worker's calls

void Engine::run_deferred() {
    Parts& parts = *parts_;
    if (parts.handover != nullptr) parts.handover->handle_events();
    parts.transfers.deliver_finished();
    parts.revocation.carry_out_requests();
    // Before failed paths are looked at, so that it is known what they carried.
    if (parts.handover != nullptr) parts.handover->handle_events();
    for (PathGroup* group : parts.run_queue.take_awake()) {
        parts.health.handle_events(*group);
        parts.revocation.send_held(*group);
        post_waiting(*group);
        if (group->shared_queue != nullptr) parts.handover->steal_slices(*group);
    }
}

void Engine::advance(ucs::Time now) {
    Parts& parts = *parts_;
    const std::vector<PathGroup*>& watched = parts.run_queue.watched();
    if (watched.empty() || now < parts.tick) return;
    parts.tick = ucs::deadline(now, kTick);
    parts.run_queue.drop_healthy();
    // What a check sends may have more groups watched.
    for (size_t index = 0; index < watched.size(); ++index) {
        PathGroup& group = *watched[index];
        if (group.shared_queue != nullptr && parts.handover->check(group, now)) {
            parts.health.probe_idle(group);
        }
        parts.health.check(group, now);
    }
}

ucs::Time Engine::next_deadline() const {
    return parts_->run_queue.watched().empty() ? ucs::kNever : parts_->tick;
}

// What the endpoint's lane carries is still waited for.
void Engine::end_transfers(PathGroup& group, ucs_status_t status) {
    if (group.shared_queue != nullptr) parts_->handover->take_all_back(group, status);
    for (Transfer& transfer : group.transfers) transfer.slices.fail(status);
    group.waiting.clear();
    parts_->health.drop_paths(group, status);
    for (auto next = group.transfers.begin(); next != group.transfers.end();) {
        parts_->transfers.finish_if_over(*next++);
    }
    parts_->transfers.deliver_finished();
}

void Engine::endpoint_failed(Endpoint& endpoint) {
    PathGroup* group = parts_->paths.find(endpoint);
    if (group != nullptr) end_transfers(*group, endpoint.status());
}

void Engine::forget(Endpoint& endpoint) {
    PathGroup* group = parts_->paths.find(endpoint);
    if (group == nullptr) return;
    end_transfers(*group, UCS_ERR_CANCELED);
    Poster::detach_chains(group->lane());
    parts_->transfers.orphan(*group);
    parts_->paths.erase(*group);
}

void Engine::transports_failed(std::span<const Failure> failures) {
    std::vector<const uct::Endpoint*> transports;
    transports.reserve(failures.size());
    for (const auto& [transport, status] : failures) transports.push_back(transport);
    const std::vector<Path*> paths = parts_->paths.find(transports);
    for (size_t index = 0; index < paths.size(); ++index) {
        if (paths[index] != nullptr) path_failed(*paths[index], failures[index].second);
    }
}

void Engine::path_failed(Path& path, ucs_status_t status) {
    if (path.transport == nullptr) return;
    if (path.failure == UCS_OK) path.failure = status;
    path.group.wake();
}

// --- what goes by it

bool Engine::is_bulk(Endpoint& endpoint, size_t length) {
    return endpoint.protocols(endpoint.one_sided_lane()).is_bulk(length);
}

void Engine::register_for_peer(Endpoint& endpoint, const Memory& memory, size_t length) {
    if (!is_bulk(endpoint, length)) return;
    std::array<DomainPair, RemoteMemory::kMaxKeys> pairs;
    for (const DomainPair pair : endpoint.domain_pairs(pairs)) (void)memory.handle(pair.local);
}

// --- questions

uint64_t Engine::begun(const Endpoint& endpoint) const {
    const PathGroup* const group = find(endpoint);
    return group == nullptr ? 0 : group->begun;
}

const PathGroup* Engine::find(const Endpoint& endpoint) const {
    return parts_->paths.find(endpoint);
}

size_t Engine::transfers_in_use() const {
    return parts_->transfers.in_use();
}

size_t Engine::chains_in_use() const {
    return parts_->poster.chains_in_use();
}

uint64_t Engine::looks() const {
    return parts_->paths.looks();
}

}  // namespace ucp::bulk
