// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "ucs/type/status.h"

namespace ucp {

class Wakeup;
class Worker;

namespace bulk {

struct Job;
struct Load;
struct MoverStrand;

/** What a mover has to say to the worker. */
struct Return {
    enum class Kind : uint8_t {
        kLoad,     //!< nothing of it is under way, and movers do no more for it
        kFailed,   //!< the strand is destroyed; `jobs` are those whose puts may still land
        kStopped,  //!< nothing is under way on the strand
    };
    Kind kind;
    Load* load = nullptr;
    std::shared_ptr<MoverStrand> strand = nullptr;
    ucs_status_t status = UCS_OK;
    std::vector<Job*> jobs = {};
};

/** The way from the movers to the worker: in order, and it is woken up. */
class Returns {
  public:
    explicit Returns(Worker& worker) : worker_(worker) {}

    /** Any thread. */
    void push(Return entry);
    /** Something is to be taken: a hint, for who only waits. */
    bool any() const { return any_.load(std::memory_order_relaxed); }

    // --- the worker's thread ---
    /** Never misses what Worker::has_work() was set for. */
    std::vector<Return> take();
    /** Who sleeps for the worker; null: nobody any more. */
    void set_wakeup(const Wakeup* wakeup);

  private:
    Worker& worker_;
    std::atomic<bool> any_{false};
    std::mutex mutex_;
    std::vector<Return> entries_;
    const Wakeup* wakeup_ = nullptr;
};

}  // namespace bulk
}  // namespace ucp
