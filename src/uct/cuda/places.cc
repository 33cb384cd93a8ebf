// SPDX-License-Identifier: BSD-3-Clause
#include "uct/cuda/places.h"

namespace uct::cuda {

bool Places::is_sound(const ucs::MemoryExport& described, size_t length) {
    return described.version == ucs::kMemoryExportVersion && described.offset <= described.size &&
           length <= described.size - described.offset;
}

ucs_status_t Places::find(const ucs::MemoryExport& described, CopyContext& context, Place* place) {
    if (!is_own(described)) {
        if (described.has_handle == 0) return UCS_ERR_UNSUPPORTED;
        const ucs_status_t status = mappings_.take(described, context, &place->mapping);
        if (status == UCS_OK) {
            place->address =
                reinterpret_cast<std::byte*>(place->mapping->import.address + described.offset);
        }
        return status;
    }
    const CopyEngine::Found found = engine_.look_up(reinterpret_cast<const void*>(described.base));
    // One range of virtual memory may hold several allocations.
    if (found.type == UCS_MEMORY_TYPE_HOST || described.base < found.base ||
        described.size > found.length ||
        described.base - found.base > found.length - described.size ||
        Exports::buffer_at(engine_.driver(), described.base) != described.buffer)
        return UCS_ERR_INVALID_PARAM;
    place->address = reinterpret_cast<std::byte*>(described.base + described.offset);
    return reach(found, context);
}

ucs_status_t Places::reach(const CopyEngine::Found& memory, CopyContext& context) {
    if (memory.device == context.device()) return UCS_OK;
    // Pools and virtual memory open to other devices as their owner says, if at all.
    CopyContext* const owner = memory.context == nullptr ? nullptr : engine_.context_of(memory);
    return owner == nullptr ? UCS_ERR_UNSUPPORTED : mappings_.reach(context, *owner);
}

}  // namespace uct::cuda
