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
};

// Where contexts of this process find memory that was described. Any thread.
class Places {
  public:
    Places(CopyEngine& engine, Exports& exports, Mappings& mappings)
        : engine_(engine), exports_(exports), mappings_(mappings) {}

    static bool is_sound(const ucs::MemoryExport& described, size_t length);
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

}  // namespace uct::cuda
