// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ucs/memory/memory_type.h"
#include "ucs/runtime/runtime.h"
#include "ucs/type/status.h"

namespace ucs {

class MemoryDetector;

struct MemoryInfo {
    ucs_memory_type_t type = UCS_MEMORY_TYPE_HOST;
    // The allocation that the address lies in; null and 0 where that is not known (host memory).
    const void* base = nullptr;
    size_t length = 0;
    int device = -1;
    // Who knows how to copy it; null for host memory.
    MemoryDetector* owner = nullptr;
};

struct MemoryPiece {
    void* address;
    size_t length;
};

// Copies between host memory and a buffer that may lie in the memory of a device, in parts and in
// any order: what packing and unpacking of such a buffer is made of. It stages through pinned host
// memory and works ahead, so that a later part often waits for nothing. One thread at a time.
class StagedCopy {
  public:
    // Part of the buffer, by its place in the sequence of all pieces, to host memory.
    virtual ucs_status_t read(size_t offset, void* to, size_t length) = 0;
    // The same the other way: `from` is free again on return; the bytes may land later.
    virtual ucs_status_t write(size_t offset, const void* from, size_t length) = 0;
    // Waits until all is written, and ends the copy. Once, after the last part.
    virtual ucs_status_t finish() = 0;

  protected:
    ~StagedCopy() = default;
};

// Recognises memory of one kind, and copies it; modules for accelerators register one. Not owned.
// Any thread may call, whatever device or context is current there.
class MemoryDetector : public Registration {
  public:
    // Whether [address, address + length) is this detector's memory; fills `info` if it is.
    virtual bool detect(const void* address, size_t length, MemoryInfo& info) const = 0;
    // Bits of ucs_memory_type_t that detect() may find on this machine.
    virtual uint64_t types() const { return 0; }
    // False as long as no such memory can exist in this process.
    virtual bool is_in_use() const { return true; }

    // Off the data path: get ready whatever copies will need.
    virtual void prepare() {}
    // Copy now; either side or both may be this detector's memory, the other host memory.
    virtual ucs_status_t copy(void* to, const void* from, size_t length) {
        return UCS_ERR_UNSUPPORTED;
    }
    // `pieces` stays valid until the copy is finished; some of it is this detector's memory.
    virtual ucs_status_t open_copy(std::span<const MemoryPiece> pieces, StagedCopy** copy) {
        return UCS_ERR_UNSUPPORTED;
    }
    // On the device that is current, else on the first that the program uses.
    virtual ucs_status_t allocate(ucs_memory_type_t type, size_t length, void** address) {
        return UCS_ERR_UNSUPPORTED;
    }
    virtual void free(void* address) {}

  protected:
    constexpr MemoryDetector() = default;
    ~MemoryDetector() = default;
};

// For the life of the process; any thread.
void register_memory_detector(MemoryDetector& detector);

// What kind of memory a buffer is: asked for each buffer, never assumed. Host memory if no detector
// knows it; one load where no detector is registered.
MemoryInfo detect_memory(const void* address, size_t length);

// All that are registered, asked together.
class MemoryDetectors {
  public:
    static bool any() { return runtime().memory_detectors.first() != nullptr; }
    static MemoryInfo detect(const void* address, size_t length);
    static uint64_t types();
    static bool is_in_use();
    static void prepare();
    // The detector that can allocate this type; null: none.
    static MemoryDetector* of_type(ucs_memory_type_t type);
};

}  // namespace ucs
