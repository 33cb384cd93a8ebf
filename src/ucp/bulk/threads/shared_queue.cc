// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/threads/shared_queue.h"

#include <algorithm>

#include "ucp/bulk/engine/path.h"
#include "ucp/bulk/threads/thread_events.h"

namespace ucp::bulk {

std::vector<Mover*> Crew::movers() const {
    std::vector<Mover*> all;
    for (const MoverStrand* strand : strands) all.push_back(&strand->mover);
    return all;
}

bool Crew::carries(const Load& load) const {
    return std::ranges::any_of(strands, [&](const MoverStrand* strand) {
        return strand->link_up && load.is_served_by(strand->domain);
    });
}

void Crew::end_if_over(Load& load, Returns& returns) {
    const bool is_over = load.work.status() != UCS_OK || load.work.is_over() || !carries(load);
    if (load.chains != 0 || !is_over) return;
    loads.erase(loads.iterator_to(load));
    returns.push({.kind = Return::Kind::kLoad, .load = &load});
}

void Crew::end_idle_loads(Returns& returns) {
    for (auto load = loads.begin(); load != loads.end();) end_if_over(*load++, returns);
}

std::vector<Job*> Crew::take_back(Returns& returns) {
    std::vector<Job*> jobs;
    for (auto next = loads.begin(); next != loads.end();) {
        Load& load = *next++;
        if (!load.work.has_next()) continue;
        load.bytes -= load.job.work.take_back(load.work);
        jobs.push_back(&load.job);
        end_if_over(load, returns);
    }
    return jobs;
}

}  // namespace ucp::bulk
