// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/mem/region_table.h"

#include <algorithm>
#include <new>

#include "ucp/mem/memory.h"

namespace ucp {

void RegionTable::remove(uint64_t region) {
    const Memory* memory = slots_.find(Slots::Handle::unpack(region - 1));
    if (memory == nullptr) return;
    std::erase(published_, memory);
    slots_.erase(Slots::Handle::unpack(region - 1));
}

ucs_status_t RegionTable::publish(const Memory& memory) {
    if (std::ranges::find(published_, &memory) != published_.end()) return UCS_OK;
    try {
        published_.push_back(&memory);
    } catch (const std::bad_alloc&) {
        return UCS_ERR_NO_MEMORY;
    }
    return UCS_OK;
}

const Memory* RegionTable::find(uint64_t identity, uint64_t region, uint64_t address, size_t length,
                                unsigned prot) const {
    if (identity == identity_) return slots_.find(Slots::Handle::unpack(region - 1));
    if (identity != 0 || region != 0) return nullptr;
    const auto found = std::ranges::find_if(published_, [&](const Memory* memory) {
        return memory->covers(address, length) && memory->allows(prot);
    });
    return found == published_.end() ? nullptr : *found;
}

void* RegionTable::access(uint64_t identity, uint64_t region, uint64_t address, size_t length,
                          unsigned prot) const {
    const Memory* memory = find(identity, region, address, length, prot);
    if (memory == nullptr || !memory->covers(address, length) || !memory->allows(prot))
        return nullptr;
    return reinterpret_cast<void*>(address);
}

}  // namespace ucp
