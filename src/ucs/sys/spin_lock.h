// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sched.h>

#include <atomic>

namespace ucs {

// For each look in vain of a thread that spins: the other thread of the core has it meanwhile.
inline void cpu_relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield" ::: "memory");
#endif
}

// For each look in vain of a caller who may look again at once: no later look begins before this
// one has ended. A processor has several under way else, and the later ones take a line from who
// is about to write it again.
inline void end_look() {
#if defined(__x86_64__)
    __builtin_ia32_lfence();
#endif
}

// A lock between threads of one process for some tens of instructions, with the names of
// std::mutex. Taken and given back it is one atomic operation, where a mutex takes two. Who finds
// it taken looks at it for a while, then lets other threads run.
class SpinLock {
  public:
    SpinLock() = default;
    SpinLock(SpinLock&&) = delete;

    void lock() {
        while (!try_lock()) {
            for (unsigned looks = 0; is_taken_.load(std::memory_order_relaxed); ++looks) {
                looks < kLooks ? cpu_relax() : static_cast<void>(sched_yield());
            }
        }
    }
    bool try_lock() { return !is_taken_.exchange(true, std::memory_order_acquire); }
    void unlock() { is_taken_.store(false, std::memory_order_release); }

  private:
    static constexpr unsigned kLooks = 100;

    std::atomic<bool> is_taken_{false};
};

}  // namespace ucs
