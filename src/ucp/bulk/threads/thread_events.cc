// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/threads/thread_events.h"

#include <utility>

#include "ucp/runtime/wakeup.h"

namespace ucp::bulk {

// The lock orders the flag of the worker, which clears it before it takes: either it takes this
// entry, or the flag is set after it was cleared.
void ThreadEvents::push(ThreadEvent entry) {
    std::lock_guard lock(mutex_);
    entries_.push_back(std::move(entry));
    any_.store(true, std::memory_order_relaxed);
    work_.notify();
    if (wakeup_ != nullptr) (void)wakeup_->signal();
}

std::vector<ThreadEvent> ThreadEvents::take() {
    std::lock_guard lock(mutex_);
    any_.store(false, std::memory_order_relaxed);
    return std::exchange(entries_, {});
}

void ThreadEvents::set_wakeup(const Wakeup* wakeup) {
    std::lock_guard lock(mutex_);
    wakeup_ = wakeup;
}

}  // namespace ucp::bulk
