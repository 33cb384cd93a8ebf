// SPDX-License-Identifier: BSD-3-Clause
#include "tools/common/device_memory.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <stdexcept>

namespace tools {

namespace abi = uct::cuda::abi;
using uct::cuda::Driver;

const Driver& cuda_driver() {
    static const Driver& driver = [&]() -> const Driver& {
        if (Driver::get() == nullptr) throw std::runtime_error(Driver::problem());
        check_cuda(Driver::get()->init(0), "cuInit");
        return *Driver::get();
    }();
    return driver;
}

void check_cuda(abi::Result result, const char* what) {
    if (result != 0) throw std::runtime_error(fmt::format("CUDA: {} gives error {}", what, result));
}

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

CudaDevice::CudaDevice(const MemoryPlace& place, bool is_initiator) : place_(place) {
    const Driver& cuda = cuda_driver();
    int count = 0;
    check_cuda(cuda.device_get_count(&count), "cuDeviceGetCount");
    const int device = place.device >= 0 ? place.device : (is_initiator || count < 2 ? 0 : 1);
    if (device >= count) {
        throw std::runtime_error(
            fmt::format("there is no CUDA device {}: {} in all", device, count));
    }
    check_cuda(cuda.primary_context_retain(&context_, device), "cuDevicePrimaryCtxRetain");
    number_ = device;
    make_current();
}

void CudaDevice::make_current() const {
    check_cuda(cuda_driver().context_set(context_), "cuCtxSetCurrent");
}

void CudaDevice::connect(const CudaDevice& first, const CudaDevice& second) {
    if (first.context_ == second.context_) return;
    const Driver& cuda = cuda_driver();
    second.make_current();
    (void)cuda.context_enable_peer(first.context_, 0);
    first.make_current();
    (void)cuda.context_enable_peer(second.context_, 0);
}

void CudaDevice::pin(void* address, size_t length) const {
    make_current();
    check_cuda(cuda_driver().host_register(address, length, 0), "cuMemHostRegister");
}

void CudaDevice::unpin(void* address) const {
    const Driver& cuda = cuda_driver();
    if (cuda.context_set(context_) == 0) (void)cuda.host_unregister(address);
}

namespace {

// The driver wants multiples of it.
size_t whole_pages(size_t length) {
    constexpr size_t kPage = 2 << 20;
    return (length + kPage - 1) / kPage * kPage;
}

}  // namespace

std::byte* CudaDevice::allocate_virtual(size_t length) const {
    const Driver& cuda = cuda_driver();
    const size_t whole = whole_pages(length);
    abi::AllocationHandle allocation = 0;
    abi::DevicePointer address = 0;
    abi::AllocationProperties properties{};
    properties.type = abi::kAllocationPinned;
    properties.handle_types = abi::kHandleDescriptor;
    properties.location = {abi::kLocationDevice, number_};
    check_cuda(cuda.allocation_create(&allocation, whole, &properties, 0), "cuMemCreate");
    check_cuda(cuda.address_reserve(&address, whole, 0, 0, 0), "cuMemAddressReserve");
    check_cuda(cuda.allocation_map(address, whole, 0, allocation, 0), "cuMemMap");
    check_cuda(cuda.allocation_release(allocation), "cuMemRelease");
    int count = 0;
    check_cuda(cuda.device_get_count(&count), "cuDeviceGetCount");
    for (int device = 0; device < count; ++device) {
        const abi::AccessDescriptor access{{abi::kLocationDevice, device}, abi::kAccessReadWrite};
        const int result = cuda.allocation_set_access(address, whole, &access, 1);
        // Others are given access where they can have it.
        if (device == number_) check_cuda(result, "cuMemSetAccess");
    }
    return reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
}

std::byte* CudaDevice::allocate(size_t length) const {
    make_current();
    if (place_.is_virtual) return allocate_virtual(length);
    abi::DevicePointer address = 0;
    check_cuda(cuda_driver().memory_allocate(&address, length), "cuMemAlloc");
    return reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
}

void CudaDevice::free(void* memory, size_t length) const {
    const Driver& cuda = cuda_driver();
    const auto address = reinterpret_cast<uintptr_t>(memory);
    (void)cuda.context_set(context_);
    if (!place_.is_virtual) {
        (void)cuda.memory_free(address);
    } else if (cuda.allocation_unmap(address, whole_pages(length)) == 0) {
        (void)cuda.address_free(address, whole_pages(length));
    }
}

void CudaDevice::copy(void* to, const void* from, size_t length) const {
    if (length == 0) return;
    make_current();
    const Driver& cuda = cuda_driver();
    check_cuda(
        cuda.copy(reinterpret_cast<uintptr_t>(to), reinterpret_cast<uintptr_t>(from), length),
        "cuMemcpy");
    // From pageable memory it returns before the bytes have landed.
    check_cuda(cuda.stream_synchronize(nullptr), "cuStreamSynchronize");
}

}  // namespace tools
