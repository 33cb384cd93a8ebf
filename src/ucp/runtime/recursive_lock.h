// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <thread>

namespace ucp {

// A lock that its holder may take again, for what is held for moments: no call of the system and
// one atomic operation where nobody else wants it. Who waits looks for some microseconds, then
// gives the processor to others, since the holder may have lost its own, and sleeps at last, as
// others may have to run that the system puts behind it.
//
// No order among those that wait. Where one had to wait longer than a call takes, threads are
// likely to share processors; for some time after that a holder with nothing to do is asked to give
// way.
class RecursiveLock {
  public:
    RecursiveLock() = default;
    RecursiveLock(RecursiveLock&&) = delete;

    void lock() {
        const std::thread::id self = std::this_thread::get_id();
        if (holder_.load(std::memory_order_relaxed) == self) {
            ++depth_;
        } else if (!try_take(self)) [[unlikely]] {
            wait(self);
        }
    }
    void unlock() {
        if (depth_ != 0) [[unlikely]] {
            --depth_;
        } else {
            holder_.store({}, std::memory_order_release);
        }
    }
    // By the holder, which has found nothing to do: should it let others run once it has unlocked?
    bool should_give_way() { return crowded_ != 0 && depth_ == 0 && --crowded_ % kTurn == 0; }

    static constexpr unsigned kCrowded = 10000;  // times that a holder with nothing to do is asked
    static constexpr unsigned kTurn = 32;        // it gives way at one in these

  private:
    bool try_take(std::thread::id self) {
        std::thread::id nobody;
        return holder_.compare_exchange_strong(nobody, self, std::memory_order_acquire,
                                               std::memory_order_relaxed);
    }
    void wait(std::thread::id self);

    std::atomic<std::thread::id> holder_{};
    unsigned depth_ = 0;    // the holder's: how often it has taken it again
    unsigned crowded_ = 0;  // the holder's: how often it is still to be asked to give way
};

}  // namespace ucp
