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
#include "uct/cuda/copy_engine.h"
#include "uct/cuda/exports.h"
#include "uct/cuda/mappings.h"
#include "uct/cuda/staging.h"

namespace uct::cuda {

class DirectCopies;

/**
 * One copy out of memory that was described: straight to device memory or pinned memory; to other
 * host memory through a few chunks of staging memory, of which the processor empties one while the
 * device fills the others.
 */
class DirectCopy final : public ucs::AsyncCopy {
  public:
    struct Job {
        CopyContext* context = nullptr;
        Mapping* mapping = nullptr;  //!< the source is in it; null: memory of this process
        abi::DevicePointer from = 0;
        std::byte* to = nullptr;
        size_t length = 0;
    };

    explicit DirectCopy(DirectCopies& owner) : owner_(owner) {}

    const Job& job() const { return job_; }
    /** The copy waits for handed_over(). */
    void open(const Job& job) { job_ = job; }
    /** Or it begins at once. */
    ucs_status_t begin_to_pinned();
    ucs_status_t begin_in_windows(StagingPool& staging);
    /** Begun by somebody else, or not. @param list  staging memory that is this copy's from now on,
     *  or null */
    void handed_over(ucs_status_t status, const CopyContext::Ticket& ticket, std::byte* list);

    ucs_status_t test() override;
    /** After the end: gives back what it took. */
    void close(StagingPool& staging);

  private:
    static constexpr size_t kWindows = 4;
    static constexpr uint32_t kPollsPerQuery = 1024;

    enum class State : uint8_t { kWaiting, kBegun, kInWindows, kFailed };
    struct Window {
        std::byte* chunk = nullptr;
        size_t length = 0;  //!< 0: nothing was begun
        CopyContext::Ticket ticket;
    };

    ucs_status_t ask(const CopyContext::Ticket& ticket);
    ucs_status_t test_windows();
    ucs_status_t fill(Window& window);
    void wait_for_windows();

    DirectCopies& owner_;
    Job job_;
    std::atomic<State> state_{State::kWaiting};
    CopyContext::Ticket ticket_;
    ucs_status_t status_ = UCS_OK;
    uint32_t polls_ = 0;
    std::byte* list_ = nullptr;
    Window windows_[kWindows];
    unsigned turn_ = 0;                 //!< the window that ends next
    size_t begun_ = 0, delivered_ = 0;  //!< bytes
};

/**
 * Copies by the devices themselves, out of memory of this process or another one.
 *
 * Those between devices that are begun in one turn of the program's progress are handed over
 * together when the first of them is asked for: many short ones by one kernel, since each copy of
 * the copy engine costs 2 us, long ones one by one. While some are under way, a few short ones wait
 * for company, until those have ended. Any thread.
 */
class DirectCopies {
  public:
    DirectCopies(CopyEngine& engine, StagingPool& staging, Exports& exports, Mappings& mappings)
        : engine_(engine), staging_(staging), exports_(exports), mappings_(mappings) {}

    /** As ucs::MemoryDetector::fetch(). */
    ucs_status_t fetch(const ucs::MemoryExport& from, void* to, size_t length,
                       ucs::AsyncCopy** copy);

    // For the copies themselves.
    /** Hand over what waits in a context. */
    void flush(CopyContext& context);
    void put(DirectCopy& copy);

  private:
    /** From so many pieces on a kernel copies them. */
    static constexpr size_t kLeastList = 4;
    /** So many, or so many bytes, need no further company. */
    static constexpr size_t kCompany = 32, kCompanyBytes = 16 << 20;
    /** Pieces that are longer on average belong to the copy engine. */
    static constexpr size_t kLongPiece = 4 << 20;
    /** A kernel's blocks have something to do each: longer pieces are cut. */
    static constexpr size_t kLeastCut = 4096, kParts = 264;

    struct Source {
        abi::DevicePointer address = 0;
        Mapping* mapping = nullptr;
    };

    bool has_company() const;
    ucs_status_t find_source(const ucs::MemoryExport& from, CopyContext& context, Source* source);
    CopyContext* context_for(const ucs::MemoryExport& from, const CopyEngine::Found& target);
    bool begin_list(CopyContext& context, std::span<DirectCopy* const> copies);
    DirectCopy* take();

    CopyEngine& engine_;
    StagingPool& staging_;
    Exports& exports_;
    Mappings& mappings_;
    std::mutex mutex_;
    CopyContext::Ticket latest_;  //!< that was handed over
    Direction next_ = Direction::kWithin;
    std::vector<DirectCopy*> waiting_;
    std::vector<DirectCopy*> handed_over_;  //!< of flush()
    std::vector<std::unique_ptr<DirectCopy>> idle_;
};

}  // namespace uct::cuda
