// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace ucp {

// Address ranges that are no longer what they were, on the way from whoever unmaps them to the
// registration cache.
//
// push() runs inside munmap(): it may be in the allocator, in a signal handler, on any thread. So
// it takes no lock and allocates nothing. A fixed number of ranges waits; when there is no room,
// everything is taken to be gone. Whoever takes them sees every push that has returned: the check
// is one comparison of the number of pushes, and the ranges are found by looking at all places, so
// that a thread that stands still in the middle of a push holds up nobody.
//
// Thread rule: push() and is_empty() are called by any thread, take() by one at a time.
class Invalidations {
  public:
    static constexpr uintptr_t kEnd = UINTPTR_MAX;

    void push(uintptr_t begin, uintptr_t end) {
        if (!store(begin, end)) overflow_.store(true, std::memory_order_release);
        // Read-modify-write: whoever sees the number sees what came before each push in it.
        pushed_.fetch_add(1, std::memory_order_acq_rel);
    }
    void push_all() { push(0, kEnd); }

    bool is_empty() const {
        return pushed_.load(std::memory_order_acquire) == taken_.load(std::memory_order_relaxed);
    }

    // function(begin, end) for each range.
    template <typename Function>
    void take(Function&& function) {
        taken_.store(pushed_.load(std::memory_order_acquire), std::memory_order_relaxed);
        if (overflow_.exchange(false, std::memory_order_acq_rel)) function(uintptr_t{0}, kEnd);
        for (Slot& slot : slots_) {
            if (slot.state.load(std::memory_order_acquire) != State::kFull) continue;
            const uintptr_t begin = slot.begin, end = slot.end;
            slot.state.store(State::kFree, std::memory_order_release);
            function(begin, end);
        }
    }

  private:
    enum class State : uint8_t { kFree, kWriting, kFull };
    struct Slot {
        std::atomic<State> state{State::kFree};
        uintptr_t begin = 0, end = 0;
    };

    bool store(uintptr_t begin, uintptr_t end) {
        for (Slot& slot : slots_) {
            State free = State::kFree;
            if (slot.state.load(std::memory_order_relaxed) != State::kFree ||
                !slot.state.compare_exchange_strong(free, State::kWriting,
                                                    std::memory_order_acquire))
                continue;
            slot.begin = begin;
            slot.end = end;
            slot.state.store(State::kFull, std::memory_order_release);
            return true;
        }
        return false;
    }

    std::array<Slot, 64> slots_{};
    std::atomic<bool> overflow_{false};
    std::atomic<uint64_t> pushed_{0};
    std::atomic<uint64_t> taken_{0};
};

// Sees to it that invalidations hear of all memory that goes, and of forks: from libucm, if that is
// there, and it can. A program that links parts of the library without it has no events.
class MemoryEvents {
  public:
    MemoryEvents() = default;
    ~MemoryEvents();
    MemoryEvents(MemoryEvents&&) = delete;

    // @return false: there are no events, and nothing is remembered truly
    bool report_to(Invalidations& invalidations);

  private:
    Invalidations* invalidations_ = nullptr;
};

}  // namespace ucp
