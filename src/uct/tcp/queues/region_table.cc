// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/queues/region_table.h"

#include "ucs/runtime/runtime.h"
#include "ucs/type/bits.h"

namespace uct::tcp {

namespace {

// What atomics may work on reaches to whole words.
constexpr uintptr_t kWord = 8;

}  // namespace

Region* RegionTable::add(void* address, size_t length, PeerRights rights) {
    auto* region = new Region;
    region->start = reinterpret_cast<uintptr_t>(address);
    region->end = region->start + length;
    region->rights = rights;
    if (rights == PeerRights::kAll) {
        region->start = ucs::align_down(region->start, kWord);
        region->end = ucs::align_up(region->end, kWord);
    }
    std::lock_guard lock(mutex_);
    do {
        region->key = ucs::unique_id();
    } while (region->key == 0 || region->key == kInvalidRemoteKey ||
             !regions_.emplace(region->key, region).second);
    return region;
}

void RegionTable::remove(Region* region) {
    {
        std::lock_guard one(removing_);
        std::unique_lock lock(mutex_);
        regions_.erase(region->key);
        // The other generation has no readers: who removed last has seen to that.
        const unsigned last = generation_;
        generation_ ^= 1;
        no_readers_.wait(lock, [&] { return readers_[last] == 0; });
    }
    delete region;
}

RegionTable::Reader::~Reader() {
    if (!has_entered_) return;
    std::lock_guard lock(table_.mutex_);
    if (--table_.readers_[generation_] == 0 && generation_ != table_.generation_)
        table_.no_readers_.notify_one();
}

std::byte* RegionTable::Reader::find(uint64_t key, uint64_t address, size_t length,
                                     PeerRights wanted) {
    std::lock_guard lock(table_.mutex_);
    const auto found = table_.regions_.find(key);
    if (found == table_.regions_.end()) return nullptr;
    const Region& region = *found->second;
    if (!allows(region.rights, wanted)) return nullptr;
    if (address < region.start || address > region.end || length > region.end - address) {
        return nullptr;
    }
    if (!has_entered_) {
        has_entered_ = true;
        generation_ = table_.generation_;
        ++table_.readers_[generation_];
    }
    return reinterpret_cast<std::byte*>(address);
}

}  // namespace uct::tcp
