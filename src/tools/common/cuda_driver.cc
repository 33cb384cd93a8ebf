// SPDX-License-Identifier: BSD-3-Clause
#include "tools/common/cuda_driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <stdexcept>

namespace tools {
namespace {

class Binder {
  public:
    Binder() : library_(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NODELETE)) {
        if (library_ == nullptr)
            throw std::runtime_error(fmt::format("no CUDA here: {}", dlerror()));
        get_address_ = reinterpret_cast<GetAddress>(dlsym(library_, "cuGetProcAddress_v2"));
    }
    // The function as it is since that version: 1000 * major + 10 * minor.
    template <typename Function>
    void bind(const char* name, int version, Function& function) const {
        void* address = nullptr;
        if (get_address_ == nullptr || get_address_(name, &address, version, 0, nullptr) != 0 ||
            address == nullptr) {
            throw std::runtime_error(fmt::format("the CUDA driver has no {}", name));
        }
        function = reinterpret_cast<Function>(address);
    }

  private:
    using GetAddress = int (*)(const char*, void**, int, uint64_t, int*);
    void* library_;
    GetAddress get_address_ = nullptr;
};

CudaDriver open_driver() {
    const Binder binder;
    CudaDriver driver{};
    binder.bind("cuInit", 2000, driver.init);
    binder.bind("cuDeviceGetCount", 2000, driver.device_get_count);
    binder.bind("cuDeviceGetName", 2000, driver.device_get_name);
    binder.bind("cuDeviceGetAttribute", 2000, driver.device_get_attribute);
    binder.bind("cuDeviceTotalMem", 3020, driver.device_total_memory);
    binder.bind("cuDeviceCanAccessPeer", 4000, driver.device_can_access_peer);
    binder.bind("cuDeviceGetP2PAttribute", 8000, driver.device_get_p2p_attribute);
    binder.bind("cuDevicePrimaryCtxRetain", 7000, driver.primary_context_retain);
    binder.bind("cuCtxSetCurrent", 4000, driver.context_set_current);
    binder.bind("cuMemcpy", 4000, driver.copy);
    binder.bind("cuMemcpyAsync", 4000, driver.copy_async);
    binder.bind("cuMemAlloc", 3020, driver.memory_allocate);
    binder.bind("cuMemFree", 3020, driver.memory_free);
    binder.bind("cuMemAddressReserve", 10020, driver.address_reserve);
    binder.bind("cuMemAddressFree", 10020, driver.address_free);
    binder.bind("cuMemCreate", 10020, driver.allocation_create);
    binder.bind("cuMemRelease", 10020, driver.allocation_release);
    binder.bind("cuMemMap", 10020, driver.allocation_map);
    binder.bind("cuMemUnmap", 10020, driver.allocation_unmap);
    binder.bind("cuMemSetAccess", 10020, driver.allocation_set_access);
    binder.bind("cuCtxEnablePeerAccess", 4000, driver.context_enable_peer);
    binder.bind("cuStreamCreate", 2000, driver.stream_create);
    binder.bind("cuStreamDestroy", 4000, driver.stream_destroy);
    binder.bind("cuMemHostRegister", 6050, driver.host_register);
    binder.bind("cuMemHostUnregister", 4000, driver.host_unregister);
    binder.bind("cuStreamSynchronize", 2000, driver.stream_synchronize);
    CudaDriver::check(driver.init(0), "cuInit");
    return driver;
}

}  // namespace

const CudaDriver& CudaDriver::get() {
    static const CudaDriver instance = open_driver();
    return instance;
}

void CudaDriver::check(int result, const char* what) {
    if (result != 0) throw std::runtime_error(fmt::format("CUDA: {} gives error {}", what, result));
}

}  // namespace tools
