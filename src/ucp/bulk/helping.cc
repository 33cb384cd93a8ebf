// SPDX-License-Identifier: BSD-3-Clause

// The worker's own paths carry of what is lent to movers, while the program makes calls.

#include <array>

#include "ucp/bulk/engine_state.h"
#include "ucp/worker/worker.h"

namespace ucp::bulk {

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
