// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "ucs/memory/detector.h"
#include "ucs/sys/spin_lock.h"
#include "uct/cuda/copy_engine.h"
#include "uct/cuda/mappings.h"
#include "uct/cuda/places.h"
#include "uct/cuda/staging.h"

namespace uct::cuda {

class DirectCopies;
class PieceCopy;

// One copy out of memory that was described, or into it. The other side is device memory or pinned
// memory, or else host memory that is copied through a few chunks of staging memory, of which the
// processor empties or fills one while the device is busy with the others.
class DirectCopy final : public ucs::AsyncCopy {
  public:
    struct Plan {
        CopyContext* context = nullptr;
        Mapping* mapping = nullptr;  // one side is in it; null: memory of this process
        Direction direction = Direction::kWithin;
        std::byte* to = nullptr;
        const std::byte* from = nullptr;
        size_t length = 0;
    };

    explicit DirectCopy(DirectCopies& owner) : owner_(owner) {}

    const Plan& plan() const { return plan_; }
    // The copy waits for handed_over().
    void open(const Plan& plan) { plan_ = plan; }
    // Or it begins at once: the host's side is not pinned.
    ucs_status_t begin_in_windows(StagingPool& staging);
    // Begun by somebody else, or not. @param list  staging memory that is this copy's from now on,
    //  or null
    void handed_over(ucs_status_t status, const CopyContext::Ticket& ticket, std::byte* list);
    // Or the resident kernel has it.
    void handed_over(Resident& resident, uint32_t number);

    ucs_status_t test() override;
    // After the end: gives back what it took.
    void close(StagingPool& staging);

    // What a copy waits behind, and the company that it had then.
    struct Behind {
        CopyContext::Ticket ticket;
        uint64_t company = 0;
    };

  private:
    static constexpr size_t kWindows = 4;
    static constexpr uint32_t kPollsPerQuery = 1024;

    enum class State : uint8_t { kWaiting, kBegun, kResident, kInWindows, kFailed };
    struct Window {
        std::byte* chunk = nullptr;
        size_t length = 0;  // 0: nothing was begun
        CopyContext::Ticket ticket;
    };

    ucs_status_t ask(const CopyContext::Ticket& ticket);
    ucs_status_t ask_resident();
    bool stays_behind() const;
    ucs_status_t test_windows();
    ucs_status_t fill(Window& window);
    void wait_for_windows();

    DirectCopies& owner_;
    Plan plan_;
    std::atomic<State> state_{State::kWaiting};
    Behind behind_;
    CopyContext::Ticket ticket_;
    Resident* resident_ = nullptr;
    uint32_t number_ = 0;  // of the resident kernel's
    ucs_status_t status_ = UCS_OK;
    uint32_t polls_ = 0;
    std::byte* list_ = nullptr;
    Window windows_[kWindows];          // as they are above, unless it goes in windows
    unsigned turn_ = 0;                 // the window that ends next
    size_t begun_ = 0, delivered_ = 0;  // bytes, of which the device was told, and that are there
};

// Copies by the devices themselves, out of memory of this process or another one, or into it.
//
// Those of one direction that are begun in one turn of the program's progress are handed over
// together when the first of them is asked for: many short ones by one kernel, since each copy of
// the copy engine costs 2 us, long ones one by one. While some are under way, a few short ones wait
// for company, until those have ended. Any thread.
class DirectCopies {
  public:
    DirectCopies(CopyEngine& engine, StagingPool& staging, Places& places, Mappings& mappings)
        : engine_(engine), staging_(staging), places_(places), mappings_(mappings) {}

    // As ucs::MemoryDetector::fetch().
    ucs_status_t fetch(const ucs::MemoryExport& from, void* to, size_t length,
                       ucs::AsyncCopy** copy) {
        return begin(from, static_cast<std::byte*>(to), length, Access::kFetch, copy);
    }
    // As ucs::MemoryDetector::store().
    ucs_status_t store(const ucs::MemoryExport& to, const void* from, size_t length,
                       ucs::AsyncCopy** copy) {
        auto* const bytes = static_cast<std::byte*>(const_cast<void*>(from));
        return begin(to, bytes, length, Access::kStore, copy);
    }

    // As ucs::MemoryDetector::transfer().
    ucs_status_t transfer(std::span<const ucs::DevicePiece> pieces, bool is_store, size_t* begun,
                          ucs::AsyncCopy** copy);

    // For the copies themselves.
    // Hand over what waits in a context for a direction, unless it is to wait `behind` others.
    void flush(CopyContext& context, Direction direction, DirectCopy::Behind* behind);
    // Changes with every copy that is begun.
    uint64_t company() const { return company_.load(std::memory_order_relaxed); }
    // The copy has not begun after all.
    void wait_again(DirectCopy& copy);
    void put(DirectCopy& copy);

  private:
    // From so many pieces on a kernel copies them.
    static constexpr size_t kLeastList = 4;
    // So many, or so many bytes, need no further company.
    static constexpr size_t kCompany = 32, kCompanyBytes = 16 << 20;
    // Pieces that are longer on average belong to the copy engine.
    static constexpr size_t kLongPiece = 4 << 20, kLongHostPiece = 512 << 10;
    // A kernel's blocks have something to do each: longer pieces are cut.
    static constexpr size_t kLeastCut = 4096, kParts = 264;

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

    // A mapping that copies under way take: it is taken once, and given back when the last of them
    // has ended.
    struct Way {
        Mapping* mapping;
        unsigned copies;
    };

    // Where a piece lies here; without a context: no device reaches it.
    Here find_here(const ucs::DevicePiece& piece);
    static size_t add_run(PieceCopy& copy, std::span<const ucs::DevicePiece> pieces,
                          const Here& here, const Place& place, uint64_t room, bool is_store);
    ucs_status_t begin(const ucs::MemoryExport& described, std::byte* here, size_t length,
                       Access access, ucs::AsyncCopy** copy);
    bool has_company(const CopyContext& context, Direction direction) const;
    // Between devices, one stream and the other in turn: what is in one begins while the end of
    // what is in the other is still under way.
    Direction stream_of(Direction direction);
    CopyContext* context_for(const ucs::MemoryExport& described, const CopyEngine::Found& here);
    bool find_way(const ucs::MemoryExport& described, const CopyContext& context, Place* place);
    Mapping* leave_way(const Mapping& mapping);
    DirectCopy* take();
    void wait(DirectCopy& copy);
    template <typename Predicate>
    void take_waiting(Predicate predicate);
    void hand_to(Resident& resident, const CopyContext& context, Direction direction);
    bool begin_list(CopyContext& context, Direction direction, std::span<DirectCopy* const> copies);

    CopyEngine& engine_;
    StagingPool& staging_;
    Places& places_;
    Mappings& mappings_;
    std::atomic<unsigned> next_{0};
    std::atomic<uint64_t> company_{0};  // copies that have waited, ever

    std::mutex handing_over_;                  // is for one thread at a time
    CopyContext::Ticket latest_[kDirections];  // that was handed over; kWithin: for both
    std::vector<DirectCopy*> handed_over_;     // those that are now

    ucs::SpinLock lock_;  // of what follows
    std::vector<DirectCopy*> waiting_;
    std::vector<Way> ways_;
    std::vector<std::unique_ptr<DirectCopy>> idle_;
};

}  // namespace uct::cuda
