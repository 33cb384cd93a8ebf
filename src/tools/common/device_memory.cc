// SPDX-License-Identifier: BSD-3-Clause
#include "tools/common/device_memory.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <stdexcept>

#include "tools/common/cuda_driver.h"

namespace tools {

MemoryPlace MemoryPlace::parse(const std::string& text) {
    if (text == "host") return {};
    if (text == "pinned") return {.is_pinned = true};
    const std::string kind = text.substr(0, text.find(':'));
    MemoryPlace place{.is_device = true, .is_virtual = kind == "vmm"};
    if (kind == "cuda" || kind == "vmm") {
        if (kind == text) return place;
        const char* const end = text.data() + text.size();
        const auto [rest, error] =
            std::from_chars(text.data() + kind.size() + 1, end, place.device);
        if (error == std::errc() && rest == end && place.device >= 0) return place;
    }
    throw std::invalid_argument(
        fmt::format("'{}' is neither host, pinned, cuda, vmm nor these two with :DEVICE", text));
}

Device::Device(const MemoryPlace& place, bool is_initiator) : place_(place) {
    const CudaDriver& cuda = CudaDriver::get();
    int count = 0;
    CudaDriver::check(cuda.device_get_count(&count), "cuDeviceGetCount");
    const int device = place.device >= 0 ? place.device : (is_initiator || count < 2 ? 0 : 1);
    if (device >= count) {
        throw std::runtime_error(
            fmt::format("there is no CUDA device {}: {} in all", device, count));
    }
    CudaDriver::check(cuda.primary_context_retain(&context_, device), "cuDevicePrimaryCtxRetain");
    number_ = device;
    make_current();
}

void Device::make_current() const {
    CudaDriver::check(CudaDriver::get().context_set_current(context_), "cuCtxSetCurrent");
}

void Device::connect(const Device& first, const Device& second) {
    if (first.context_ == second.context_) return;
    const CudaDriver& cuda = CudaDriver::get();
    second.make_current();
    (void)cuda.context_enable_peer(first.context_, 0);
    first.make_current();
    (void)cuda.context_enable_peer(second.context_, 0);
}

void Device::pin(void* address, size_t length) const {
    make_current();
    CudaDriver::check(CudaDriver::get().host_register(address, length, 0), "cuMemHostRegister");
}

void Device::unpin(void* address) const {
    const CudaDriver& cuda = CudaDriver::get();
    if (cuda.context_set_current(context_) == 0) (void)cuda.host_unregister(address);
}

namespace {

// The driver wants multiples of it.
size_t whole_pages(size_t length) {
    constexpr size_t kPage = 2 << 20;
    return (length + kPage - 1) / kPage * kPage;
}

}  // namespace

void* Device::allocate_virtual(size_t length) const {
    const CudaDriver& cuda = CudaDriver::get();
    const size_t whole = whole_pages(length);
    uint64_t allocation = 0, address = 0;
    const CudaAllocation properties{.location = {CudaLocation::kDevice, number_}};
    CudaDriver::check(cuda.allocation_create(&allocation, whole, &properties, 0), "cuMemCreate");
    CudaDriver::check(cuda.address_reserve(&address, whole, 0, 0, 0), "cuMemAddressReserve");
    CudaDriver::check(cuda.allocation_map(address, whole, 0, allocation, 0), "cuMemMap");
    CudaDriver::check(cuda.allocation_release(allocation), "cuMemRelease");
    int count = 0;
    CudaDriver::check(cuda.device_get_count(&count), "cuDeviceGetCount");
    for (int device = 0; device < count; ++device) {
        const CudaAccess access{.location = {CudaLocation::kDevice, device}};
        const int result = cuda.allocation_set_access(address, whole, &access, 1);
        // Others are given access where they can have it.
        if (device == number_) CudaDriver::check(result, "cuMemSetAccess");
    }
    return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

void Device::free_virtual(void* address, size_t length) const {
    const CudaDriver& cuda = CudaDriver::get();
    const auto place = reinterpret_cast<uintptr_t>(address);
    if (cuda.allocation_unmap(place, whole_pages(length)) == 0)
        (void)cuda.address_free(place, whole_pages(length));
}

void Device::copy(void* to, const void* from, size_t length) const {
    if (length == 0) return;
    make_current();
    const CudaDriver& cuda = CudaDriver::get();
    CudaDriver::check(
        cuda.copy(reinterpret_cast<uintptr_t>(to), reinterpret_cast<uintptr_t>(from), length),
        "cuMemcpy");
    // From pageable memory it returns before the bytes have landed.
    CudaDriver::check(cuda.stream_synchronize(nullptr), "cuStreamSynchronize");
}

}  // namespace tools
