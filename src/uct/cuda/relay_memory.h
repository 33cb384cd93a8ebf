// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "uct/cuda/copy_engine.h"
#include "uct/cuda/mappings.h"

namespace uct::cuda {

// Memory of the library's own on devices whose programs receive into memory that no other process
// can open: peers write to windows of it. They are made in an errand when one is first asked for on
// a device, and kept as long as the context lives that they were made in. A window that a peer may
// write to unasked is freed: what the peer has mapped stays that memory. Any thread.
class RelayMemory {
  public:
    static constexpr size_t kWindow = 4 << 20;

    // @param bytes  of each device, in whole windows; 0: none
    RelayMemory(CopyEngine& engine, Mappings& mappings, size_t bytes)
        : engine_(engine), mappings_(mappings), windows_(bytes / kWindow) {}
    RelayMemory(const RelayMemory&) = delete;

    // As ucs::MemoryDetector::take_window().
    std::span<std::byte> take(const void* beside, size_t held);
    void put(std::span<std::byte> window, bool is_lost);

  private:
    struct Ring {
        CopyContext* context = nullptr;
        std::vector<std::byte*> all, free;  // all: none as long as they are being made
    };

    // Errands.
    void make(Ring& ring);
    void replace(Ring& ring, std::byte* window);
    void add_window(Ring& ring);

    CopyEngine& engine_;
    Mappings& mappings_;
    const size_t windows_;  // of a ring
    std::mutex mutex_;
    std::vector<std::unique_ptr<Ring>> rings_;
};

}  // namespace uct::cuda
