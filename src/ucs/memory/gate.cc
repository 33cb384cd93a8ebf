// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/memory/gate.h"

#include <sched.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>

namespace ucs {

constinit MemoryGate MemoryGate::instance_;

namespace {

constinit thread_local MemoryInfo last_found;

// The private, writable mapping that an address lies in. Device files are mapped shared.
bool find_mapping(uintptr_t address, uintptr_t* begin, uintptr_t* end) {
    std::FILE* const maps = std::fopen("/proc/self/maps", "re");
    if (maps == nullptr) return false;
    char line[512];
    bool is_found = false;
    while (!is_found && std::fgets(line, sizeof(line), maps) != nullptr) {
        char access[5] = {};
        if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", begin, end, access) != 3) continue;
        if (address < *begin) break;
        is_found = address < *end && access[0] == 'r' && access[1] == 'w' && access[3] == 'p';
    }
    (void)std::fclose(maps);
    return is_found;
}

}  // namespace

void MemoryGate::open() {
    floor_.store(kOpen + openings_.fetch_add(1) + 1);
    readers_.fetch_add(1);
    for (const std::atomic<Watch*>& watch : watches_) {
        Watch* const word = watch.load();
        if (word == nullptr) continue;
        uint32_t value = word->load();
        while (!word->compare_exchange_weak(value, (value | kWatchBit) + kWatchCount)) {
        }
    }
    readers_.fetch_sub(1);
}
void MemoryGate::mapped() {
    if (MemoryDetectors::any()) open();
}

void MemoryGate::unmapped(uintptr_t begin, size_t size) {
    changes_.fetch_add(1);
    const Range* range = range_.load();
    for (;;) {
        const uintptr_t known = range->begin.load();
        const size_t length = range->size.load();
        const bool overlaps = begin < known + length && known < begin + size;
        // A copy in another place where it stays, so that nobody puts an older range over it.
        const Range* const next = next_range(known, overlaps ? 0 : length);
        if (range_.compare_exchange_weak(range, next)) return;
    }
}

const MemoryGate::Range* MemoryGate::next_range(uintptr_t begin, size_t size) {
    Range& range = ranges_[used_ranges_.fetch_add(1) % kRanges];
    range.size.store(0);
    range.begin.store(begin);
    range.size.store(size);
    return &range;
}

uint64_t MemoryGate::page_entry(uintptr_t address, uint64_t changes) const {
    constexpr unsigned kChangeBits = 64 - (48 - kPageBits);
    return (address >> kPageBits) << kChangeBits | (changes & ((uint64_t{1} << kChangeBits) - 1));
}

void MemoryGate::learn_range(uintptr_t address, const Range* seen) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    if (!find_mapping(address, &begin, &end)) return;
    range_.compare_exchange_strong(seen, next_range(begin, end - begin));
}

const MemoryInfo* MemoryGate::find_held(const void* address) {
    const MemoryInfo& last = last_found;
    return last.holds(address) && last.is_held() ? &last : nullptr;
}

const MemoryInfo* MemoryGate::hold(const void* address) {
    const MemoryInfo& last = last_found;
    return last.holds(address) && last.held != nullptr ? last.held->hold_again(last.allocation)
                                                       : nullptr;
}

const MemoryInfo* MemoryGate::classify_counted(const void* address, size_t length) {
    return classify(address, length).held != nullptr ? &last_found : nullptr;
}

MemoryInfo MemoryGate::classify(const void* address, size_t length) {
    const auto value = reinterpret_cast<uintptr_t>(address);
    uintptr_t floor = floor_.load();
    if (value == 0 || value >= floor) return {};
    if (const MemoryInfo* const held = find_held(address)) return *held;
    const bool remembers = !for_good_.load();
    const uint64_t changes = changes_.load();
    const Range* const range = range_.load();
    std::atomic<uint64_t>& page = pages_[value >> kPageBits & (kPages - 1)];
    const uint64_t entry = page_entry(value, changes);
    if (!remembers || page.load() != entry) {
        if (!MemoryDetectors::is_in_use()) {
            if (remembers) floor_.compare_exchange_strong(floor, kClosed);
            return {};
        }
        const MemoryInfo info = MemoryDetectors::detect(address, length);
        if (info.held != nullptr) last_found = info;
        if (!remembers || info.type != UCS_MEMORY_TYPE_HOST) return info;
        page.store(entry);
    }
    // Reading the mappings takes long: half as often each time.
    const uint64_t misses = misses_.fetch_add(1) + 1;
    if (misses >= next_lookup_.load()) {
        next_lookup_.store(misses * 2);
        learn_range(value, range);
    }
    return {};
}

void MemoryGate::watch(Watch& word) {
    for (std::atomic<Watch*>& watch : watches_) {
        Watch* none = nullptr;
        if (watch.load() == nullptr && watch.compare_exchange_strong(none, &word)) break;
    }
    if (MemoryDetectors::any()) word.fetch_or(kWatchBit);  // for what was mapped before
}

void MemoryGate::unwatch(Watch& word) {
    for (std::atomic<Watch*>& watch : watches_) {
        Watch* known = &word;
        if (watch.compare_exchange_strong(known, nullptr)) break;
    }
    while (readers_.load() != 0) sched_yield();
}

void MemoryGate::settle(Watch& word) {
    uint32_t value = word.load();
    const bool is_watched = std::ranges::any_of(
        watches_, [&](const std::atomic<Watch*>& watch) { return watch.load() == &word; });
    if (for_good_.load() || !is_watched || MemoryDetectors::is_in_use()) return;
    word.compare_exchange_strong(value, value & ~kWatchBit);
}

}  // namespace ucs
