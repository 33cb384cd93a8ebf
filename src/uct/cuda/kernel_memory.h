// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <vector>

#include "ucs/memory/detector.h"
#include "uct/cuda/copy_engine.h"
#include "uct/cuda/places.h"

namespace uct::cuda {

// What kernels of a context work with. The device's memory comes and goes in the order of a stream
// of the library's: cuMemFree would wait for all kernels, and one of them perhaps for a message.
class KernelMemory final : public ucs::KernelMemory {
  public:
    KernelMemory(CopyEngine& engine, Places& places, CopyContext& context)
        : engine_(engine), places_(places), context_(context) {}

    ucs_status_t find(const ucs::MemoryExport& memory, void** address) override;
    ucs_status_t check(const void* address, size_t length) override;
    ucs_status_t allocate(size_t length, void** address) override;
    ucs_status_t write(std::span<const std::byte> bytes) override;
    void close() override;

  private:
    // A way takes one errand, after one that closes the way that has to make room for it.
    static constexpr int kTries = 4;

    template <typename Attempt>
    ucs_status_t try_and_wait(Attempt attempt);

    CopyEngine& engine_;
    Places& places_;
    CopyContext& context_;
    std::vector<Place> held_;
    abi::DevicePointer memory_ = 0;
};

}  // namespace uct::cuda
