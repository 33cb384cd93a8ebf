// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "ucp/bulk/threads/bulk_thread.h"
#include "ucp/bulk/threads/shared_queue.h"
#include "ucp/bulk/threads/thread_events.h"
#include "ucs/datastruct/memory_pool.h"

namespace ucp {

class Endpoint;
class Worker;

namespace bulk {

/** The movers of a worker, by device, and what they share with it. Called in the worker's thread.
 */
class Pool {
  public:
    Pool(Worker& worker, const MoverRules& rules);
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    /**
     * The end of a strand on a mover that opens the same transport as that interface of the worker.
     * The movers are started when first asked for.
     */
    ucs_status_t make_end(unsigned interface, std::unique_ptr<uct::Endpoint>* end);
    /** One of UCX_BULK_SHARDS. */
    Shard& shard_of(const Endpoint& endpoint);

    size_t movers() const;
    const MoverCounters& counters() const { return counters_; }

    Returns returns;
    ucs::ObjectPool<Load> loads{"bulk transfers lent to threads"};

  private:
    struct Team {
        std::vector<std::unique_ptr<Mover>> movers;
        size_t next = 0;
    };
    Team& team_of(unsigned interface);

    Worker& worker_;
    const MoverRules rules_;
    MoverCounters counters_;
    std::vector<std::unique_ptr<Shard>> shards_;
    std::map<unsigned, Team> teams_;  //!< by the worker's interface
};

}  // namespace bulk
}  // namespace ucp
