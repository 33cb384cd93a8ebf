// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ucs/memory/detector.h"
#include "ucs/sys/spin_lock.h"
#include "uct/cuda/copy_engine.h"
#include "uct/cuda/direct_copy.h"
#include "uct/cuda/direct_queue.h"
#include "uct/cuda/mappings.h"
#include "uct/cuda/places.h"
#include "uct/cuda/staging.h"

namespace uct::cuda {

class PieceCopy;

// Copies by the devices themselves, out of memory of this process or another one, or into it. How
// they come to be begun: DirectQueue. Any thread.
class DirectCopies {
  public:
    DirectCopies(CopyEngine& engine, StagingPool& staging, Places& places, Mappings& mappings)
        : engine_(engine), staging_(staging), places_(places), mappings_(mappings) {}

    // As ucs::MemoryDetector::fetch().
    ucs_status_t fetch(const ucs::DevicePiece& piece, const ucs::MemoryInfo* known,
                       ucs::AsyncCopy** copy) {
        return begin(piece, known, Access::kFetch, copy);
    }
    // As ucs::MemoryDetector::store().
    ucs_status_t store(const ucs::DevicePiece& piece, const ucs::MemoryInfo* known,
                       ucs::AsyncCopy** copy) {
        return begin(piece, known, Access::kStore, copy);
    }

    // As ucs::MemoryDetector::transfer().
    ucs_status_t transfer(std::span<const ucs::DevicePiece> pieces, bool is_store, size_t* begun,
                          ucs::AsyncCopy** copy);

    // For the copies themselves: one that has ended.
    void put(DirectCopy& copy);

  private:
    static constexpr size_t kRoutes = 16;

    // Of the described memory.
    enum class Access : uint8_t { kFetch, kStore };
    // Memory here in which many pieces may lie.
    struct Here {
        std::span<std::byte> range;
        CopyContext* context = nullptr;
        bool is_host = false;

        bool holds(const ucs::DevicePiece& piece) const {
            const auto* const first = static_cast<const std::byte*>(piece.here);
            return first >= range.data() && first < range.data() + range.size() &&
                   piece.length <= static_cast<size_t>(range.data() + range.size() - first);
        }
    };

    // How a copy went between an allocation here and memory of another process: the next one
    // between the two goes the same way, if copies still do.
    struct Route {
        uint64_t allocation = 0;
        CopyContext* context = nullptr;
        MappingUse* way = nullptr;
        DirectQueue* queue = nullptr;
    };

    // Where a piece lies here; without a context: no device reaches it.
    Here find_here(const ucs::DevicePiece& piece);
    static size_t add_run(PieceCopy& copy, std::span<const ucs::DevicePiece> pieces,
                          const Here& here, const Place& place, uint64_t room, bool is_store);
    ucs_status_t begin(const ucs::DevicePiece& piece, const ucs::MemoryInfo* known, Access access,
                       ucs::AsyncCopy** copy) {
        return known != nullptr && begin_as_before(piece, *known, access, copy)
                   ? UCS_OK
                   : begin_anew(piece, access, copy);
    }
    ucs_status_t begin_anew(const ucs::DevicePiece& piece, Access access, ucs::AsyncCopy** copy);
    bool begin_as_before(const ucs::DevicePiece& piece, const ucs::MemoryInfo& known, Access access,
                         ucs::AsyncCopy** copy);
    CopyContext* context_for(const ucs::MemoryExport& described, const CopyEngine::Found& here);
    static bool leads_to(const MappingUse& way, const ucs::MemoryExport& described,
                         const CopyContext& context);
    MappingUse* find_way(const ucs::MemoryExport& described, const CopyContext& context);
    MappingUse& add_way(Mapping& mapping);
    Route& route_of(uint64_t allocation, const ucs::MemoryExport& described) {
        return routes_[(allocation + described.buffer + described.process) % kRoutes];
    }
    DirectCopy* take();
    DirectQueue& queue_of(CopyContext& context, Direction direction);
    Direction stream(CopyContext& context, Direction direction);

    CopyEngine& engine_;
    StagingPool& staging_;
    Places& places_;
    Mappings& mappings_;
    ucs::SpinLock lock_;  // of what follows
    std::vector<std::unique_ptr<DirectQueue>> queues_;
    std::vector<std::unique_ptr<MappingUse>> ways_;
    Route routes_[kRoutes];
    std::vector<std::unique_ptr<DirectCopy>> idle_;
};

}  // namespace uct::cuda
