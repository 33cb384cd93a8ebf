// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "ucs/memory/detector.h"
#include "ucs/type/status.h"

namespace ucp {

// An element of a list for kernels.
struct MemoryListElement {
    uint64_t address = 0;  // as its owner says it; 0: left out
    size_t length = 0;
    std::optional<ucs::MemoryExport> exported;  // a peer's, described from the address on
    const void* here = nullptr;                 // else: where this process finds it
};

// The lists of memory that kernels work with: what ucp_device_local_mem_list_h and
// ucp_device_remote_mem_list_h point to, in a device's memory. A list holds the ways to the memory
// in it until it is released, whatever becomes of the worker or endpoints it was made with.
//
// One in the process, since a list is released by its address alone. Any thread; a list is made
// without a lock, since its ways may take long.
class MemoryLists {
  public:
    enum class Kind : uint8_t { kLocal, kRemote };

    static MemoryLists& instance();
    MemoryLists(const MemoryLists&) = delete;

    // For the device that is current. Errors as ucp_host.h says; the log names the element.
    ucs_status_t create(Kind kind, std::span<const MemoryListElement> pieces, void** list);
    // Elements; 0: there is no such list.
    uint32_t length(const void* list);
    void release(void* list);

  private:
    struct Made {
        ucs::KernelMemory* memory;
        uint32_t length;
    };

    MemoryLists() = default;

    std::mutex mutex_;
    std::unordered_map<const void*, Made> made_;
};

}  // namespace ucp
