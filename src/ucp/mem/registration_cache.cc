// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/mem/registration_cache.h"

#include <algorithm>
#include <new>

#include "ucp/mem/domain.h"
#include "ucp/trace/probe.h"
#include "ucp/trace/trace.h"
#include "ucs/log/log.h"
#include "ucs/memory/pages.h"
#include "ucs/type/bits.h"

namespace ucp {

RegistrationCache::RegistrationCache(std::span<Domain> domains, const Limits& limits)
    : domains_(domains), limits_(limits) {}

RegistrationCache::~RegistrationCache() {
    ucs::log_debug("registrations: {} made, {} found, {} invalidated, {} evicted", statistics_.made,
                   statistics_.found, statistics_.invalidated, statistics_.evicted);
    while (!current_.empty()) forget(*current_.begin());
}

CachedRegion* RegistrationCache::get(const void* address, size_t length,
                                     const ucs::MemoryInfo& memory) {
    collect();
    const auto begin = reinterpret_cast<uintptr_t>(address);
    const uintptr_t end = begin + length;
    auto behind = current_.upper_bound(begin);
    if (behind != current_.begin()) [[likely]] {
        CachedRegion& region = *--behind;
        if (end <= region.end && region.allocation == memory.allocation) [[likely]] {
            if (region.users++ == 0) unused_.erase(unused_.iterator_to(region));
            ++statistics_.found;
            return &region;
        }
    }
    const size_t page = ucs::page_size();
    uintptr_t first = ucs::align_down(begin, page), last = ucs::align_up(end, page);
    if (memory.owner != nullptr) {
        const auto base = reinterpret_cast<uintptr_t>(memory.base);
        first = std::max(first, base);
        last = std::min(last, base + memory.length);
    }
    return make(first, last, memory);
}

CachedRegion* RegistrationCache::make(uintptr_t begin, uintptr_t end,
                                      const ucs::MemoryInfo& memory) {
    auto* region = new (std::nothrow) CachedRegion;
    if (region == nullptr) return nullptr;
    region->handles.reset(new (std::nothrow) uct::MemoryHandle* [2 * domains_.size()] {});
    if (region->handles == nullptr) {
        delete region;
        return nullptr;
    }
    ++statistics_.made;
    uintptr_t all_begin = begin, all_end = end;
    for (auto at = first_behind(begin); at != current_.end() && at->begin < end;) {
        CachedRegion& overlapped = *at++;
        if (overlapped.allocation == memory.allocation) {
            all_begin = std::min(all_begin, overlapped.begin);
            all_end = std::max(all_end, overlapped.end);
        } else {
            ++statistics_.invalidated;
        }
        forget(overlapped);
    }
    if (all_end - all_begin <= limits_.bytes) {
        begin = all_begin;
        end = all_end;
    }
    region->begin = begin;
    region->end = end;
    region->users = 1;
    region->device = memory.owner;
    region->type = memory.type;
    region->allocation = memory.allocation;
    if (evict_for(region->size())) {
        region->is_current = true;
        if (region->device != nullptr) ++of_devices_;
        bytes_ += region->size();
        current_.insert(*region);
    }
    return region;
}

RegistrationCache::Current::iterator RegistrationCache::first_behind(uintptr_t address) {
    auto at = current_.upper_bound(address);
    if (at != current_.begin() && std::prev(at)->end > address) --at;
    return at;
}

void RegistrationCache::put(CachedRegion& region) {
    if (--region.users > 0) return;
    if (region.is_current) {
        unused_.push_back(region);
    } else {
        destroy(region);
    }
}

void RegistrationCache::put_for_good(CachedRegion& region) {
    if (region.is_current) forget(region);
    put(region);
}

uct::MemoryHandle* RegistrationCache::handle(CachedRegion& region, unsigned domain,
                                             uct::PeerRights rights) {
    if (uct::MemoryHandle* const known = region.find(domain, rights); known != nullptr) [[likely]]
        return known;
    if (!domains_[domain].takes(region.type)) return nullptr;
    uct::MemoryHandle* handle = nullptr;
    auto* const start = reinterpret_cast<void*>(region.begin);
    const auto make_handle = [&] {
        return domains_[domain].register_memory(start, region.size(), region.type, rights, &handle);
    };
    Trace* const trace = Trace::active();
    const ucs::Time began = trace != nullptr ? Trace::now() : ucs::Time();
    ucs_status_t status = make_handle();
    // Perhaps what others keep for later is in the way: memory that may be pinned, keys.
    if (status == UCS_ERR_NO_MEMORY && !unused_.empty()) {
        while (evict_oldest()) {
        }
        status = make_handle();
    }
    SWIFTLANE_PROBE(registration, start, region.size(), status);
    if (trace != nullptr) {
        trace->complete("memory", "register", 0, began,
                        {{"bytes", region.size()},
                         {"device", domains_[domain].device},
                         {"status", ucs_status_string(status)}});
    }
    if (status != UCS_OK) {
        // Whoever found it next would be refused as well.
        if (region.is_current) forget(region);
        return nullptr;
    }
    return region.handles[2 * domain + (rights == uct::PeerRights::kNone ? 0 : 1)] = handle;
}

void RegistrationCache::take_invalidations() {
    invalidations_.take([this](uintptr_t begin, uintptr_t end) {
        for (auto at = first_behind(begin); at != current_.end() && at->begin < end;) {
            CachedRegion& region = *at++;
            forget(region);
            ++statistics_.invalidated;
        }
    });
}

void RegistrationCache::collect_freed() {
    if (of_devices_ == 0) return;
    auto at = current_.lower_bound(looked_until_);
    for (unsigned looks = 0; looks < kLooks; ++looks) {
        if (at == current_.end()) {
            looked_until_ = 0;
            return;
        }
        CachedRegion& region = *at++;
        looked_until_ = region.begin + 1;
        if (region.device == nullptr || !region.device->is_freed(region.allocation, region.begin))
            continue;
        forget(region);
        ++statistics_.invalidated;
    }
}

void RegistrationCache::forget(CachedRegion& region) {
    current_.erase(current_.iterator_to(region));
    region.is_current = false;
    bytes_ -= region.size();
    if (region.device != nullptr) --of_devices_;
    if (region.users > 0) return;
    unused_.erase(unused_.iterator_to(region));
    destroy(region);
}

void RegistrationCache::destroy(CachedRegion& region) {
    for (size_t i = 0; i < 2 * domains_.size(); ++i) {
        if (region.handles[i] != nullptr)
            domains_[i / 2].memory->deregister_memory(region.handles[i]);
    }
    delete &region;
}

bool RegistrationCache::evict_for(size_t bytes) {
    if (bytes > limits_.bytes || limits_.regions == 0) return false;
    while (current_.size() >= limits_.regions || bytes_ > limits_.bytes - bytes) {
        if (!evict_oldest()) return false;
    }
    return true;
}

bool RegistrationCache::evict_oldest() {
    if (unused_.empty()) return false;
    forget(unused_.front());
    ++statistics_.evicted;
    return true;
}

}  // namespace ucp
