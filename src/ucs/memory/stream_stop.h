// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>

namespace ucs {

class MemoryDetector;

// A place in a stream of a device at which it says that it has come, and waits for the processor
// (docs/design/gpu.md). The words lie in host memory that the device reaches.
struct StreamStop {
    // What the stream writes to `reached`.
    static constexpr uint32_t kReached = 1;
    static constexpr uint32_t kPassed = 2;
    // Bits of `go`.
    static constexpr uint32_t kGo = 1;    // whoever waits at the stop passes
    static constexpr uint32_t kIdle = 2;  // a captured stop may be reached

    uint32_t* reached = nullptr;
    uint32_t* go = nullptr;
    bool is_captured = false;         // part of a graph: it is reached again and again
    MemoryDetector* owner = nullptr;  // whose the words are
    void* place = nullptr;            // the owner's own

    uint32_t look() const { return std::atomic_ref(*reached).load(std::memory_order_acquire); }
    void set(uint32_t bits) const { std::atomic_ref(*go).store(bits, std::memory_order_release); }
};

}  // namespace ucs
