// SPDX-License-Identifier: BSD-3-Clause

// What is posted where, and what completions bring.

#include <algorithm>
#include <array>

#include "ucp/bulk/engine/engine_state.h"
#include "ucp/bulk/engine/notification.h"
#include "ucp/bulk/queue_pairs/queue_pair_driver.h"
#include "ucp/mem/memory.h"
#include "ucp/worker/worker.h"

namespace ucp::bulk {
namespace {

uint32_t chain_capability(Direction direction) {
    return direction == Direction::kPut ? uct::kPutChain : uct::kGetChain;
}

size_t longest(const uct::InterfaceAttributes& attributes, Direction direction) {
    return direction == Direction::kPut ? attributes.put.max_zcopy : attributes.get.max_zcopy;
}

bool serves(DomainPair domains, const Piece& piece) {
    return piece.memory->handle(domains.local) != nullptr &&
           piece.key->find(domains) != uct::kInvalidRemoteKey;
}

/**
 * Is what is posted on the path next delivered when all that is under way of the job has landed?
 * Not if some of it went another way, or may yet be written by a path that has failed. What is
 * posted on the endpoint's own lane is never posted anew: its error is the endpoint's.
 */
bool has_order(const Job& job, const Path& path) {
    if (path.kind != Path::Kind::kHome || job.cuts != 0 ||
        (attributes_of(path).capabilities & uct::kOrderedChain) == 0) {
        return false;
    }
    const auto here = std::ranges::count_if(path.chains, [&](const Chain& chain) {
        return chain.job == &job && chain.transport == path.transport;
    });
    return static_cast<size_t>(here) == job.chains;
}

/**
 * A short batch with a notification goes whole over the endpoint's lane, where that can follow it:
 * the round trip saved is worth more than what other paths would take over.
 */
bool stays_at_home(const Job& job, const Path& home, const ScheduleRules& rules) {
    return job.notification != nullptr && job.work.bytes_waiting() <= rules.slice &&
           has_order(job, home);
}

/** As put_chain(), the last piece with the notification; 0 if that is not possible. */
ssize_t put_with_notification(Notification& notification, const Path& path,
                              std::span<const uct::ChainPiece> pieces, Chain& chain) {
    const bool is_possible = (attributes_of(path).capabilities & uct::kImmediate) != 0 &&
                             notification.value <= UINT32_MAX &&
                             may_send_notification(path.group.endpoint, *path.transport);
    if (!is_possible) return 0;
    const ssize_t taken = path.transport->put_chain_immediate(
        pieces, static_cast<uint32_t>(notification.value), &chain);
    notification.is_posted = taken == static_cast<ssize_t>(pieces.size());
    return taken;
}

}  // namespace

void refresh_home(Group& group) {
    Path& home = *group.paths.front();
    const Lane lane = group.endpoint.one_sided_lane();
    if (home.transport == &lane.endpoint) return;
    home.stop_waiting();
    home.transport = &lane.endpoint;
    home.interface = group.endpoint.interface_of(lane);
}

const uct::InterfaceAttributes& attributes_of(const Path& path) {
    return path.group.endpoint.worker().interface(path.interface).transport->attributes();
}

// --- groups
// ----------------------------------------------------------------------------------------

Group* Engine::State::find(const Endpoint& endpoint) {
    const auto found = groups.find(&endpoint);
    return found == groups.end() ? nullptr : found->second.get();
}

double expected_rate(Worker& worker, unsigned interface) {
    const WorkerInterface& device = worker.interface(interface);
    return expected_rate(device.transport->attributes().bandwidth,
                         double{worker.context().resources()[device.resource].distance},
                         worker.bulk().state().rules.slice);
}

Group& Engine::State::make(Endpoint& endpoint) {
    std::unique_ptr<Group>& group = groups[&endpoint];
    if (group != nullptr) return *group;
    group = std::make_unique<Group>(endpoint);
    worker.strands().wanted(endpoint);
    const Lane lane = endpoint.one_sided_lane();
    const unsigned interface = endpoint.interface_of(lane);
    auto home = std::make_unique<Path>(*group, Path::Kind::kHome, expected_rate(worker, interface));
    home->transport = &lane.endpoint;
    home->interface = interface;
    home->domains = lane.domains;
    group->paths.push_back(std::move(home));
    add_rails(*group);
    return *group;
}

void Engine::State::add_rails(Group& group) {
    for (const Rail& rail : worker.rails(group.endpoint.remote_uuid())) {
        auto path =
            std::make_unique<Path>(group, Path::Kind::kRail, expected_rate(worker, rail.interface));
        path->interface = rail.interface;
        path->domains = rail.domains;
        path->remote_device = rail.remote_device;
        path->remote_interface = rail.remote_interface;
        if (make_rail(*path) != UCS_OK) path->state = Path::State::kResting;
        group.paths.push_back(std::move(path));
    }
    // The peer must be able to answer a CUT.
    if (group.paths.size() > 1) group.endpoint.greet();
}

ucs_status_t Path::serve(uct::Pending* self) {
    Path& path = *static_cast<Path*>(self);
    path.group.endpoint.worker().bulk().state().wake(path.group);
    return UCS_OK;
}

void Engine::State::wake(Group& group) {
    if (group.is_active) return;
    group.is_active = true;
    active.push_back(&group);
    worker.work_later();
}

void Engine::State::watch(Group& group) {
    if (group.is_watched) return;
    group.is_watched = true;
    watched.push_back(&group);
}

// --- posting
// ---------------------------------------------------------------------------------------

// A chain knows no fence: what came before one is flushed first.
bool Engine::State::passes_fence(Job& job) {
    if (job.fence.due) {
        Endpoint& endpoint = job.group->endpoint;
        job.fence.callback = fence_done;
        job.fence.seen = endpoint.fence_seen();
        const ucs_status_t status = endpoint.flush_fenced(job.fence);
        if (status == UCS_ERR_NO_RESOURCE) {
            wake(*job.group);
            return false;
        }
        job.fence.due = false;
        if (status == UCS_OK) endpoint.fenced_flushed(job.fence.seen);
        if (status != UCS_OK && status != UCS_INPROGRESS) job.work.fail(status);
    }
    return job.fence.count == 0;
}

void Engine::State::fence_done(uct::Completion* self) {
    Job& job = *static_cast<Job::Fence*>(self)->job;
    State& state = *job.engine;
    // A dedicated lane that has gone meanwhile had done all that was posted on it.
    if (self->status != UCS_OK && self->status != UCS_ERR_CANCELED) job.work.fail(self->status);
    if (job.group != nullptr) {
        if (self->status == UCS_OK) job.group->endpoint.fenced_flushed(job.fence.seen);
        state.wake(*job.group);
    }
    state.finish_if_over(job);
}

void Engine::State::wait_for_room(Path& path) {
    path.waiting_on = path.transport;
    if (path.transport->pending_add(&path) != UCS_OK) wake(path.group);
}

ssize_t Engine::State::post_chain(Job& job, Path& path, size_t bytes, ucs::Time now) {
    std::array<uct::ChainPiece, kMaxChain> pieces;
    const std::span<const Piece> all = job.work.pieces();
    const size_t longest_slice = longest(attributes_of(path), job.direction);
    const uct::MemoryHandle* handle = nullptr;
    uct::RemoteKey key = uct::kInvalidRemoteKey;
    uint32_t known = UINT32_MAX;
    size_t count = 0, total = 0;
    Transfer::Cursor next = job.work.cursor();
    while (!next.is_end() && count < rules.chain) {
        const Slice slice = next.slice();
        if ((count != 0 && total + slice.length > bytes) || slice.length > longest_slice) break;
        const Piece& piece = all[slice.piece];
        if (slice.piece != known) {
            handle = piece.memory->handle(path.domains.local);
            key = piece.key->find(path.domains);
            if (handle == nullptr || key == uct::kInvalidRemoteKey) break;
            known = slice.piece;
        }
        pieces[count++] = {static_cast<std::byte*>(piece.local) + slice.offset, slice.length,
                           handle, piece.remote + slice.offset, key};
        total += slice.length;
        next.advance(slice);
    }
    if (count == 0) return UCS_ERR_UNSUPPORTED;
    Chain* chain = chains.create();
    if (chain == nullptr) return UCS_ERR_NO_MEMORY;
    chain->callback = chain_done;
    chain->count = 2;  // one for this call: the transport may complete the chain within its own
    const std::span<const uct::ChainPiece> given(pieces.data(), count);
    Notification* const notification =
        job.notification != nullptr && total == job.work.bytes_waiting() && has_order(job, path)
            ? job.notification
            : nullptr;
    ssize_t taken = 0;
    if (notification != nullptr) {
        taken = put_with_notification(*notification, path, given, *chain);
    }
    if (taken == 0) {
        taken = job.direction == Direction::kPut ? path.transport->put_chain(given, chain)
                                                 : path.transport->get_chain(given, chain);
    }
    if (taken <= 0) {
        chains.destroy(chain);
        return taken;
    }
    if (static_cast<size_t>(taken) < count) {
        next = job.work.cursor();
        for (ssize_t slice = 0; slice < taken; ++slice) next.advance(next.slice());
    }
    chain->run = job.work.take(next, static_cast<uint32_t>(taken));
    chain->engine = this;
    chain->job = &job;
    chain->path = &path;
    chain->transport = path.transport;
    path.chains.push_back(*chain);
    path.meter.posted(chain->run.bytes, now);
    ++job.chains;
    if (notification != nullptr && !job.work.has_next() && !notification->is_posted &&
        chain->status == UCS_OK) {
        notification->is_posted =
            send_notification_behind(job.group->endpoint, notification->value, *path.transport);
    }
    chain->complete(UCS_OK);
    return taken;
}

bool can_take(const Path& path, const Job& job, const Slice& slice) {
    if (!path.may_post() || path.is_linked()) return false;
    const uct::InterfaceAttributes& attributes = attributes_of(path);
    return (attributes.capabilities & chain_capability(job.direction)) != 0 &&
           serves(path.domains, job.work.pieces()[slice.piece]) &&
           slice.length <= longest(attributes, job.direction);
}

/** @return whether there may be more to post now */
bool Engine::State::post_next(Group& group, Job& job, ucs::Time now) {
    const Slice slice = job.work.cursor().slice();
    std::array<Path*, kMaxPaths> paths;
    std::array<const Meter*, kMaxPaths> meters;
    size_t count = 0;
    const Path& home = *group.paths.front();
    const bool stays = can_take(home, job, slice) && stays_at_home(job, home, rules);
    for (const auto& path : group.paths) {
        if (stays && path->kind != Path::Kind::kHome) continue;
        if (!can_take(*path, job, slice)) continue;
        paths[count] = path.get();
        meters[count++] = &path->meter;
    }
    const Choice choice =
        choose({meters.data(), count}, slice.length, job.work.bytes_waiting(), now, rules);
    if (choice.path < 0) return false;
    return post(group, job, *paths[static_cast<size_t>(choice.path)], choice.bytes, now);
}

/** @return whether there may be more to post now */
bool Engine::State::post(Group& group, Job& job, Path& path, size_t bytes, ucs::Time now) {
    const ssize_t posted = post_chain(job, path, bytes, now);
    if (posted > 0) return true;
    if (posted == 0) {
        wait_for_room(path);
        return path.is_linked();
    }
    if (posted == UCS_ERR_NO_MEMORY) {
        wake(group);
        return false;
    }
    if (path.kind == Path::Kind::kHome) {
        job.work.fail(static_cast<ucs_status_t>(posted));
    } else {
        path.failure = static_cast<ucs_status_t>(posted);
        wake(group);
    }
    return true;
}

void Engine::State::pump(Group& group) {
    if (group.waiting.empty()) return;
    if (group.crew != nullptr) lend(group);
    const ucs::Time now = worker.now();
    refresh_home(group);
    while (!group.waiting.empty()) {
        Job& job = group.waiting.front();
        if (job.work.has_next() && !passes_fence(job)) return;
        if (job.work.has_next() && !post_next(group, job, now)) return;
        if (job.work.has_next()) continue;
        if (!static_cast<WaitingHook&>(job).is_linked()) continue;  // ended within the call
        group.waiting.erase(group.waiting.iterator_to(job));
        finish_if_over(job);
    }
}

// --- completions
// -----------------------------------------------------------------------------------

void Engine::State::chain_done(uct::Completion* self) {
    Chain& chain = *static_cast<Chain*>(self);
    if (chain.job == nullptr) {
        chain.engine->chains.destroy(&chain);
        return;
    }
    Job& job = *chain.job;
    State& state = *job.engine;
    const ucs_status_t status = chain.status;
    const Run run = chain.run;
    Path* path = chain.path;
    if (path != nullptr) path->chains.erase(path->chains.iterator_to(chain));
    state.chains.destroy(&chain);
    --job.chains;
    if (status == UCS_OK) {
        job.work.completed(run);
        if (path != nullptr) {
            path->meter.completed(run.bytes, state.worker.now());
            path->failures = 0;
        }
    } else {
        if (path != nullptr) path->meter.withdrawn(run.bytes);
        state.chain_failed(job, path, run, status);
    }
    if (job.group != nullptr) state.wake(*job.group);
    state.finish_if_over(job);
}

/** Until the path is cut off, or its endpoint is no more, the job does not end. */
void Engine::State::suspend(Job& job, Path& path) {
    if (job.direction == Direction::kGet) return;
    if (std::ranges::find(path.suspended, &job) != path.suspended.end()) return;
    path.suspended.push_back(&job);
    ++job.cuts;
}

void Engine::State::requeue(Job& job) {
    if (!job.work.has_next() || static_cast<WaitingHook&>(job).is_linked()) return;
    job.group->waiting.push_front(job);
}

void Engine::State::chain_failed(Job& job, Path* path, const Run& run, ucs_status_t status) {
    // Over TCP the endpoint goes on another way: nothing more is written by the old one.
    const bool has_moved =
        path != nullptr && path->kind == Path::Kind::kHome && status == UCS_ERR_UNREACHABLE;
    const bool is_home = !has_moved && (path == nullptr || path->kind == Path::Kind::kHome);
    if (is_home || is_refusal(status) || run.failures >= worker.config().bulk_max_retries) {
        job.work.fail(status);
    }
    job.work.failed(run);
    if (is_home) return;
    if (has_moved) return requeue(job);
    if (path->failure == UCS_OK) path->failure = status;
    suspend(job, *path);
    requeue(job);
}

void Engine::State::finish_if_over(Job& job) {
    if (!job.is_over()) return;
    if (job.group == nullptr) {
        bereft.erase(bereft.iterator_to(job));
        finished.push_back(job);
        deliver(job);
        return;
    }
    if (static_cast<WaitingHook&>(job).is_linked()) {
        job.group->waiting.erase(job.group->waiting.iterator_to(job));
    }
    job.group->jobs.erase(job.group->jobs.iterator_to(job));
    finished.push_back(job);
    worker.work_later();
}

void Engine::State::deliver(Job& job) {
    finished.erase(finished.iterator_to(job));
    Request& request = *job.request;
    Endpoint* endpoint = job.group == nullptr ? nullptr : &job.group->endpoint;
    const ucs_status_t status = job.work.status();
    const uint32_t number = job.number;
    jobs.destroy(&job);
    request.complete(status);
    if (endpoint != nullptr) endpoint->remote_operation_finished(number);
}

}  // namespace ucp::bulk
