// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/memory/detector.h"

namespace ucs {

void register_memory_detector(MemoryDetector& detector) {
    runtime().memory_detectors.add(detector);
}

MemoryInfo detect_memory(const void* address, size_t length) {
    MemoryInfo info;
    for (const Registration* entry = runtime().memory_detectors.first(); entry != nullptr;
         entry = entry->following) {
        if (static_cast<const MemoryDetector*>(entry)->detect(address, length, info)) return info;
    }
    return {};
}

}  // namespace ucs
