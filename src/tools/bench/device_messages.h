// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tools/common/device_memory.h"
#include "tools/program/verify.h"

namespace tools {

// Messages of a rank in the memory of a device. Without a number in the words, ranks take the
// devices in turn.
class DeviceMessages final : public MessageMemory {
  public:
    // Throws std::runtime_error if there is no such device.
    DeviceMessages(const MemoryPlace& place, unsigned rank);

    std::byte* allocate(size_t length) override;
    void free(std::byte* memory, size_t length) override;
    void copy(void* to, const void* from, size_t length) override;

  private:
    Device device_;
};

}  // namespace tools
