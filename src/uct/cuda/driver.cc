// SPDX-License-Identifier: BSD-3-Clause
#include "uct/cuda/driver.h"

#include <dlfcn.h>

#include <cstring>
#include <iterator>

#include "ucs/log/log.h"

namespace uct::cuda {

namespace {

constexpr int kOldest = 12000;

struct Entry {
    const char* name;
    int version;  //!< 1000 * major + 10 * minor, of the signature in the header
    size_t place;
    bool is_optional = false;
};

constexpr Entry kEntries[] = {
    {"cuGetErrorName", 6000, offsetof(Driver, get_error_name)},
    {"cuGetErrorString", 6000, offsetof(Driver, get_error_string)},
    {"cuInit", 2000, offsetof(Driver, init)},
    {"cuDriverGetVersion", 2020, offsetof(Driver, driver_get_version)},
    {"cuDeviceGetCount", 2000, offsetof(Driver, device_get_count)},
    {"cuDeviceGetName", 2000, offsetof(Driver, device_get_name)},
    {"cuDeviceGetUuid", 11040, offsetof(Driver, device_get_uuid)},
    {"cuDeviceGetAttribute", 2000, offsetof(Driver, device_get_attribute)},
    {"cuDeviceTotalMem", 3020, offsetof(Driver, device_total_memory)},
    {"cuDeviceCanAccessPeer", 4000, offsetof(Driver, device_can_access_peer)},
    {"cuDevicePrimaryCtxRetain", 7000, offsetof(Driver, primary_context_retain)},
    {"cuDevicePrimaryCtxRelease", 11000, offsetof(Driver, primary_context_release)},
    {"cuDevicePrimaryCtxGetState", 7000, offsetof(Driver, primary_context_state)},
    {"cuCtxCreate", 3020, offsetof(Driver, context_create)},
    {"cuCtxDestroy", 4000, offsetof(Driver, context_destroy)},
    {"cuCtxPushCurrent", 4000, offsetof(Driver, context_push)},
    {"cuCtxPopCurrent", 4000, offsetof(Driver, context_pop)},
    {"cuCtxSetCurrent", 4000, offsetof(Driver, context_set)},
    {"cuCtxGetCurrent", 4000, offsetof(Driver, context_get)},
    {"cuCtxGetDevice", 2000, offsetof(Driver, context_get_device)},
    {"cuCtxGetId", 12000, offsetof(Driver, context_get_id)},
    {"cuCtxSynchronize", 2000, offsetof(Driver, context_synchronize)},
    {"cuCtxEnablePeerAccess", 4000, offsetof(Driver, context_enable_peer)},
    {"cuPointerGetAttributes", 7000, offsetof(Driver, pointer_get_attributes)},
    {"cuMemAlloc", 3020, offsetof(Driver, memory_allocate)},
    {"cuMemFree", 3020, offsetof(Driver, memory_free)},
    {"cuMemGetInfo", 3020, offsetof(Driver, memory_get_info)},
    {"cuMemGetAddressRange", 3020, offsetof(Driver, memory_get_range)},
    {"cuMemAllocManaged", 6000, offsetof(Driver, memory_allocate_managed)},
    {"cuMemAllocAsync", 11020, offsetof(Driver, memory_allocate_async)},
    {"cuMemFreeAsync", 11020, offsetof(Driver, memory_free_async)},
    {"cuMemHostAlloc", 2020, offsetof(Driver, host_allocate)},
    {"cuMemFreeHost", 2000, offsetof(Driver, host_free)},
    {"cuMemHostRegister", 6050, offsetof(Driver, host_register)},
    {"cuMemHostUnregister", 4000, offsetof(Driver, host_unregister)},
    {"cuMemHostGetDevicePointer", 3020, offsetof(Driver, host_get_device_pointer)},
    {"cuMemAddressReserve", 10020, offsetof(Driver, address_reserve)},
    {"cuMemAddressFree", 10020, offsetof(Driver, address_free)},
    {"cuMemCreate", 10020, offsetof(Driver, allocation_create)},
    {"cuMemRelease", 10020, offsetof(Driver, allocation_release)},
    {"cuMemMap", 10020, offsetof(Driver, allocation_map)},
    {"cuMemUnmap", 10020, offsetof(Driver, allocation_unmap)},
    {"cuMemSetAccess", 10020, offsetof(Driver, allocation_set_access)},
    {"cuMemRetainAllocationHandle", 11000, offsetof(Driver, allocation_retain)},
    {"cuMemExportToShareableHandle", 10020, offsetof(Driver, allocation_export)},
    {"cuMemImportFromShareableHandle", 10020, offsetof(Driver, allocation_import)},
    {"cuMemPoolCreate", 11020, offsetof(Driver, pool_create)},
    {"cuMemPoolDestroy", 11020, offsetof(Driver, pool_destroy)},
    {"cuMemAllocFromPoolAsync", 11020, offsetof(Driver, pool_allocate)},
    {"cuMemPoolSetAccess", 11020, offsetof(Driver, pool_set_access)},
    {"cuMemPoolExportToShareableHandle", 11020, offsetof(Driver, pool_export)},
    {"cuMemPoolImportFromShareableHandle", 11020, offsetof(Driver, pool_import)},
    {"cuMemPoolExportPointer", 11020, offsetof(Driver, pool_export_pointer)},
    {"cuMemPoolImportPointer", 11020, offsetof(Driver, pool_import_pointer)},
    {"cuStreamCreate", 2000, offsetof(Driver, stream_create)},
    {"cuStreamDestroy", 4000, offsetof(Driver, stream_destroy)},
    {"cuStreamQuery", 2000, offsetof(Driver, stream_query)},
    {"cuStreamSynchronize", 2000, offsetof(Driver, stream_synchronize)},
    {"cuStreamWaitEvent", 3020, offsetof(Driver, stream_wait_event)},
    {"cuStreamWriteValue32", 11070, offsetof(Driver, stream_write_value)},
    {"cuStreamBatchMemOp", 11070, offsetof(Driver, stream_batch)},
    {"cuStreamGetCtx", 9020, offsetof(Driver, stream_get_context)},
    {"cuStreamIsCapturing", 10000, offsetof(Driver, stream_is_capturing)},
    {"cuThreadExchangeStreamCaptureMode", 10010, offsetof(Driver, exchange_capture_mode)},
    {"cuEventCreate", 2000, offsetof(Driver, event_create)},
    {"cuEventDestroy", 4000, offsetof(Driver, event_destroy)},
    {"cuEventRecord", 2000, offsetof(Driver, event_record)},
    {"cuEventQuery", 2000, offsetof(Driver, event_query)},
    {"cuEventSynchronize", 2000, offsetof(Driver, event_synchronize)},
    {"cuMemcpy", 4000, offsetof(Driver, copy)},
    {"cuMemcpyAsync", 4000, offsetof(Driver, copy_async)},
    {"cuMemsetD8", 3020, offsetof(Driver, set_bytes)},
    {"cuModuleLoadData", 2000, offsetof(Driver, module_load)},
    {"cuModuleUnload", 2000, offsetof(Driver, module_unload)},
    {"cuModuleGetFunction", 2000, offsetof(Driver, module_get_function)},
    {"cuFuncLoad", 12040, offsetof(Driver, function_load), true},
    {"cuLaunchKernel", 4000, offsetof(Driver, launch)},
    {"cuIpcGetMemHandle", 4010, offsetof(Driver, ipc_get_handle)},
    {"cuIpcOpenMemHandle", 11000, offsetof(Driver, ipc_open)},
    {"cuIpcCloseMemHandle", 4010, offsetof(Driver, ipc_close)},
};

static_assert(std::size(kEntries) == sizeof(Driver) / sizeof(void (*)()), "each function is bound");

using GetAddress = abi::Result (*)(const char*, void**, int, uint64_t, int*);

bool bind(Driver& driver) {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == nullptr) {
        ucs::log_debug("no CUDA here: {}", dlerror());
        return false;
    }
    const auto get_address =
        reinterpret_cast<GetAddress>(dlsym(library, "cuGetProcAddress_v2"));  // since 12.0
    if (get_address == nullptr) {
        ucs::log_info("the CUDA driver is older than 12.0: device memory is not supported");
        return false;
    }
    for (const Entry& entry : kEntries) {
        void* address = nullptr;
        int found = 0;
        const abi::Result result = get_address(entry.name, &address, entry.version, 0, &found);
        if ((result != abi::kSuccess || address == nullptr) && !entry.is_optional) {
            ucs::log_warn("the CUDA driver has no {} of version {}: device memory is not supported",
                          entry.name, entry.version);
            return false;
        }
        std::memcpy(reinterpret_cast<char*>(&driver) + entry.place, &address, sizeof(address));
    }
    int version = 0;
    if (driver.driver_get_version(&version) != abi::kSuccess || version < kOldest) return false;
    ucs::log_debug("CUDA driver of version {}.{}", version / 1000, version % 1000 / 10);
    return true;
}

}  // namespace

