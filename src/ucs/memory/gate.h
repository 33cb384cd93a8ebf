// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ucs/memory/detector.h"

namespace ucs {

// Tells messages of host memory from others at next to no cost: the question "what memory is this?"
// is asked of the detectors only for addresses of which nothing is known.
//
// Closed, it lets every address but null pass by one comparison, which the caller has anyway.
// Memory of a device needs new mappings in the address space, so each new mapping opens the gate;
// whoever comes to an open gate and finds that no device is in use closes it again. Open, it lets
// pass what lies in one known range of host memory. Others are looked up in a small table of pages
// known to be host memory, and only then asked for. What is known is forgotten when memory is
// unmapped: host memory cannot become a device's without that. A device's memory is never
// remembered: it may be freed and given out anew unseen.
//
// All functions may be called by any thread; mapped() and unmapped() also from inside the allocator
// or a signal handler. What is closed is closed by a compare-and-swap with the value from before
// the question, so that a mapping made meanwhile is never missed.
class MemoryGate {
  public:
    static MemoryGate& instance();

    // True: host memory, and not null. False: null, or to be asked of classify().
    bool is_plain(const void* address) const {
        const auto value = reinterpret_cast<uintptr_t>(address);
        return value >= floor_.load(std::memory_order_relaxed) || is_known(value);
    }
    // The second half of is_plain(), for those who keep a Watch.
    bool is_known(uintptr_t value) const {
        const Range* const range = range_.load(std::memory_order_relaxed);
        return value - range->begin.load(std::memory_order_relaxed) <
               range->size.load(std::memory_order_relaxed);
    }

    // Out of line: what the detectors say, or what is known of host memory.
    MemoryInfo classify(const void* address, size_t length);
    // What classify() said last on this thread, if it holds for the address without asking anybody:
    // nothing else lies there as long as an operation works on the allocation. Null: it does not.
    static const MemoryInfo* find_held(const void* address);
    // The same, and one more operation works on it, which ends by HeldAllocations::release().
    static const MemoryInfo* hold(const void* address);
    // As classify(), of memory whose operations are counted, until the next call of this thread;
    // null: it is other memory.
    const MemoryInfo* find_counted(const void* address, size_t length) {
        const MemoryInfo* const held = find_held(address);
        return held != nullptr || is_plain(address) ? held : classify_counted(address, length);
    }

    // A word with a bit that says "the gate is open", so that those who test the word anyway need
    // not look at the gate. The upper half of the word counts mappings.
    using Watch = std::atomic<uint32_t>;
    static constexpr uint32_t kWatchBit = 1u << 15;
    static constexpr uint32_t kWatchCount = 1u << 16;
    // The word is changed by atomic operations only from now on. With too many watches the bit is
    // set and stays.
    void watch(Watch& word);
    // When it returns, nobody uses the word any more.
    void unwatch(Watch& word);
    // Who sees the bit set calls this before he asks further: clears it if no device is in use.
    void settle(Watch& word);

    // --- who sees memory come and go ---
    // Call before anything else if nobody does: the gate is open for good, and remembers nothing.
    void open_for_good() {
        if (!for_good_.exchange(true)) open();
    }
    void mapped();
    void unmapped(uintptr_t begin, size_t size);

  private:
    struct Range {
        std::atomic<uintptr_t> begin{0};
        std::atomic<size_t> size{0};
    };
    static constexpr uintptr_t kClosed = 1;                 // all but null are above
    static constexpr uintptr_t kOpen = uintptr_t{1} << 63;  // no address is
    static constexpr unsigned kPageBits = 12;
    static constexpr size_t kPages = 1024;
    static constexpr size_t kRanges = 1024;
    static constexpr size_t kWatches = 256;

    constexpr MemoryGate() = default;
    void open();
    const MemoryInfo* classify_counted(const void* address, size_t length);
    uint64_t page_entry(uintptr_t address, uint64_t changes) const;
    void learn_range(uintptr_t address, const Range* seen);
    const Range* next_range(uintptr_t begin, size_t size);

    static MemoryGate instance_;

    std::array<Range, kRanges> ranges_{};  // used in turn: one that is read does not change
    std::atomic<uintptr_t> floor_{kClosed};
    std::atomic<const Range*> range_{&ranges_[0]};
    std::atomic<uint64_t> openings_{0};
    std::atomic<uint64_t> changes_{0};
    std::atomic<bool> for_good_{false};
    std::atomic<unsigned> readers_{0};
    std::atomic<size_t> used_ranges_{0};
    std::atomic<uint64_t> misses_{0};
    std::atomic<uint64_t> next_lookup_{32};
    std::array<std::atomic<Watch*>, kWatches> watches_{};
    std::array<std::atomic<uint64_t>, kPages> pages_{};
};

inline MemoryGate& MemoryGate::instance() {
    return instance_;
}

}  // namespace ucs
