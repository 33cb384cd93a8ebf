// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ucs/memory/detector.h"
#include "uct/cuda/copy_engine.h"
#include "uct/cuda/mappings.h"
#include "uct/cuda/staging.h"

namespace uct::cuda {

// A list of pieces that is copied as one: short pieces by a kernel over a chunk of staging memory
// full of them, long ones by the copy engine. All in one stream, so that the
// end of the last is the end of all. One thread at a time.
class PieceCopy final : public ucs::AsyncCopy {
  public:
    PieceCopy(CopyContext& context, Direction direction, StagingPool& staging, Mappings& mappings)
        : context_(context), direction_(direction), staging_(staging), mappings_(mappings) {}
    PieceCopy(PieceCopy&&) = delete;

    CopyContext& context() const { return context_; }
    // A mapping that pieces lie in: given back at the end.
    void hold(Mapping& mapping) { mappings_held_.push_back(&mapping); }
    // Addresses as the context's device sees them. What fails is said at the end.
    void add(std::byte* to, const std::byte* from, size_t length);
    // Room in the list for pieces of at most kCut bytes, to be written there in order, then added.
    // Empty: add() finds some, or does without.
    std::span<KernelPiece> room() {
        return used_ < kInChunk ? std::span(list_ + used_, kInChunk - used_)
                                : std::span<KernelPiece>();
    }
    void added(size_t count) {
        used_ += count;
        waiting_ += count;
    }
    // Nothing is added any more.
    void close() { launch(); }
    // At the end the object is gone.
    ucs_status_t test() override;

    // What one block of the kernel copies at a time.
    static constexpr size_t kCut = 64 << 10;

  private:
    // Longer pieces belong to the copy engine; with host memory it is as fast for shorter ones.
    static constexpr size_t kLongPiece = 1 << 20, kLongHostPiece = 256 << 10;
    // A few are not worth a kernel.
    static constexpr size_t kMinPieces = 4;
    static constexpr size_t kInChunk = StagingPool::kChunk / sizeof(KernelPiece);
    static constexpr uint32_t kPollsPerQuery = 1024;

    bool make_room();
    void launch();
    void copy_alone(std::byte* to, const std::byte* from, size_t length);

    CopyContext& context_;
    const Direction direction_;
    StagingPool& staging_;
    Mappings& mappings_;
    std::vector<Mapping*> mappings_held_;
    std::vector<std::byte*> chunks_;  // hold the lists until all is copied
    KernelPiece* list_ = nullptr;     // in the last chunk
    size_t used_ = kInChunk;          // pieces in it
    size_t waiting_ = 0;              // of those, the last ones that no kernel has yet
    CopyContext::Ticket ticket_;      // of the last that was begun
    ucs_status_t status_ = UCS_OK;
    uint32_t polls_ = 0;
};

}  // namespace uct::cuda
