// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstring>

#include "ucs/memory/gate.h"

namespace ucp {

// See to it that the process's memory gate (ucs/memory/gate.h) hears of mappings, and that those
// who know devices get ready. Where there are no memory events, each buffer is asked for.
// @param has_events  false: the user wants none
void open_device_memory(bool has_events);

// What the memory is; host memory has no owner, as null has none.
inline ucs::MemoryInfo memory_at(const void* address, size_t length) {
    ucs::MemoryGate& gate = ucs::MemoryGate::instance();
    return gate.is_plain(address) ? ucs::MemoryInfo{} : gate.classify(address, length);
}

// Who can copy this memory; null: host memory.
inline ucs::MemoryDetector* device_of(const void* address, size_t length) {
    return length == 0 ? nullptr : memory_at(address, length).owner;
}

// Copy between buffers of any kind, and wait for the end of it.
inline ucs_status_t copy_memory(void* to, const void* from, size_t length) {
    ucs::MemoryDetector* device = device_of(to, length);
    if (device == nullptr) device = device_of(from, length);
    if (device != nullptr) [[unlikely]]
        return device->copy(to, from, length);
    if (length != 0) std::memcpy(to, from, length);
    return UCS_OK;
}

}  // namespace ucp
