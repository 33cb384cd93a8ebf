// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/queues/region_table.h"

#include <mutex>

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
        std::lock_guard lock(mutex_);
        regions_.erase(region->key);
    }
    delete region;
}

std::byte* RegionTable::Reader::find(uint64_t key, uint64_t address, size_t length,
                                     PeerRights wanted) const {
    const auto found = table_.regions_.find(key);
    if (found == table_.regions_.end()) return nullptr;
    const Region& region = *found->second;
    if (!allows(region.rights, wanted)) return nullptr;
    if (address < region.start || address > region.end || length > region.end - address) {
        return nullptr;
    }
    return reinterpret_cast<std::byte*>(address);
}

}  // namespace uct::tcp
