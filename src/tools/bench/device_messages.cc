// SPDX-License-Identifier: BSD-3-Clause
#include "tools/bench/device_messages.h"

#include "tools/common/cuda_driver.h"

namespace tools {

namespace {

MemoryPlace place_of(MemoryPlace place, unsigned rank) {
    if (place.device >= 0) return place;
    int count = 0;
    CudaDriver::check(CudaDriver::get().device_get_count(&count), "cuDeviceGetCount");
    place.device = count > 0 ? static_cast<int>(rank % static_cast<unsigned>(count)) : 0;
    return place;
}

}  // namespace

DeviceMessages::DeviceMessages(const MemoryPlace& place, unsigned rank)
    : device_(place_of(place, rank), rank % 2 == 0) {}

std::byte* DeviceMessages::allocate(size_t length) {
    device_.make_current();
    if (device_.is_virtual()) return static_cast<std::byte*>(device_.allocate_virtual(length));
    uint64_t address = 0;
    CudaDriver::check(CudaDriver::get().memory_allocate(&address, length), "cuMemAlloc");
    return reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
}

void DeviceMessages::free(std::byte* memory, size_t length) {
    device_.make_current();
    if (device_.is_virtual()) return device_.free_virtual(memory, length);
    (void)CudaDriver::get().memory_free(reinterpret_cast<uintptr_t>(memory));
}

void DeviceMessages::copy(void* to, const void* from, size_t length) {
    device_.copy(to, from, length);
}

}  // namespace tools
