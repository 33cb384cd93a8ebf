// SPDX-License-Identifier: BSD-3-Clause

// Transfers lent to movers, and what comes back from them. All of it in the worker's thread.

#include <algorithm>
#include <array>

#include "ucp/bulk/engine/engine_state.h"
#include "ucp/bulk/queue_pairs/queue_pair_driver.h"
#include "ucp/bulk/threads/queue_pair_proxy.h"
#include "ucp/bulk/threads/thread_pool.h"
#include "ucp/mem/memory.h"
#include "ucp/worker/worker.h"

namespace ucp::bulk {
namespace {

/** Something is completed on a path whose chains are not counted here. */
void beat(Meter& meter, ucs::Time now) {
    if (now <= meter.completed_at()) return;
    meter.posted(0, now);
    meter.completed(0, now);
}

std::vector<Grip> grips_of(const Crew::Domain& domain, const Job& job) {
    const size_t longest =
        job.direction == Direction::kPut ? domain.longest_put : domain.longest_get;
    if (job.work.longest_slice() > longest) return {};
    std::vector<Grip> grips;
    const Piece* known = nullptr;
    for (const Piece& piece : job.work.pieces()) {
        if (known == nullptr || piece.memory != known->memory || piece.key != known->key) {
            const Grip grip{piece.memory->handle(domain.pair.local), piece.key->find(domain.pair)};
            if (grip.memory == nullptr || grip.key == uct::kInvalidRemoteKey) return {};
            grips.push_back(grip);
            known = &piece;
        } else {
            grips.push_back(grips.back());
        }
    }
    return grips;
}

}  // namespace

LentTo::~LentTo() {
    if (strand != nullptr) strand->path = nullptr;
}

// --- strands
// ---------------------------------------------------------------------------------------

/** A path on a mover's strand is posted on by the mover. */
void Engine::State::adopt(Path& path) {
    const auto* end = dynamic_cast<const LentEnd*>(path.transport);
    if (end == nullptr) return;
    Group& group = path.group;
    if (group.crew == nullptr) {
        group.crew = std::make_unique<Crew>(pool->shard_of(group.endpoint));
    }
    Crew& crew = *group.crew;
    auto domain = std::ranges::find(crew.domains, path.domains, &Crew::Domain::pair);
    if (domain == crew.domains.end()) {
        const uct::InterfaceAttributes& attributes = attributes_of(path);
        crew.domains.push_back({path.domains, attributes.put.max_zcopy, attributes.get.max_zcopy});
        domain = crew.domains.end() - 1;
    }
    path.state = Path::State::kLent;
    path.lent.strand = end->strand();
    MoverStrand& strand = *path.lent.strand;
    strand.path = &path;
    strand.mover.begin(strand, crew, static_cast<unsigned>(domain - crew.domains.begin()),
                       path.meter.rate());
}

void Engine::State::stop_lent(Path& path) {
    MoverStrand& strand = *path.lent.strand;
    strand.mover.stop(strand);
}

// --- transfers
// -------------------------------------------------------------------------------------

Load* Engine::State::make_load(Job& job, Crew& crew) {
    std::vector<std::vector<Grip>> grips;
    bool is_served = false;
    for (const Crew::Domain& domain : crew.domains) {
        grips.push_back(grips_of(domain, job));
        is_served = is_served || !grips.back().empty();
    }
    if (!is_served) return nullptr;
    Load* load = pool->loads.create(job, crew, job.direction, job.work.pieces(), job.work.rules());
    if (load == nullptr) return nullptr;
    load->grips = std::move(grips);
    return load;
}

void Engine::State::lend(Group& group) {
    Crew& crew = *group.crew;
    {
        std::lock_guard lock(crew.shard.mutex);
        if (crew.strands.empty() || crew.is_distrusted) return;
    }
    bool any = false;
    for (auto next = group.waiting.begin(); next != group.waiting.end();) {
        Job& job = *next++;
        if (!job.work.has_next()) continue;
        if (!passes_fence(job)) break;
        Load* load = job.work.has_next() ? make_load(job, crew) : nullptr;
        if (load == nullptr) continue;
        std::unique_lock lock(crew.shard.mutex);
        if (!crew.carries(*load)) {
            lock.unlock();
            pool->loads.destroy(load);
            continue;
        }
        if (crew.loads.empty()) group.lent_at = worker.now();
        job.work.lend(load->work);
        load->bytes = load->work.bytes_waiting();
        crew.loads.push_back(*load);
        crew.has_work.store(true);
        lock.unlock();
        ++job.chains;
        group.waiting.erase(group.waiting.iterator_to(job));
        any = true;
    }
    if (!any) return;
    call_movers(crew);
    wake(group);
}

void Engine::State::call_movers(Crew& crew) {
    std::vector<Mover*> movers;
    {
        std::lock_guard lock(crew.shard.mutex);
        movers = crew.movers();
    }
    for (Mover* mover : movers) mover->wake();
}

/** Nothing of it is under way any more: what is left of it waits in its job again. */
void Engine::State::give_back(Load& load) {
    Job& job = load.job;
    if (load.work.status() != UCS_OK) job.work.fail(load.work.status());
    load.bytes -= job.work.take_back(load.work);
    Run rest;
    rest.bytes = load.bytes;
    job.work.completed(rest);
    pool->loads.destroy(&load);
    --job.chains;
    requeue(job);
    wake(*job.group);
    finish_if_over(job);
}

void Engine::State::take_returns() {
    // What is handled may bring more.
    for (auto entries = pool->returns.take(); !entries.empty(); entries = pool->returns.take()) {
        for (const Return& entry : entries) {
            switch (entry.kind) {
                case Return::Kind::kLoad:
                    give_back(*entry.load);
                    break;
                case Return::Kind::kFailed:
                    lent_failed(entry);
                    break;
                case Return::Kind::kStopped:
                    if (Path* path = entry.strand->path; path != nullptr) {
                        if (path->state == Path::State::kLent) path->state = Path::State::kLeaving;
                        wake(path->group);
                    }
                    break;
            }
        }
    }
}

void Engine::State::lent_failed(const Return& entry) {
    MoverStrand& strand = *entry.strand;
    if (strand.path == nullptr) {
        if (strand.end != nullptr) worker.strands().transport_failed(strand.end);
        return;
    }
    Path& path = *strand.path;
    for (Job* job : entry.jobs) suspend(*job, path);
    if (path.failure == UCS_OK) path.failure = entry.status;
    if (path.state == Path::State::kLent) path.state = Path::State::kUp;
    wake(path.group);
}

/** The endpoint has failed: movers have nothing of it when this returns. */
void Engine::State::recall(Group& group, ucs_status_t status) {
    Crew& crew = *group.crew;
    {
        std::lock_guard lock(crew.shard.mutex);
        for (Load& load : crew.loads) load.work.fail(status);
    }
    for (const auto& path : group.paths) {
        if (path->lent.strand == nullptr) continue;
        MoverStrand& strand = *path->lent.strand;
        strand.mover.close(strand);
    }
    take_returns();
}

/**
 * The movers' strands and the other paths learn of each other's progress. What waits for movers
 * that get nothing done goes by the other paths: these show who is silent, and are asked if they
 * are idle.
 */
void Engine::State::tend(Group& group, ucs::Time now) {
    Crew& crew = *group.crew;
    ucs::Time others{};
    bool others_have_link = false;
    for (const auto& path : group.paths) {
        if (path->lent.strand != nullptr) continue;
        others = std::max(others, path->meter.completed_at());
        others_have_link = others_have_link || path->may_post();
    }
    std::vector<Job*> taken;
    bool is_quiet = false;
    {
        std::lock_guard lock(crew.shard.mutex);
        crew.others_at = others;
        crew.others_have_link = others_have_link;
        for (const auto& path : group.paths) {
            if (path->state == Path::State::kLent) beat(path->meter, crew.completed_at);
        }
        const bool is_idle = std::ranges::all_of(
            crew.strands, [](const MoverStrand* strand) { return strand->meter.under_way() == 0; });
        if (is_idle) crew.is_distrusted = false;
        is_quiet = !crew.loads.empty() && now - std::max(crew.completed_at, group.lent_at) >=
                                              worker.config().bulk_stall_timeout / 2;
        if (is_quiet) {
            crew.is_distrusted = true;
            taken = crew.take_back(pool->returns);
        }
    }
    for (auto job = taken.rbegin(); job != taken.rend(); ++job) requeue(**job);
    if (!taken.empty() || crew.has_work.load()) wake(group);
    if (is_quiet) ask_idle(group);
}

// The worker's own paths carry of what is lent to movers, while the program makes calls.

/**
 * Some of what waits for movers waits in its job again, for that path: what it is to have by the
 * rules of the schedule.
 * @return null: nothing
 */
Job* Engine::State::draw(Group& group, Path& path, ucs::Time now) {
    Crew& crew = *group.crew;
    std::lock_guard lock(crew.shard.mutex);
    for (Load& load : crew.loads) {
        Job& job = load.job;
        if (!load.work.has_next() || job.work.status() != UCS_OK) continue;
        const Slice slice = load.work.cursor().slice();
        if (!can_take(path, job, slice)) continue;
        std::array<const Meter*, kMaxPaths> meters;
        size_t count = 0;
        for (const auto& each : group.paths) {
            if (can_take(*each, job, slice)) meters[count++] = &each->meter;
        }
        for (const MoverStrand* each : crew.strands) {
            const bool takes = each->link_up && !each->is_full && load.is_served_by(each->domain);
            if (takes) meters[count++] = &each->meter;
        }
        const size_t bytes = pull(path.meter, {meters.data(), count}, slice.length,
                                  load.work.bytes_waiting(), now, rules);
        if (bytes == 0) continue;
        load.bytes -= job.work.take_back(load.work, bytes, rules.chain);
        crew.end_if_over(load, pool->returns);
        return &job;
    }
    return nullptr;
}

/**
 * Not when a transfer is started: then a program that computes does not hold it up. One that makes
 * calls learns of the end in such a call anyway.
 */
void Engine::State::help(Group& group) {
    if (!group.crew->has_work.load()) return;
    const ucs::Time now = worker.now();
    refresh_home(group);
    for (bool any = true; any;) {
        any = false;
        for (const auto& path : group.paths) {
            Job* const job = draw(group, *path, now);
            if (job == nullptr) continue;
            any = post(group, *job, *path, job->work.bytes_waiting(), now) || any;
            if (!job->work.has_next()) continue;
            requeue(*job);
            wake(group);
        }
    }
}

}  // namespace ucp::bulk
