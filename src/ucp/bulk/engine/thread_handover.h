// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include "ucp/bulk/engine/path.h"
#include "ucp/bulk/threads/thread_pool.h"

namespace ucp::bulk {

class PathTable;
class Poster;
class TransferTable;

// Hands transfers over to threads and takes back what they leave. All of it in the worker's thread.
class ThreadHandover {
  public:
    ThreadHandover(std::unique_ptr<ThreadPool> pool, const ucs::Clock& clock,
                   const ScheduleRules& rules, ucs::Duration stall_timeout, PathTable& paths,
                   TransferTable& transfers, Poster& poster);

    ThreadPool& pool() { return *pool_; }
    // If the path stands for a thread's queue pair the thread posts on it from now on.
    void attach(Path& path);
    // The thread posts no more on it; the path drains.
    static void stop(Path& path);
    // What waits in the group, as far as its threads can serve it.
    void hand_over(PathGroup& group);
    // The worker's own paths take slices of what was handed over and not yet taken, by the rules of
    // the schedule. Not when a transfer is started: then a program that computes does not hold it
    // up. One that makes calls learns of the end in such a call anyway.
    void steal_slices(PathGroup& group);
    // The threads' queue pairs and the other paths learn of each other's progress. What waits for
    // threads that get nothing done goes by the other paths: these show who is silent.
    // @return whether the threads get nothing done
    bool check(PathGroup& group, ucs::Time now);
    // The endpoint has failed: threads have nothing of it when this returns.
    void take_all_back(PathGroup& group, ucs_status_t status);
    // What threads have to say.
    void handle_events();

  private:
    SharedTransfer* share(Transfer& transfer, SharedQueue& queue);
    Transfer* steal(PathGroup& group, Path& path, ucs::Time now);
    void returned(SharedTransfer& shared);
    void queue_pair_failed(const ThreadEvent& event);

    const ucs::Clock& clock_;
    const ScheduleRules rules_;
    const ucs::Duration stall_timeout_;
    PathTable& paths_;
    TransferTable& transfers_;
    Poster& poster_;
    std::unique_ptr<ThreadPool> pool_;
};

}  // namespace ucp::bulk
