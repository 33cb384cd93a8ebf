// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <shared_mutex>
#include <unordered_map>

#include "uct/api/memory_domain.h"

namespace uct::tcp {

// Memory that peers may reach through this device, by a key that nobody can guess.
class Region final : public MemoryHandle {
  public:
    uint64_t key = 0;
    uintptr_t start = 0;
    uintptr_t end = 0;
    PeerRights rights = PeerRights::kNone;
};

// The registrations of one device. What peers ask for is checked here, each time that bytes move:
// memory that was deregistered meanwhile is not touched.
//
// Any thread may register; the threads of several workers look up.
class RegionTable {
  public:
    Region* add(void* address, size_t length, PeerRights rights);
    void remove(Region* region);

    // Lookups are valid, and the memory stays registered, while it lives.
    class Reader {
      public:
        explicit Reader(RegionTable& table) : table_(table), lock_(table.mutex_) {}
        // The memory at `address`, if [address, address + length) may be accessed like that.
        std::byte* find(uint64_t key, uint64_t address, size_t length, PeerRights wanted) const;

      private:
        RegionTable& table_;
        std::shared_lock<std::shared_mutex> lock_;
    };

  private:
    std::shared_mutex mutex_;
    std::unordered_map<uint64_t, Region*> regions_;
};

}  // namespace uct::tcp
