// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ucp/runtime/recursive_lock.h"
#include "ucs/datastruct/usage_tracker.h"
#include "ucs/memory/gate.h"

namespace ucp {

#ifdef SWIFTLANE_NO_TRACKER  // to compare with: docs/performance.md
inline constexpr uint32_t kHasTracker = 0;
#else
inline constexpr uint32_t kHasTracker = 1;
#endif

// What every call of a worker looks at first: whether several threads use the worker, whether the
// usage tracker counts sends at the moment, and whether buffers may lie in the memory of a device.
// One word says all, so that the send path tests it once.
class Gate {
  public:
    enum Bit : uint32_t {
        kThreads = 1u << 0,                     // several threads: take the lock
        kTracker = kHasTracker << 1,            // the usage tracker is armed: report sends
        kTrackerLocked = kHasTracker << 2,      // the same for several threads: under the lock
        kDevices = ucs::MemoryGate::kWatchBit,  // buffers are looked at
    };
    static constexpr uint32_t kAnyTracker = kTracker | kTrackerLocked;

    // A thread of the library that sleeps for the worker while threads of the program may call it.
    class Sleeper {
      public:
        // Called by a thread that is about to give up the lock: its call may have left work behind.
        virtual void look_at_call() = 0;

      protected:
        ~Sleeper() = default;
    };

    Gate() { ucs::MemoryGate::instance().watch(bits_); }
    ~Gate() { ucs::MemoryGate::instance().unwatch(bits_); }
    Gate(Gate&&) = delete;

    uint32_t bits() const { return bits_.load(std::memory_order_relaxed); }
    bool has_threads() const { return (bits() & kThreads) != 0; }
    RecursiveLock& lock() { return lock_; }

    // Call it for a worker of several threads, before any of them uses it.
    void set_threads() { set(kThreads, true); }
    // Call it under the lock. Null: nobody sleeps.
    void set_sleeper(Sleeper* sleeper) { sleeper_ = sleeper; }
    void end_call() {
        if (sleeper_ != nullptr) [[unlikely]]
            sleeper_->look_at_call();
    }
    // @param tracker  null: sends are never counted
    void set_tracker(ucs::UsageTracker* tracker) { tracker_ = tracker; }
    ucs::UsageTracker* tracker() const { return tracker_; }
    // Call it when the tracker was armed or disarmed.
    void arm(bool armed) { set(has_threads() ? kTrackerLocked : kTracker, armed); }

    // Count a send to the peer. Only while the tracker is armed.
    void touch(ucs::UsageTracker::Hook& hook, const uint64_t& peer, size_t bytes) {
        tracker_->touch(hook, peer, bytes);
    }
    void touch_if_armed(ucs::UsageTracker::Hook& hook, const uint64_t& peer, size_t bytes) {
        if ((bits() & kAnyTracker) != 0) touch(hook, peer, bytes);
    }
    // Count a long message, of which every one counts, whether the tracker is armed or not.
    void count(ucs::UsageTracker::Hook& hook, uint64_t peer, size_t bytes) {
        if (tracker_ != nullptr) tracker_->count(hook, peer, bytes);
    }
    static bool is_known_host(const void* buffer) {
        return ucs::MemoryGate::instance().is_known(reinterpret_cast<uintptr_t>(buffer));
    }
    // Whether the buffer is host memory. Only while kDevices is set.
    bool is_host(const void* buffer) {
        if (is_known_host(buffer)) [[likely]]
            return true;
        ucs::MemoryGate::instance().settle(bits_);
        return false;
    }

  private:
    void set(Bit bit, bool on) {
        // The memory gate sets its bit from other threads.
        on ? bits_.fetch_or(bit) : bits_.fetch_and(~uint32_t{bit});
    }

    // Written under the lock, read before it is taken.
    std::atomic<uint32_t> bits_{0};
    ucs::UsageTracker* tracker_ = nullptr;
    Sleeper* sleeper_ = nullptr;
    RecursiveLock lock_;
};

// Takes the gate's lock for a scope, if several threads use the worker.
class GateLock {
  public:
    [[gnu::always_inline]] explicit GateLock(Gate& gate)
        : gate_(gate.has_threads() ? &gate : nullptr) {
        if (gate_ != nullptr) [[unlikely]]
            gate_->lock().lock();
    }
    [[gnu::always_inline]] ~GateLock() {
        if (gate_ != nullptr) [[unlikely]]
            leave();
    }
    GateLock(GateLock&&) = delete;

  private:
    [[gnu::noinline]] void leave() {
        gate_->end_call();
        gate_->lock().unlock();
    }

    Gate* gate_;
};

}  // namespace ucp
