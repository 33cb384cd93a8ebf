// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>

#include "ucs/memory/detector.h"
#include "uct/cuda/driver.h"

namespace uct::cuda {

// How other processes open memory: ucs::MemoryExport::has_handle.
enum class HandleKind : uint16_t {
    kNone,
    kLegacy,      // an IPC handle: cudaMalloc
    kFabric,      // virtual memory, by bytes
    kDescriptor,  // virtual memory, by a descriptor that the owner is asked for
    kPool,        // an exportable pool by a descriptor, and the place in it by bytes
};

// Memory of another process that is mapped here.
struct Import {
    // A pool of another process, for a device here.
    struct Pool {
        uint64_t process, group;
        abi::Device device;
        abi::Pool handle = nullptr;
        abi::Stream stream = nullptr;  // for what is given back
        size_t users = 0;
    };

    HandleKind kind = HandleKind::kNone;
    abi::DevicePointer address = 0;  // of the allocation's first byte
    size_t size = 0;
    Pool* pool = nullptr;
};

// Maps what other processes have described, and gives it back. What is mapped counts, not what the
// owner says of it. It takes the driver milliseconds: errands call it, one at a time.
class Imports {
  public:
    explicit Imports(const Driver& driver) : driver_(driver) {}

    // In the context that is current, for its device.
    // @return abi::kNotReady: the owner does not offer it now, but may when it is asked again
    abi::Result open(const ucs::MemoryExport& owner, abi::Device device, Import* import);
    // In the same context.
    void close(const Import& import);

  private:
    abi::Result open_legacy(const ucs::MemoryExport& owner, Import* import);
    abi::Result open_virtual(const ucs::MemoryExport& owner, abi::Device device, Import* import);
    abi::Result map(abi::AllocationHandle allocation, abi::Device device, Import* import);
    abi::Result open_in_pool(const ucs::MemoryExport& owner, abi::Device device, Import* import);
    abi::Result open_pool(const ucs::MemoryExport& owner, abi::Device device, Import::Pool** pool);
    void close_pool(Import::Pool& pool);
    bool is_whole(const ucs::MemoryExport& owner, abi::DevicePointer address) const;

    const Driver& driver_;
    std::list<Import::Pool> pools_;
};

}  // namespace uct::cuda
