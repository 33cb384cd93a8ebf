// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/mem/domain_set.h"

#include <algorithm>
#include <new>

#include "ucp/mem/memory.h"
#include "ucs/memory/detector.h"

namespace ucp {

void DomainSet::set_options(const Options& options) {
    options_ = options;
    regions_ = AccessTable(options.identity);
}

bool DomainSet::open_cache(const RegistrationCache::Limits& limits, bool use_events) {
    registrations_ = std::make_unique<RegistrationCache>(domains_, limits);
    if (use_events && memory_events_.report_to(registrations_->invalidations())) return true;
    registrations_.reset();
    return false;
}

void DomainSet::collect(ucs::Time now) {
    // Each worker asks at one in some ten looks: they must not meet at the lock for nothing.
    const auto is_early = [&] { return now < next_look_.load(std::memory_order_relaxed); };
    if (registrations_ == nullptr || (is_early() && !registrations_->has_invalidations())) return;
    DomainLock lock(*this);
    registrations_->collect();
    if (is_early()) return;
    next_look_.store(ucs::deadline(now, kFreedInterval), std::memory_order_relaxed);
    registrations_->collect_freed();
}

uint64_t AccessTable::add(Memory& memory) {
    const uint64_t name = slots_.insert(memory).packed() + 1;
    bytes_ += memory.length();
    return name;
}

void AccessTable::remove(uint64_t region) {
    const Memory* memory = slots_.find(Slots::Handle::unpack(region - 1));
    if (memory == nullptr) return;
    for (RegionUser* const user : users_) user->let_go(region);
    bytes_ -= memory->length();
    published_.erase({reinterpret_cast<uintptr_t>(memory->address()), memory});
    slots_.erase(Slots::Handle::unpack(region - 1));
}

ucs_status_t AccessTable::publish(const Memory& memory) {
    try {
        published_.emplace(reinterpret_cast<uintptr_t>(memory.address()), &memory);
    } catch (const std::bad_alloc&) {
        return UCS_ERR_NO_MEMORY;
    }
    longest_ = std::max(longest_, memory.length());
    return UCS_OK;
}

const Memory* AccessTable::find(uint64_t identity, uint64_t region, uint64_t address, size_t length,
                                unsigned prot) const {
    if (identity == identity_) return slots_.find(Slots::Handle::unpack(region - 1));
    if (identity != 0 || region != 0) return nullptr;
    // From the last that begins at the address or before it, back to where none would reach it.
    auto next = published_.lower_bound({address + 1, nullptr});
    while (next != published_.begin()) {
        const auto& [begin, memory] = *--next;
        if (address - begin > longest_) break;
        if (memory->covers(address, length) && memory->allows(prot)) return memory;
    }
    return nullptr;
}

void* AccessTable::access(uint64_t identity, uint64_t region, uint64_t address, size_t length,
                          unsigned prot) const {
    const Memory* memory = find(identity, region, address, length, prot);
    if (memory == nullptr || !memory->covers(address, length) || !memory->allows(prot))
        return nullptr;
    auto* const place = reinterpret_cast<void*>(address);
    // A device's memory may be freed before its handle: no processor may touch that address then.
    if (memory->type() != UCS_MEMORY_TYPE_HOST && length > 0 &&
        ucs::detect_memory(place, length).owner == nullptr)
        return nullptr;
    return place;
}

}  // namespace ucp
