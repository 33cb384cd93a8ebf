// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
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
// Any thread may register; the threads of several workers, and those for bulk transfers, look up.
// Who registers waits for nobody who moves bytes, and who deregisters only for those who began
// before: threads that move bytes without a pause keep neither waiting.
class RegionTable {
  public:
    Region* add(void* address, size_t length, PeerRights rights);
    // Waits for the readers that may have found it.
    void remove(Region* region);

    // What it finds stays registered while it lives.
    class Reader {
      public:
        explicit Reader(RegionTable& table) : table_(table) {}
        ~Reader();
        Reader(const Reader&) = delete;
        // The memory at `address`, if [address, address + length) may be accessed like that.
        std::byte* find(uint64_t key, uint64_t address, size_t length, PeerRights wanted);

      private:
        RegionTable& table_;
        bool has_entered_ = false;
        unsigned generation_ = 0;
    };

  private:
    std::mutex mutex_;
    std::unordered_map<uint64_t, Region*> regions_;
    // Readers that have looked, by the generation in which they began. There are two: who removes
    // begins the other one, and waits for the end of those of the last.
    std::array<size_t, 2> readers_{};
    unsigned generation_ = 0;
    std::condition_variable no_readers_;
    std::mutex removing_;  // held by who waits, before mutex_
};

}  // namespace uct::tcp
