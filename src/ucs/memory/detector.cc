// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/memory/detector.h"

namespace ucs {

namespace {

MemoryDetector* first() {
    return static_cast<MemoryDetector*>(
        const_cast<RegistryEntry*>(runtime().memory_detectors.first()));
}

MemoryDetector* following(const MemoryDetector& detector) {
    return static_cast<MemoryDetector*>(detector.following);
}

}  // namespace

void register_memory_detector(MemoryDetector& detector) {
    runtime().memory_detectors.add(detector);
}

MemoryInfo detect_memory(const void* address, size_t length) {
    return MemoryDetectors::detect(address, length);
}

MemoryInfo MemoryDetectors::detect(const void* address, size_t length) {
    MemoryInfo info;
    for (MemoryDetector* detector = first(); detector != nullptr; detector = following(*detector)) {
        if (!detector->detect(address, length, info)) continue;
        info.owner = detector;
        return info;
    }
    return {};
}

uint64_t MemoryDetectors::types() {
    uint64_t types = UCS_BIT(UCS_MEMORY_TYPE_HOST);
    for (const MemoryDetector* detector = first(); detector != nullptr;
         detector = following(*detector))
        types |= detector->types();
    return types;
}

uint64_t MemoryDetectors::readable_types() {
    uint64_t types = 0;
    for (const MemoryDetector* detector = first(); detector != nullptr;
         detector = following(*detector))
        types |= detector->readable_types();
    return types;
}

bool MemoryDetectors::is_in_use() {
    for (const MemoryDetector* detector = first(); detector != nullptr;
         detector = following(*detector)) {
        if (detector->is_in_use()) return true;
    }
    return false;
}

void MemoryDetectors::prepare() {
    for (MemoryDetector* detector = first(); detector != nullptr; detector = following(*detector)) {
        if (detector->is_in_use()) detector->prepare();
    }
}

bool MemoryDetectors::export_memory(const void* address, size_t length, const MemoryInfo* known,
                                    MemoryExport& description) {
    if (known != nullptr && known->owner != nullptr)
        return known->owner->export_memory(address, length, known, description);
    for (MemoryDetector* detector = first(); detector != nullptr; detector = following(*detector)) {
        if (detector->export_memory(address, length, known, description)) return true;
    }
    return false;
}

ucs_status_t MemoryDetectors::insert_stop(void* stream, bool may_be_captured, StreamStop* stop) {
    for (MemoryDetector* detector = first(); detector != nullptr; detector = following(*detector)) {
        if (!detector->is_in_use()) continue;
        const ucs_status_t status = detector->insert_stop(stream, may_be_captured, stop);
        if (status != UCS_ERR_UNSUPPORTED) return status;
    }
    return UCS_ERR_UNSUPPORTED;
}

MemoryDetector* MemoryDetectors::of_type(ucs_memory_type_t type) {
    for (MemoryDetector* detector = first(); detector != nullptr; detector = following(*detector)) {
        if ((detector->types() & UCS_BIT(type)) != 0) return detector;
    }
    return nullptr;
}

}  // namespace ucs
