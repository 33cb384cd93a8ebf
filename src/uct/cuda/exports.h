// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <unordered_map>

#include "ucs/memory/detector.h"
#include "uct/cuda/copy_engine.h"

namespace uct::cuda {

/**
 * What this process has told others of its memory: the driver's handle of each allocation, asked
 * for once. Any thread.
 *
 * An allocation is known by its number, which the driver gives to no other: so a handle of memory
 * that was freed is never given out for what lies at its address now.
 */
class Exports {
  public:
    explicit Exports(CopyEngine& engine);

    /** This process, in descriptions. */
    uint64_t process() const { return process_; }

    /**
     * Describe memory. Pools, virtual and managed memory have no handle, but are described too:
     * the owner itself reaches them. Of an allocation that is known the driver is asked one thing.
     * @return false: it does not lie in one allocation as a whole
     */
    bool describe(const void* address, size_t length, ucs::MemoryExport& description);

    /** The number of the allocation at an address; 0: none. */
    static uint64_t buffer_at(const Driver& driver, abi::DevicePointer address);

  private:
    /** From so many on, those that have been freed are forgotten. */
    static constexpr size_t kMany = 1024;

    void forget_freed();
    bool take_handle(const CopyEngine::Found& found, char (&bytes)[64]);
    ucs::MemoryExport describe_allocation(const CopyEngine::Found& found, uint64_t buffer);

    CopyEngine& engine_;
    const Driver& driver_;
    const uint64_t process_;
    std::mutex mutex_;
    size_t limit_ = kMany;
    std::unordered_map<uint64_t, ucs::MemoryExport> known_;  //!< by the allocation's number
};

}  // namespace uct::cuda
