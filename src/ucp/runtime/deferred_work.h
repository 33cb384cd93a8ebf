// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>

namespace ucp {

// Whether something was put aside for the next progress of a worker: whoever puts something aside
// in a list of its own says so here. Any thread.
class DeferredWork {
  public:
    void notify() { is_due_.store(true, std::memory_order_relaxed); }
    bool is_due() const { return is_due_.load(std::memory_order_relaxed); }
    void taken() { is_due_.store(false, std::memory_order_relaxed); }

  private:
    std::atomic<bool> is_due_{false};
};

}  // namespace ucp
