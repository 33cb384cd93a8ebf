// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "ucs/memory/detector.h"
#include "uct/cuda/copy_engine.h"
#include "uct/cuda/descriptors.h"
#include "uct/cuda/imports.h"

namespace uct::cuda {

// What this process has told others of its memory: the driver's handle of each allocation, asked
// for once. Any thread.
//
// The driver crashes where it makes a handle of memory that another thread frees meanwhile. So it
// is asked for one only in a call to which the program has handed the memory over, which it may not
// free then; and virtual memory is held while its handle is made.
//
// An allocation is known by its number, which the driver gives to no other: so a handle of memory
// that was freed is never given out for what lies at its address now.
class Exports {
  public:
    explicit Exports(CopyEngine& engine);

    // This process, in descriptions.
    uint64_t process() const { return process_; }

    // Describe memory that the program has handed over. Managed memory, and pools and virtual
    // memory that were not made to be shared, have no handle, but are described too: the owner
    // itself reaches them. Of an allocation that was described before the driver is asked for its
    // number at most.
    // @param known  what it was found to be, for the operation that it was handed over for; or null
    // @return false: it does not lie in one allocation as a whole
    bool describe(const void* address, size_t length, const ucs::MemoryInfo* known,
                  ucs::MemoryExport& description);

    // If the allocation has been freed, what stands for it is closed.
    void forget(uint64_t buffer);

  private:
    // From so many on, those that have been freed are forgotten.
    static constexpr size_t kMany = 1024;

    bool describe_whole(const void* address, uint64_t buffer, ucs::MemoryExport& description);
    void forget_freed();
    HandleKind take_handle(const CopyEngine::Found& found, ucs::MemoryExport& description);
    HandleKind take_legacy(const CopyEngine::Found& found, ucs::MemoryExport& description);
    HandleKind take_virtual(uint64_t kinds, ucs::MemoryExport& description);
    HandleKind take_of_pool(abi::Pool pool, uint64_t kinds, ucs::MemoryExport& description);
    HandleKind refused(abi::Result result, const ucs::MemoryExport& description) const;
    ucs::MemoryExport describe_allocation(const CopyEngine::Found& found, uint64_t buffer);

    CopyEngine& engine_;
    const Driver& driver_;
    const uint64_t process_, token_;
    DescriptorServer descriptors_;
    std::mutex mutex_;
    size_t limit_ = kMany;
    std::unordered_map<uint64_t, ucs::MemoryExport> known_;  // by the allocation's number
};

}  // namespace uct::cuda
