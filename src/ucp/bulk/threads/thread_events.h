// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "ucp/runtime/deferred_work.h"
#include "ucs/type/status.h"

namespace ucp {

class Wakeup;

namespace bulk {

struct Transfer;
struct SharedTransfer;
struct ThreadQueuePair;

// What a thread has to say to the worker.
struct ThreadEvent {
    enum class Kind : uint8_t {
        kReturned,  // nothing of it is under way, and threads do no more for it
        kFailed,    // the queue pair is destroyed; `transfers` are those whose puts may still land
        kStopped,   // nothing is under way on the queue pair
    };
    Kind kind;
    SharedTransfer* shared = nullptr;
    std::shared_ptr<ThreadQueuePair> queue_pair = nullptr;
    ucs_status_t status = UCS_OK;
    std::vector<Transfer*> transfers = {};
};

// The way from the threads to the worker: in order, and it is woken up.
class ThreadEvents {
  public:
    explicit ThreadEvents(DeferredWork& work) : work_(work) {}

    // Any thread.
    void push(ThreadEvent entry);
    // Something is to be taken: a hint, for who only waits.
    bool any() const { return any_.load(std::memory_order_relaxed); }

    // --- the worker's thread ---
    // Never misses what the deferred work was notified of.
    std::vector<ThreadEvent> take();
    // Who sleeps for the worker; null: nobody any more.
    void set_wakeup(const Wakeup* wakeup);

  private:
    DeferredWork& work_;
    std::atomic<bool> any_{false};
    std::mutex mutex_;
    std::vector<ThreadEvent> entries_;
    const Wakeup* wakeup_ = nullptr;
};

}  // namespace bulk
}  // namespace ucp