const Driver* Driver::get() {
    static Driver driver{};
    static const bool is_bound = bind(driver);
    return is_bound ? &driver : nullptr;
}

const char* Driver::name_of(abi::Result result) const {
    const char* name = nullptr;
    return get_error_name(result, &name) == abi::kSuccess && name != nullptr ? name
                                                                             : "unknown error";
}

bool Driver::is_initialized() const {
    int count = 0;
    return device_get_count(&count) == abi::kSuccess && count > 0;
}

ucs_status_t to_status(abi::Result result) {
    switch (result) {
        case abi::kSuccess:
            return UCS_OK;
        case abi::kNotReady:
            return UCS_INPROGRESS;
        case abi::kOutOfMemory:
            return UCS_ERR_NO_MEMORY;
        case abi::kInvalidValue:
        case abi::kIllegalAddress:
            return UCS_ERR_INVALID_ADDR;
        case abi::kNotInitialized:
        case abi::kNoDevice:
        case abi::kInvalidDevice:
            return UCS_ERR_NO_DEVICE;
        case abi::kNotSupported:
            return UCS_ERR_UNSUPPORTED;
        default:
            return UCS_ERR_IO_ERROR;
    }
}

CurrentContext::CurrentContext(const Driver& driver, abi::Context context) : driver_(driver) {
    abi::Context current = nullptr;
    if (driver.context_get(&current) == abi::kSuccess && current == context) return;
    result_ = driver.context_push(context);
    is_pushed_ = result_ == abi::kSuccess;
}

CurrentContext::~CurrentContext() {
    abi::Context popped = nullptr;
    if (is_pushed_) (void)driver_.context_pop(&popped);
}

}  // namespace uct::cuda
