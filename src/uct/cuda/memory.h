// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "ucs/memory/detector.h"
#include "uct/cuda/copy_engine.h"
#include "uct/cuda/staging.h"

namespace uct::cuda {

/** What the library knows of CUDA memory: what it is, how to copy it, how to allocate it. */
class Memory final : public ucs::MemoryDetector {
  public:
    /** Null without a driver. Registered with ucs. */
    static Memory* get();

    bool detect(const void* address, size_t length, ucs::MemoryInfo& info) const override;
    uint64_t types() const override;
    bool is_in_use() const override { return engine_.driver().is_initialized(); }
    void prepare() override;
    ucs_status_t copy(void* to, const void* from, size_t length) override;
    ucs_status_t open_copy(std::span<const ucs::MemoryPiece> pieces,
                           ucs::StagedCopy** copy) override;
    ucs_status_t allocate(ucs_memory_type_t type, size_t length, void** address) override;
    void free(void* address) override;

    CopyEngine& engine() { return engine_; }
    StagingPool& staging() { return staging_; }

  private:
    explicit Memory(CopyEngine& engine) : engine_(engine), staging_(engine.driver()) {}
    ucs_status_t copy_within(const CopyEngine::Found& owner, void* to, const void* from,
                             size_t length);

    CopyEngine& engine_;
    StagingPool staging_;
};

}  // namespace uct::cuda
