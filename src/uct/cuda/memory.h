// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <mutex>

#include "ucs/memory/detector.h"
#include "uct/cuda/copy_engine.h"
#include "uct/cuda/direct_copies.h"
#include "uct/cuda/exports.h"
#include "uct/cuda/mappings.h"
#include "uct/cuda/places.h"
#include "uct/cuda/relay_memory.h"
#include "uct/cuda/staging.h"
#include "uct/cuda/stream_stops.h"

namespace uct::cuda {

// What the library knows of CUDA memory: what it is, how to copy it, how to allocate it.
class CudaMemory final : public ucs::MemoryDetector {
  public:
    // Null without a driver. Registered with ucs.
    static CudaMemory* get();

    bool detect(const void* address, size_t length, ucs::MemoryInfo& info) const override;
    uint64_t types() const override;
    uint64_t readable_types() const override;
    bool is_in_use() const override { return engine_.driver().is_initialized(); }
    void prepare() override;
    ucs_status_t copy(void* to, const void* from, size_t length) override;
    ucs_status_t open_copy(std::span<const ucs::MemoryPiece> pieces, const ucs::MemoryInfo* known,
                           ucs::StagedCopy** copy) override;
    bool export_memory(const void* address, size_t length, const ucs::MemoryInfo* known,
                       ucs::MemoryExport& description) override;
    bool has_dma_bufs() const override;
    ucs_status_t export_dma_buf(const void* address, size_t length, ucs::DmaBuf* buffer) override;
    ucs_status_t fetch(const ucs::DevicePiece& piece, const ucs::MemoryInfo* known,
                       ucs::AsyncCopy** copy) override;
    ucs_status_t store(const ucs::DevicePiece& piece, const ucs::MemoryInfo* known,
                       ucs::AsyncCopy** copy) override;
    ucs_status_t transfer(std::span<const ucs::DevicePiece> pieces, bool is_store, size_t* begun,
                          ucs::AsyncCopy** copy) override;
    std::span<std::byte> take_window(const void* beside, size_t held) override {
        return relay_.take(beside, held);
    }
    void put_window(std::span<std::byte> window, bool is_lost) override {
        relay_.put(window, is_lost);
    }
    bool is_freed(uint64_t buffer, uint64_t base) override;
    void forget(uint64_t process, uint64_t buffer) override { mappings_.forget(process, buffer); }
    ucs_status_t insert_stop(void* stream, bool may_be_captured, ucs::StreamStop* stop) override;
    void remove_stop(const ucs::StreamStop& stop, bool is_lost) override {
        stops_.remove(stop, is_lost);
    }
    ucs_status_t open_for_kernels(ucs::KernelMemory** memory) override;
    ucs_status_t allocate(ucs_memory_type_t type, size_t length, void** address) override;
    void free(void* address) override;

    CopyEngine& engine() { return engine_; }
    StagingPool& staging() { return staging_; }
    Mappings& mappings() { return mappings_; }

  private:
    explicit CudaMemory(CopyEngine& engine);
    abi::Context home();
    void fill_staging(abi::Context context);
    void fill_late(const void* address) {
        if (!staging_.is_filled()) [[unlikely]]
            fill_late_now(address);
    }
    void fill_late_now(const void* address);
    ucs_status_t copy_within(const CopyEngine::Found& owner, void* to, const void* from,
                             size_t length);

    CopyEngine& engine_;
    std::mutex home_mutex_;
    abi::Context home_ = nullptr;  // where staging memory is registered
    StagingPool staging_;
    Exports exports_;
    StreamStops stops_;
    Mappings mappings_;
    RelayMemory relay_;
    Places places_;
    DirectCopies direct_;
    const bool is_direct_;  // UCX_CUDA_DIRECT
};

}  // namespace uct::cuda
