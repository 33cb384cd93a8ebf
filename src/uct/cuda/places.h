// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

#include "ucs/memory/detector.h"
#include "uct/cuda/copy_engine.h"
#include "uct/cuda/exports.h"
#include "uct/cuda/mappings.h"

namespace uct::cuda {

// Where a context finds memory.
struct Place {
    std::byte* address = nullptr;
    Mapping* mapping = nullptr;  // it lies in: to be given back; null: memory of this process

    static Place in(Mapping& mapping, uint64_t offset) {
        return {reinterpret_cast<std::byte*>(mapping.import.address + offset), &mapping};
    }
};

// Where contexts of this process find memory that was described. Any thread.
class Places {
  public:
    Places(CopyEngine& engine, Exports& exports, Mappings& mappings)
        : engine_(engine), exports_(exports), mappings_(mappings) {}

    static bool is_sound(const ucs::MemoryExport& described, size_t length) {
        return described.version == ucs::kMemoryExportVersion &&
               described.offset <= described.size && length <= described.size - described.offset;
    }
    // Has this process described it?
    bool is_own(const ucs::MemoryExport& described) const {
        return described.process == exports_.process();
    }
    // Errors as ucs::MemoryDetector::fetch(): nothing waits for a way that does not exist yet.
    ucs_status_t find(const ucs::MemoryExport& described, CopyContext& context, Place* place);
    // Does the context's device reach memory of this process? As find().
    ucs_status_t reach(const CopyEngine::Found& memory, CopyContext& context);
    void put(const Place& place) {
        if (place.mapping != nullptr) mappings_.put(*place.mapping);
    }
    // Waits until what find() and reach() have begun to open is open, or has been tried.
    void settle() { mappings_.settle(); }

  private:
    CopyEngine& engine_;
    Exports& exports_;
    Mappings& mappings_;
};

inline ucs_status_t Places::find(const ucs::MemoryExport& described, CopyContext& context,
                                 Place* place) {
    if (!is_own(described)) {
        if (described.has_handle == 0) return UCS_ERR_UNSUPPORTED;
        Mapping* mapping = nullptr;
        const ucs_status_t status = mappings_.take(described, context, &mapping);
        if (status == UCS_OK) *place = Place::in(*mapping, described.offset);
        return status;
    }
    const CopyEngine::Found found = engine_.look_up(reinterpret_cast<const void*>(described.base));
    // One range of virtual memory may hold several allocations.
    if (found.type == UCS_MEMORY_TYPE_HOST || described.base < found.base ||
        described.size > found.length ||
        described.base - found.base > found.length - described.size ||
        engine_.driver().allocation_at(described.base) != described.buffer)
        return UCS_ERR_INVALID_PARAM;
    place->address = reinterpret_cast<std::byte*>(described.base + described.offset);
    return reach(found, context);
}

inline ucs_status_t Places::reach(const CopyEngine::Found& memory, CopyContext& context) {
    if (memory.device == context.device()) return UCS_OK;
    // Pools and virtual memory open to other devices as their owner says, if at all.
    CopyContext* const owner = memory.context == nullptr ? nullptr : engine_.context_of(memory);
    return owner == nullptr ? UCS_ERR_UNSUPPORTED : mappings_.reach(context, *owner);
}

}  // namespace uct::cuda
