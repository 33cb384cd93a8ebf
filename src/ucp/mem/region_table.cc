// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/mem/region_table.h"

#include "ucp/mem/memory.h"

namespace ucp {

void* RegionTable::access(uint64_t identity, uint64_t region, uint64_t address, size_t length,
                          unsigned prot) const {
    if (identity != identity_) return nullptr;
    const Memory* memory = slots_.find(Slots::Handle::unpack(region - 1));
    if (memory == nullptr || !memory->covers(address, length) || !memory->allows(prot))
        return nullptr;
    return reinterpret_cast<void*>(address);
}

}  // namespace ucp
