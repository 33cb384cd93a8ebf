// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

namespace softhca {

inline void cpu_relax() {
    __builtin_ia32_pause();
}

/// A lock inside the segment that outlives its holder. The word names the holding process by a
/// token; a waiter that finds that process dead takes the lock over and is told so. What the lock
/// protects is written such that it can be repaired from any point at which a process may die.
class RobustLock {
  public:
    /// @param token  names the calling process (never 0)
    /// @param dead   bool(uint32_t token): whether the process named by a token is gone
    /// @return true if the lock was inherited from a dead process: repair what it protects.
    template <class Dead>
    bool lock(uint32_t token, const Dead& dead) {
        uint32_t seen = 0;
        if (word_.compare_exchange_strong(seen, token, std::memory_order_acquire)) return false;
        return lock_contended(token, dead);
    }

    void unlock() { word_.store(0, std::memory_order_release); }

  private:
    template <class Dead>
    __attribute__((noinline)) bool lock_contended(uint32_t token, const Dead& dead) {
        for (uint32_t spins = 1;; ++spins) {
            uint32_t seen = word_.load(std::memory_order_relaxed);
            if (seen == 0) {
                if (word_.compare_exchange_weak(seen, token, std::memory_order_acquire)) {
                    return false;
                }
            } else if (spins % 64 == 0) {
                if (dead(seen) &&
                    word_.compare_exchange_strong(seen, token, std::memory_order_acquire)) {
                    return true;
                }
                sched_yield();
            }
            cpu_relax();
        }
    }

    std::atomic<uint32_t> word_{0};
};

/// A lock between the threads of one process, for short sections.
class SpinLock {
  public:
    void lock() {
        for (uint32_t spins = 1; word_.exchange(true, std::memory_order_acquire); ++spins) {
            if (spins % 64 == 0) sched_yield();
            cpu_relax();
        }
    }
    bool try_lock() { return !word_.exchange(true, std::memory_order_acquire); }
    void unlock() { word_.store(false, std::memory_order_release); }

  private:
    std::atomic<bool> word_{false};
};

}  // namespace softhca
