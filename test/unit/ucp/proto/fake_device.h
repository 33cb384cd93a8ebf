// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "ucs/memory/detector.h"

namespace ucp::test {

// A device whose memory the processor reaches as well, so that bytes can be compared. Tests say how
// its own copies begin and end.
class FakeDevice : public ucs::MemoryDetector {
  public:
    static constexpr uint64_t kAllocation = 7;

    bool detect(const void* address, size_t length, ucs::MemoryInfo& info) const override {
        if (!holds(address, length)) return false;
        info = {.type = UCS_MEMORY_TYPE_CUDA,
                .base = memory.data(),
                .length = memory.size(),
                .device = 0,
                .owner = const_cast<FakeDevice*>(this)};
        return true;
    }
    uint64_t types() const override { return UCS_BIT(UCS_MEMORY_TYPE_CUDA); }
    uint64_t readable_types() const override { return UCS_BIT(UCS_MEMORY_TYPE_CUDA); }
    ucs_status_t open_copy(std::span<const ucs::MemoryPiece> pieces, const ucs::MemoryInfo* known,
                           ucs::StagedCopy** copy) override {
        ++staged_open;
        *copy = new Staged(*this, static_cast<std::byte*>(pieces.front().address), known);
        return UCS_OK;
    }
    bool export_memory(const void* address, size_t length, const ucs::MemoryInfo*,
                       ucs::MemoryExport& description) override {
        if (!holds(address, length)) return false;
        description = {};
        description.type = UCS_MEMORY_TYPE_CUDA;
        description.version = ucs::kMemoryExportVersion;
        description.has_handle = has_handle ? 1 : 0;
        description.buffer = kAllocation;
        description.size = memory.size();
        description.base = reinterpret_cast<uintptr_t>(memory.data());
        description.offset =
            static_cast<uint64_t>(static_cast<const std::byte*>(address) - memory.data());
        return true;
    }

    std::vector<std::byte> memory = std::vector<std::byte>(1 << 20);
    bool has_handle = true;
    size_t staged_open = 0;
    size_t read = 0;  // bytes, for staged copies

  protected:
    std::byte* place_of(const ucs::DevicePiece& piece) {
        return memory.data() + piece.there->offset + piece.offset;
    }

  private:
    class Staged final : public ucs::StagedCopy {
      public:
        Staged(FakeDevice& device, std::byte* at, const ucs::MemoryInfo* known)
            : device_(device), at_(at) {
            if (known != nullptr) memory = *known;
        }
        ucs_status_t read(size_t offset, void* to, size_t length) override {
            device_.read += length;
            std::memcpy(to, at_ + offset, length);
            return UCS_OK;
        }
        ucs_status_t write(size_t offset, const void* from, size_t length) override {
            std::memcpy(at_ + offset, from, length);
            return UCS_OK;
        }
        ucs_status_t finish() override {
            --device_.staged_open;
            delete this;
            return UCS_OK;
        }
        void abandon() override { (void)finish(); }

      private:
        FakeDevice& device_;
        std::byte* const at_;
    };

    bool holds(const void* address, size_t length) const {
        const auto* const first = static_cast<const std::byte*>(address);
        return first >= memory.data() && first + length <= memory.data() + memory.size();
    }
};

// A device that is known. Detectors come before contexts, and go behind them.
template <typename Device>
struct InUse {
    Device device;
    InUse() { ucs::register_memory_detector(device); }
    ~InUse() { ucs::runtime().memory_detectors.reset(); }
    InUse(const InUse&) = delete;
};

}  // namespace ucp::test
