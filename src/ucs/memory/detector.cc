// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/memory/detector.h"

namespace ucs {

void register_memory_detector(MemoryDetector& detector) {
    auto& head = runtime().memory_detectors;
    detector.next_ = head.load();
    while (!head.compare_exchange_weak(detector.next_, &detector)) {
    }
}

void move_memory_detectors(Runtime& from, Runtime& to) {
    MemoryDetector* detector = from.memory_detectors.exchange(nullptr);
    while (detector != nullptr) {
        MemoryDetector* const next = detector->next_;
        detector->next_ = to.memory_detectors.load();
        while (!to.memory_detectors.compare_exchange_weak(detector->next_, detector)) {
        }
        detector = next;
    }
}

MemoryInfo detect_memory(const void* address, size_t length) {
    MemoryInfo info;
    const MemoryDetector* detector = runtime().memory_detectors.load(std::memory_order_acquire);
    for (; detector != nullptr; detector = detector->next_) {
        if (detector->detect(address, length, info)) return info;
    }
    return {};
}

}  // namespace ucs
