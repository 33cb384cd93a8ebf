// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "ucp/bulk/threads/bulk_thread.h"
#include "ucp/bulk/threads/shared_queue.h"
#include "ucp/bulk/threads/thread_events.h"
#include "ucp/context/context.h"
#include "ucp/endpoint/endpoint.h"
#include "ucp/runtime/deferred_work.h"
#include "ucp/runtime/interface_set.h"
#include "ucs/datastruct/memory_pool.h"
#include "ucs/sys/random.h"

namespace ucp {

namespace bulk {

// The threads of a worker, by device, and what they share with it. Called in the worker's thread.
class ThreadPool {
  public:
    ThreadPool(DeferredWork& work, const InterfaceSet& interfaces, Context& context, uint64_t seed,
               const Rules& rules);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;

    // A queue pair of a thread, which opens the same transport as that interface of the worker. The
    // threads are started when first asked for.
    ucs_status_t make_queue_pair(unsigned interface, std::unique_ptr<uct::Endpoint>* proxy);
    // How many threads serve the device of that interface, once they are started.
    unsigned threads_for(unsigned interface) {
        return static_cast<unsigned>(threads_of(interface).threads.size());
    }
    // One of UCX_BULK_SHARDS.
    Shard& shard_of(const Endpoint& endpoint);

    size_t threads() const;
    const ThreadCounters& counters() const { return counters_; }

    ThreadEvents events;
    ucs::ObjectPool<SharedTransfer> shared_transfers{"bulk transfers of threads"};

  private:
    struct DeviceThreads {
        std::vector<std::unique_ptr<BulkThread>> threads;
        size_t next = 0;
    };
    DeviceThreads& threads_of(unsigned interface);

    const InterfaceSet& interfaces_;
    Context& context_;
    ucs::Random random_;
    const Rules rules_;
    const std::vector<unsigned> allowed_cpus_;
    ThreadCounters counters_;
    std::vector<std::unique_ptr<Shard>> shards_;
    std::map<unsigned, DeviceThreads> devices_;  // by the worker's interface
};

}  // namespace bulk
}  // namespace ucp
