// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "softhca/softhca.h"
#include "ucp/api/ucp.h"
#include "ucp/context/context.h"
#include "ucp/worker/worker.h"
#include "ucs/config/source.h"
#include "ucs/sys/time.h"

namespace perf {

// Two workers of one process, or more, over emulated adapters or shared memory, on a clock that
// moves only by step().
//
// The process's UCX_* variables count, so that measurements choose transports and lanes from
// outside. Anything that goes wrong ends the process with a message.
class Pair {
  public:
    // kHost: shared memory and a worker's way to itself, polled as in programs: not at each step of
    // the clock, which stands.
    enum class Over : uint8_t { kAdapters, kSharedMemory, kHost };

    explicit Pair(size_t estimated_endpoints = 2, Over over = Over::kAdapters);

    ucp::Worker& worker(unsigned index) { return *workers_[index]; }
    ucp_worker_h handle(unsigned index);
    // A new endpoint, of worker 0 if nothing is said, to the worker with that packed address.
    ucp_ep_h connect(const void* address, unsigned from = 0);
    // To another worker, with that id, behind the transports of worker 1.
    ucp_ep_h connect_to(uint64_t uuid);
    ucp_ep_h connect() { return connect(worker(1).address().data()); }
    // One more worker, beside worker 1. @return its index
    unsigned add_worker();
    size_t workers() const { return workers_.size(); }
    // When a worker has something to do next.
    ucs::Time next_deadline() const;

    // The clock goes on, the adapters work until they are idle, all workers progress.
    void step(ucs::Duration time = ucs::Duration(0));
    // The clock goes on, and nobody looks at it. @return the time
    ucs::Time let_pass(ucs::Duration time);
    // The adapters work until they are idle; nobody looks at what they did.
    void run_adapters() { fabric_.run_until_idle(); }
    // All workers progress until nothing moves; the clock stands.
    void drain();

  private:
    void make_worker(ucp::Context& context);

    softhca::VirtualFabric fabric_;
    ucs::VirtualClock clock_;
    std::array<std::unique_ptr<ucp::Context>, 2> contexts_;
    std::vector<std::unique_ptr<ucp::Worker>> workers_;
};

// Ends the process unless the condition holds.
void require(bool condition, const char* what);

}  // namespace perf
