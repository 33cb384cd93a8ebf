// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <span>

#include "ucp/bulk/engine/transfer.h"
#include "ucs/datastruct/memory_pool.h"

namespace ucp::bulk {

class Path;
class RunQueue;

// The transfers of a worker, from their start to the end of their requests.
class TransferTable {
  public:
    explicit TransferTable(RunQueue& run_queue) : run_queue_(run_queue) {}

    // Null if there is no memory.
    Transfer* create(std::span<const Piece> pieces, const SliceRules& rules) {
        return pool_.create(pieces, rules);
    }
    // What of it waits is posted next.
    void requeue(Transfer& transfer);
    // It does not end until the path is revoked or its endpoint is no more: a put may land yet.
    void suspend(Transfer& transfer, Path& path);
    // Nothing of the path comes to the peer's memory any more.
    void release_suspended(Path& path);
    void finish_if_over(Transfer& transfer);
    // The requests of those that are over end: users' callbacks.
    void deliver_finished() {
        while (!finished_.empty()) deliver(finished_.front());
    }
    // The group's memory goes: what its lane carries of them is still waited for.
    void orphan(PathGroup& group);

    size_t in_use() const { return pool_.in_use(); }

  private:
    void deliver(Transfer& transfer);

    RunQueue& run_queue_;
    ucs::ObjectPool<Transfer> pool_{"bulk transfers"};
    TransferList finished_;
    TransferList orphans_;
};

}  // namespace ucp::bulk
