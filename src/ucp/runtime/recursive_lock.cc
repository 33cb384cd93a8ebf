// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/runtime/recursive_lock.h"

#include <sched.h>

#include <chrono>

#include "ucs/sys/spin_lock.h"

namespace ucp {
namespace {

// Two microseconds or so: most calls are over by then.
constexpr unsigned kLooks = 40;
// Each lets one other run, who may be the holder; by then so many of them have had a turn, or the
// holder is at a long copy.
constexpr unsigned kYields = 100;
constexpr std::chrono::microseconds kNap{50};

}  // namespace

void RecursiveLock::wait(std::thread::id self) {
    for (unsigned round = 0;; ++round) {
        // Only a look, as long as it is taken: an attempt would take the line from the holder.
        if (holder_.load(std::memory_order_relaxed) == std::thread::id() && try_take(self)) {
            if (round > kLooks) crowded_ = kCrowded;
            return;
        }
        if (round < kLooks) {
            ucs::cpu_relax();
        } else if (round < kLooks + kYields) {
            sched_yield();
        } else {
            std::this_thread::sleep_for(kNap);
        }
    }
}

}  // namespace ucp
