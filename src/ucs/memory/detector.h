// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

#include "ucs/memory/memory_type.h"
#include "ucs/runtime/runtime.h"

namespace ucs {

struct MemoryInfo {
    ucs_memory_type_t type = UCS_MEMORY_TYPE_HOST;
    // The allocation that the address lies in; null and 0 where that is not known (host memory).
    const void* base = nullptr;
    size_t length = 0;
    int device = -1;
};

// Recognises memory of one kind; modules for accelerators register one. Not owned.
class MemoryDetector : public Registration {
  public:
    // Whether [address, address + length) is this detector's memory; fills `info` if it is. Any
    // thread, whatever device is current.
    virtual bool detect(const void* address, size_t length, MemoryInfo& info) const = 0;

  protected:
    constexpr MemoryDetector() = default;
    ~MemoryDetector() = default;
};

// For the life of the process; any thread.
void register_memory_detector(MemoryDetector& detector);

// What kind of memory a buffer is: asked for each buffer, never assumed. Host memory if no detector
// knows it; one load where no detector is registered.
MemoryInfo detect_memory(const void* address, size_t length);

}  // namespace ucs
