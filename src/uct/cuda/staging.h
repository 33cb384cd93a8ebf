// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "ucs/memory/detector.h"
#include "ucs/sys/spin_lock.h"
#include "uct/cuda/copy_engine.h"

namespace uct::cuda {

class StagedTransfer;

// Pinned host memory that copies pass through, in chunks; bounded (UCX_CUDA_STAGING), and taken as
// a whole when a context is first prepared. Who finds no chunk copies without one, more slowly. Any
// thread.
class StagingPool {
  public:
    static constexpr size_t kChunk = 256 * 1024;

    explicit StagingPool(const Driver& driver) : driver_(driver) {}

    // Take and pin the memory, in the context that is current: it is pinned as long as that
    // context lives, and pinned anew by the next call.
    void fill();
    bool is_filled() const { return is_filled_.load(std::memory_order_acquire); }
    std::byte* take();
    void put(std::byte* chunk);
    size_t chunks() const { return chunks_; }
    size_t free_chunks();

    StagedTransfer* take_transfer();
    void put_transfer(StagedTransfer* transfer);

  private:
    bool is_pinned() const;

    const Driver& driver_;
    std::mutex filling_;
    std::atomic<bool> is_filled_{false};
    void* memory_ = nullptr;
    size_t chunks_ = 0;
    ucs::SpinLock lock_;  // of what follows
    std::vector<std::byte*> free_;
    std::vector<std::unique_ptr<StagedTransfer>> transfers_;
};

// One StagedCopy: two chunks in turn, of which one is copied by the device while the processor
// empties or fills the other.
class StagedTransfer final : public ucs::StagedCopy {
  public:
    explicit StagedTransfer(StagingPool& pool) : pool_(pool) {}

    // Arguments as ucs::MemoryDetector::open_copy().
    void open(CopyEngine& engine, std::span<const ucs::MemoryPiece> pieces,
              const ucs::MemoryInfo* known);
    ucs_status_t read(size_t offset, void* to, size_t length) override;
    ucs_status_t write(size_t offset, const void* from, size_t length) override;
    ucs_status_t finish() override;
    void abandon() override;

  private:
    // So many bytes are handed to the device together, when they come in small parts.
    static constexpr size_t kFlush = 64 * 1024;
    // From so many pieces on a kernel copies them, where it is loaded.
    static constexpr size_t kLeastList = 8;

    struct Window {
        std::byte* chunk = nullptr;  // null: it has never been used
        std::byte* list = nullptr;   // a chunk that holds the pieces a kernel copies
        size_t begin = 0, end = 0;   // of the sequence
        CopyContext::Ticket ticket;
    };

    // Most operations that know the buffer's memory copy it some other way: what only a transfer
    // needs is made ready by the first part.
    void use();
    ucs_status_t end_windows();
    ucs_status_t load(Window& window, size_t offset);
    ucs_status_t flush();
    // Copy between [offset, offset + length) of the pieces and staging memory.
    ucs_status_t transfer(Window& window, Direction direction, size_t offset, std::byte* staging,
                          size_t length);
    ucs_status_t transfer_list(Window& window, Direction direction, size_t offset,
                               std::byte* staging, size_t length);
    ucs_status_t copy_without_chunk(Direction direction, size_t offset, std::byte* host,
                                    size_t length);
    // The bytes from `offset` on that lie together, at most `length`.
    ucs::MemoryPiece part(size_t offset, size_t length);
    // Null: host memory; else an error where no context is found.
    ucs_status_t context_of(void* address, CopyContext** context);
    ucs_status_t wait(Window& window);
    void release(Window& window);

    StagingPool& pool_;
    CopyEngine* engine_ = nullptr;
    bool is_held_ = false;  // the allocation that the only piece lies in
    bool is_used_ = false;
    std::span<const ucs::MemoryPiece> pieces_;
    size_t total_ = 0;
    ucs::MemoryPiece only_{};
    // Since use():
    size_t index_ = 0, start_ = 0;  // the piece that the next access is likely to begin in
    size_t context_index_ = SIZE_MAX;
    CopyContext* context_ = nullptr;  // of the piece of that index
    Window windows_[2];
    unsigned turn_ = 0;
    size_t pending_ = 0;  // bytes at the end of the window written to that the device waits for
    ucs_status_t status_ = UCS_OK;
};

}  // namespace uct::cuda
