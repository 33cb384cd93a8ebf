// SPDX-License-Identifier: BSD-3-Clause

// What becomes of paths: errors, silence, rest, probes, their end.

#include <algorithm>
#include <utility>

#include "ucp/bulk/engine/engine_state.h"
#include "ucp/bulk/queue_pairs/queue_pair_driver.h"
#include "ucp/worker/worker.h"
#include "ucs/log.h"

namespace ucp::bulk {
namespace {

constexpr unsigned kMaxDoublings = 5;
constexpr ucs::Duration kTick = std::chrono::milliseconds(5);

}  // namespace

// --- making
// ----------------------------------------------------------------------------------------

ucs_status_t Engine::State::make_rail(Path& path) {
    const ucs_status_t status =
        worker.interface(path.interface)
            .transport->create_endpoint({path.remote_device, path.remote_interface, {}}, &path.own);
    if (status == UCS_OK) path.transport = path.own.get();
    return status;
}

void Engine::State::rest(Path& path, ucs::Time now) {
    path.transport = nullptr;
    path.own.reset();
    path.state = Path::State::kResting;
    const unsigned doublings = std::min(path.failures, kMaxDoublings);
    ++path.failures;
    path.due = ucs::deadline(now, worker.config().bulk_retry_interval * (1 << doublings));
}

void Engine::State::probe(Path& path, ucs::Time now) {
    path.failure = UCS_OK;
    if (make_rail(path) != UCS_OK) return rest(path, now);
    path.state = Path::State::kProbing;
    path.due = ucs::deadline(now, worker.config().bulk_stall_timeout);
    ask(path);
}

void Engine::State::ask(Path& path) {
    path.probe = std::make_unique<Path::Probe>();
    Path::Probe& probe = *path.probe;
    probe.count = 1;
    probe.callback = [](uct::Completion* self) {
        auto* done = static_cast<Path::Probe*>(self);
        done->is_back = true;
        if (done->is_abandoned) delete done;
    };
    const ucs_status_t status = path.transport->check(&probe);
    if (status == UCS_INPROGRESS) return;
    probe.status = status;
    probe.is_back = true;
}

/** Whether others go on is not known while they are idle. */
void Engine::State::ask_idle(Group& group) {
    refresh_home(group);
    for (const auto& path : group.paths) {
        const bool is_idle = path->may_post() && path->meter.under_way() == 0;
        if (is_idle && path->probe == nullptr) ask(*path);
    }
}

// --- failing
// ---------------------------------------------------------------------------------------

/** Its slices are posted elsewhere; the completions of its chains mean nothing any more. */
void Engine::State::give_up(Path& path) {
    path.stop_waiting();
    while (!path.chains.empty()) {
        Chain& chain = path.chains.front();
        path.chains.pop_front();
        Job& job = *chain.job;
        chain.job = nullptr;
        chain.path = nullptr;
        --job.chains;
        if (chain.run.failures >= worker.config().bulk_max_retries) job.work.fail(path.failure);
        job.work.failed(chain.run);
        suspend(job, path);
        requeue(job);
        finish_if_over(job);
    }
    path.meter.give_up();
}

void Engine::State::fail(Path& path, ucs_status_t status) {
    Group& group = path.group;
    ucs::log_info("bulk: a {} to worker {:016x} gave up: {}",
                  path.kind == Path::Kind::kRail ? attributes_of(path).device : "queue pair",
                  group.endpoint.remote_uuid(), ucs_status_string(status));
    path.failure = status;
    path.abandon_probe();
    path.held.clear();
    give_up(path);
    path.state = Path::State::kCutting;
    path.is_cut = false;
    path.cut = ++next_cut;
    path.cut_end = ucs::deadline(worker.now(), worker.config().bulk_cut_timeout);
    if (path.kind == Path::Kind::kStrand) {
        path.owner->path_failed(path, status);
    } else {
        path.own.reset();
    }
    path.transport = nullptr;
    watch(group);
    send_cut(path, worker.now());
}

/** Nothing of the path comes to the peer's memory any more. */
void Engine::State::severed(Path& path, ucs::Time now) {
    for (Job* job : path.suspended) {
        --job->cuts;
        finish_if_over(*job);
    }
    path.suspended.clear();
    if (path.kind == Path::Kind::kRail) rest(path, now);
}

/** Does what completions, messages and removals have left to do. */
void Engine::State::settle(Group& group) {
    for (size_t index = 0; index < group.paths.size();) {
        Path& path = *group.paths[index];
        const bool is_up = path.state == Path::State::kUp || path.state == Path::State::kLeaving;
        if (path.kind != Path::Kind::kHome && is_up && path.failure != UCS_OK) {
            fail(path, path.failure);
        }
        bool is_gone = false;
        if (path.state == Path::State::kCutting && path.is_cut) {
            severed(path, worker.now());
            is_gone = path.kind == Path::Kind::kStrand;
        } else if (path.state == Path::State::kLeaving && path.chains.empty()) {
            is_gone = true;
        }
        if (!is_gone) {
            ++index;
            continue;
        }
        const std::unique_ptr<Path> last = std::move(group.paths[index]);
        group.paths.erase(group.paths.begin() + static_cast<ptrdiff_t>(index));
        path.owner->path_gone(path);
    }
}

bool Engine::State::others_went_on(const Path& path) const {
    return std::ranges::any_of(path.group.paths, [&](const auto& other) {
        return other.get() != &path && other->meter.completed_at() > path.meter.silent_since();
    });
}

bool Engine::State::is_silent(Path& path, ucs::Time now) {
    if (path.meter.under_way() == 0 ||
        now - path.meter.silent_since() < worker.config().bulk_stall_timeout) {
        return false;
    }
    if (others_went_on(path)) return true;
    ask_idle(path.group);
    return false;
}

// --- the clock
// -------------------------------------------------------------------------------------

void Engine::State::check(Group& group, ucs::Time now) {
    refresh_home(group);
    bool other_links = false, is_greeted = false;
    for (const auto& path : group.paths) {
        const bool has_link = worker.interface(path->interface).transport->is_link_up();
        other_links = other_links || (has_link && path->state == Path::State::kUp);
    }
    for (const auto& each : group.paths) {
        Path& path = *each;
        const bool had_link = path.link_up;
        path.link_up = worker.interface(path.interface).transport->is_link_up();
        switch (path.state) {
            case Path::State::kUp:
            case Path::State::kLeaving:
                if (path.probe != nullptr && path.probe->is_back) {
                    if (path.probe->status == UCS_OK) path.meter.answered(now);
                    path.probe.reset();
                }
                if (path.kind == Path::Kind::kHome) {
                    path.link_up = path.link_up && !is_silent(path, now);
                } else if (is_silent(path, now)) {
                    path.failure = UCS_ERR_TIMED_OUT;
                } else if (!path.link_up && other_links && path.meter.under_way() != 0) {
                    path.failure = UCS_ERR_UNREACHABLE;
                }
                break;
            case Path::State::kLent:
                break;
            case Path::State::kCutting:
                if (now >= path.cut_end) {
                    ucs::log_info("bulk: worker {:016x} does not cut off what has failed",
                                  group.endpoint.remote_uuid());
                    group.endpoint.fail(UCS_ERR_ENDPOINT_TIMEOUT);
                } else if (now >= path.due) {
                    // It may have closed its endpoint, and then has nothing to answer with.
                    if (!std::exchange(is_greeted, true)) group.endpoint.greet_again();
                    send_cut(path, now);
                }
                break;
            case Path::State::kResting:
                if (now >= path.due && path.link_up) probe(path, now);
                break;
            case Path::State::kProbing:
                if (path.probe->is_back && path.probe->status == UCS_OK) {
                    path.probe.reset();
                    path.state = Path::State::kUp;
                } else if (path.probe->is_back || now >= path.due) {
                    path.abandon_probe();
                    rest(path, now);
                }
                break;
        }
        if (path.failure != UCS_OK || path.link_up != had_link) wake(group);
    }
    if (!group.waiting.empty()) wake(group);
}

// --- ends
// ------------------------------------------------------------------------------------------

/** The endpoint has failed: only what its lane carries is waited for. */
void Engine::State::drop_all(Group& group, ucs_status_t status) {
    if (group.crew != nullptr) recall(group, status);
    for (Job& job : group.jobs) job.work.fail(status);
    group.waiting.clear();
    for (const auto& path : group.paths) {
        path->stop_waiting();
        path->abandon_probe();
        if (path->kind == Path::Kind::kHome) continue;
        path->failure = status;
        give_up(*path);
        for (Job* job : path->suspended) --job->cuts;
        path->suspended.clear();
        path->transport = nullptr;
        path->own.reset();
    }
    while (group.paths.size() > 1) {
        const std::unique_ptr<Path> last = std::move(group.paths.back());
        group.paths.pop_back();
        if (last->kind == Path::Kind::kStrand) last->owner->path_gone(*last);
    }
    for (auto job = group.jobs.begin(); job != group.jobs.end();) finish_if_over(*job++);
    while (!finished.empty()) deliver(finished.front());
}

void Engine::State::release(Group& group) {
    drop_all(group, UCS_ERR_CANCELED);
    for (Chain& chain : group.paths.front()->chains) chain.path = nullptr;
    group.paths.front()->chains.clear();
    while (!group.jobs.empty()) {
        Job& job = group.jobs.front();
        group.jobs.pop_front();
        job.group = nullptr;
        bereft.push_back(job);
        // Its end is nothing to the endpoint any more.
        group.endpoint.remote_operation_finished(job.number);
    }
    std::erase(active, &group);
    std::erase(watched, &group);
    groups.erase(&group.endpoint);
}

// --- the worker's calls
// ----------------------------------------------------------------------------

void Engine::run_deferred() {
    State& state = *state_;
    if (state.pool != nullptr) state.take_returns();
    while (!state.finished.empty()) state.deliver(state.finished.front());
    const auto cuts = std::move(state.cuts_due);
    state.cuts_due.clear();
    for (const auto& message : cuts) state.carry_out(message);
    // Before failed paths are settled, so that it is known what they carried.
    if (state.pool != nullptr) state.take_returns();
    if (state.active.empty()) return;
    state.running.swap(state.active);
    for (Group* group : state.running) group->is_active = false;
    for (Group* group : state.running) {
        state.settle(*group);
        state.send_held(*group);
        state.pump(*group);
        if (group->crew != nullptr) state.help(*group);
    }
    state.running.clear();
}

void Engine::advance(ucs::Time now) {
    State& state = *state_;
    state.worker.strands().advance(now);
    if (state.watched.empty() || now < state.tick) return;
    state.tick = ucs::deadline(now, kTick);
    std::erase_if(state.watched, [](Group* group) {
        const bool is_healthy = std::ranges::all_of(group->paths, [](const auto& path) {
            const bool is_up = path->state == Path::State::kUp || path->state == Path::State::kLent;
            return is_up && path->failure == UCS_OK;
        });
        group->is_watched = !is_healthy || !group->jobs.empty();
        return !group->is_watched;
    });
    // What a check sends may have more groups watched.
    for (size_t index = 0; index < state.watched.size(); ++index) {
        Group* group = state.watched[index];
        if (group->crew != nullptr) state.tend(*group, now);
        state.check(*group, now);
    }
}

ucs::Time Engine::next_deadline() const {
    const ucs::Time strands = state_->worker.strands().next_deadline();
    return state_->watched.empty() ? strands : std::min(strands, state_->tick);
}

void Engine::endpoint_failed(Endpoint& endpoint) {
    if (Group* group = state_->find(endpoint)) state_->drop_all(*group, endpoint.status());
}

void Engine::forget(Endpoint& endpoint) {
    if (Group* group = state_->find(endpoint)) state_->release(*group);
}

bool Engine::transport_failed(const uct::Endpoint* transport, ucs_status_t status) {
    if (transport == nullptr) return false;
    for (const auto& [endpoint, group] : state_->groups) {
        for (const auto& path : group->paths) {
            if (path->transport != transport || path->kind == Path::Kind::kHome) continue;
            if (path->failure == UCS_OK) path->failure = status;
            state_->wake(*group);
            return true;
        }
    }
    return false;
}

}  // namespace ucp::bulk
