// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <vector>

#include "ucp/bulk/engine/path.h"
#include "ucp/bulk/engine/run_queue.h"
#include "ucp/bulk/schedule/turns.h"
#include "ucp/bulk/threads/shared_queue.h"
#include "ucs/sys/time.h"

namespace ucp {

class Endpoint;

namespace bulk {

/** What bulk has for an endpoint, from its first transfer or queue pair on. */
struct PathGroup {
    PathGroup(Endpoint& owner, RunQueue& queue) : endpoint(owner), run_queue(queue) {}

    Path& lane() { return *paths.front(); }
    /** Its paths and transfers are looked at in the next progress. */
    void wake() { run_queue.wake(*this); }
    /** A transfer of so many bytes starts. */
    void note_start(uint64_t bytes, ucs::Time now) {
        uint64_t ahead = 0;
        for (const auto& path : paths) ahead += path->meter.under_way();
        // Of those that wait, which may be many, two tell enough.
        if (!waiting.empty())
            ahead += waiting.front().slices.bytes_waiting() + waiting.back().slices.bytes_waiting();
        mixture.started(bytes, ahead, now);
    }

    Endpoint& endpoint;
    RunQueue& run_queue;
    std::vector<std::unique_ptr<Path>> paths;   //!< the first is the endpoint's own lane
    WaitingList waiting;                        //!< transfers with slices to post, by turns
    Mixture mixture;                            //!< of long ones and short ones
    TransferList transfers;                     //!< all
    bool is_awake = false;                      //!< in the run queue
    bool is_watched = false;                    //!< the same
    std::unique_ptr<SharedQueue> shared_queue;  //!< null: no thread has a queue pair of it
    ucs::Time shared_at{};                      //!< since when threads have something of it
};

}  // namespace bulk
}  // namespace ucp
