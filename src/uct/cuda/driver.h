// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <string>

#include "ucs/type/status.h"
#include "uct/cuda/abi.h"

namespace uct::cuda {

// The functions of libcuda.so.1 that are used, each at the version that its signature belongs to,
// however new the driver is. Opening the library starts nothing: cuInit() is the program's.
class Driver {
    void* const library_;
    std::string problem_;

    // A function of the library, as it is since that version: 1000 * major + 10 * minor.
    struct Found {
        void* address;
        template <typename Function>
        operator Function() const {
            return reinterpret_cast<Function>(address);
        }
    };
    Found find_if_there(const char* name, int version) const;
    Found find(const char* name, int version);
    Driver();
    static const Driver& instance();

    template <typename... Arguments>
    using Call = abi::Result (*)(Arguments...);

  public:
    // Null: there is no driver that can be used.
    static const Driver* get();
    // Why there is none: it is not installed, or older than CUDA 12.0.
    static const std::string& problem() { return instance().problem_; }
    static bool is_installed() { return instance().library_ != nullptr; }

    Call<abi::Result, const char**> get_error_name = find("cuGetErrorName", 6000);
    Call<unsigned> init = find("cuInit", 2000);
    Call<int*> driver_get_version = find("cuDriverGetVersion", 2020);

    Call<int*> device_get_count = find("cuDeviceGetCount", 2000);
    Call<char*, int, abi::Device> device_get_name = find("cuDeviceGetName", 2000);
    Call<abi::Uuid*, abi::Device> device_get_uuid = find("cuDeviceGetUuid", 11040);
    Call<int*, abi::DeviceAttribute, abi::Device> device_get_attribute =
        find("cuDeviceGetAttribute", 2000);
    Call<size_t*, abi::Device> device_total_memory = find("cuDeviceTotalMem", 3020);
    Call<int*, abi::Device, abi::Device> device_can_access_peer =
        find("cuDeviceCanAccessPeer", 4000);
    Call<int*, int, abi::Device, abi::Device> device_get_p2p_attribute =
        find("cuDeviceGetP2PAttribute", 8000);

    Call<abi::Context*, abi::Device> primary_context_retain =
        find("cuDevicePrimaryCtxRetain", 7000);
    Call<abi::Device> primary_context_release = find("cuDevicePrimaryCtxRelease", 11000);
    Call<abi::Device, unsigned*, int*> primary_context_state =
        find("cuDevicePrimaryCtxGetState", 7000);
    Call<abi::Context*, unsigned, abi::Device> context_create = find("cuCtxCreate", 3020);
    Call<abi::Context> context_destroy = find("cuCtxDestroy", 4000);
    Call<abi::Context> context_push = find("cuCtxPushCurrent", 4000);
    Call<abi::Context*> context_pop = find("cuCtxPopCurrent", 4000);
    Call<abi::Context> context_set = find("cuCtxSetCurrent", 4000);
    Call<abi::Context*> context_get = find("cuCtxGetCurrent", 4000);
    Call<abi::Device*> context_get_device = find("cuCtxGetDevice", 2000);
    Call<abi::Context, unsigned long long*> context_get_id = find("cuCtxGetId", 12000);
    Call<> context_synchronize = find("cuCtxSynchronize", 2000);
    Call<abi::Context, unsigned> context_enable_peer = find("cuCtxEnablePeerAccess", 4000);

    Call<unsigned, abi::PointerAttribute*, void**, abi::DevicePointer> pointer_get_attributes =
        find("cuPointerGetAttributes", 7000);

    Call<abi::DevicePointer*, size_t> memory_allocate = find("cuMemAlloc", 3020);
    Call<abi::DevicePointer> memory_free = find("cuMemFree", 3020);
    Call<size_t*, size_t*> memory_get_info = find("cuMemGetInfo", 3020);
    Call<abi::DevicePointer*, size_t*, abi::DevicePointer> memory_get_range =
        find("cuMemGetAddressRange", 3020);
    Call<void*, abi::DevicePointer, size_t, int, unsigned long long> memory_get_handle =
        find("cuMemGetHandleForAddressRange", 11070);
    Call<abi::DevicePointer*, size_t, unsigned> memory_allocate_managed =
        find("cuMemAllocManaged", 6000);
    Call<abi::DevicePointer*, size_t, abi::Stream> memory_allocate_async =
        find("cuMemAllocAsync", 11020);
    Call<abi::DevicePointer, abi::Stream> memory_free_async = find("cuMemFreeAsync", 11020);
    Call<void**, size_t, unsigned> host_allocate = find("cuMemHostAlloc", 2020);
    Call<void*> host_free = find("cuMemFreeHost", 2000);
    Call<void*, size_t, unsigned> host_register = find("cuMemHostRegister", 6050);
    Call<void*> host_unregister = find("cuMemHostUnregister", 4000);
    Call<abi::DevicePointer*, void*, unsigned> host_get_device_pointer =
        find("cuMemHostGetDevicePointer", 3020);

    Call<abi::DevicePointer*, size_t, size_t, abi::DevicePointer, unsigned long long>
        address_reserve = find("cuMemAddressReserve", 10020);
    Call<abi::DevicePointer, size_t> address_free = find("cuMemAddressFree", 10020);
    Call<abi::AllocationHandle*, size_t, const abi::AllocationProperties*, unsigned long long>
        allocation_create = find("cuMemCreate", 10020);
    Call<abi::AllocationHandle> allocation_release = find("cuMemRelease", 10020);
    Call<abi::DevicePointer, size_t, size_t, abi::AllocationHandle, unsigned long long>
        allocation_map = find("cuMemMap", 10020);
    Call<abi::DevicePointer, size_t> allocation_unmap = find("cuMemUnmap", 10020);
    Call<abi::DevicePointer, size_t, const abi::AccessDescriptor*, size_t> allocation_set_access =
        find("cuMemSetAccess", 10020);
    // The allocation that is mapped at an address: one more reference to it.
    Call<abi::AllocationHandle*, void*> allocation_retain =
        find("cuMemRetainAllocationHandle", 11000);
    Call<void*, abi::AllocationHandle, int, unsigned long long> allocation_export =
        find("cuMemExportToShareableHandle", 10020);
    Call<abi::AllocationHandle*, void*, int> allocation_import =
        find("cuMemImportFromShareableHandle", 10020);

    Call<abi::Pool*, const abi::PoolProperties*> pool_create = find("cuMemPoolCreate", 11020);
    Call<abi::Pool> pool_destroy = find("cuMemPoolDestroy", 11020);
    Call<abi::DevicePointer*, size_t, abi::Pool, abi::Stream> pool_allocate =
        find("cuMemAllocFromPoolAsync", 11020);
    Call<abi::Pool, const abi::AccessDescriptor*, size_t> pool_set_access =
        find("cuMemPoolSetAccess", 11020);
    Call<void*, abi::Pool, int, unsigned long long> pool_export =
        find("cuMemPoolExportToShareableHandle", 11020);
    Call<abi::Pool*, void*, int, unsigned long long> pool_import =
        find("cuMemPoolImportFromShareableHandle", 11020);
    Call<abi::PoolPointer*, abi::DevicePointer> pool_export_pointer =
        find("cuMemPoolExportPointer", 11020);
    Call<abi::DevicePointer*, abi::Pool, abi::PoolPointer*> pool_import_pointer =
        find("cuMemPoolImportPointer", 11020);

    Call<abi::Stream*, unsigned> stream_create = find("cuStreamCreate", 2000);
    Call<abi::Stream> stream_destroy = find("cuStreamDestroy", 4000);
    Call<abi::Stream> stream_query = find("cuStreamQuery", 2000);
    Call<abi::Stream> stream_synchronize = find("cuStreamSynchronize", 2000);
    Call<abi::Stream, abi::Event, unsigned> stream_wait_event = find("cuStreamWaitEvent", 3020);
    Call<abi::Stream, abi::DevicePointer, uint32_t, unsigned> stream_write_value =
        find("cuStreamWriteValue32", 11070);
    Call<abi::Stream, unsigned, abi::StreamBatchEntry*, unsigned> stream_batch =
        find("cuStreamBatchMemOp", 11070);
    Call<abi::Stream, abi::Context*> stream_get_context = find("cuStreamGetCtx", 9020);
    Call<abi::Stream, unsigned*> stream_is_capturing = find("cuStreamIsCapturing", 10000);
    Call<unsigned*> exchange_capture_mode =
        find("cuThreadExchangeStreamCaptureMode", 10010);  // of this thread
    Call<abi::Event*, unsigned> event_create = find("cuEventCreate", 2000);
    Call<abi::Event> event_destroy = find("cuEventDestroy", 4000);
    Call<abi::Event, abi::Stream> event_record = find("cuEventRecord", 2000);
    Call<abi::Event> event_query = find("cuEventQuery", 2000);
    Call<abi::Event> event_synchronize = find("cuEventSynchronize", 2000);

    Call<abi::DevicePointer, abi::DevicePointer, size_t> copy = find("cuMemcpy", 4000);
    Call<abi::DevicePointer, abi::DevicePointer, size_t, abi::Stream> copy_async =
        find("cuMemcpyAsync", 4000);
    Call<abi::DevicePointer, unsigned char, size_t> set_bytes = find("cuMemsetD8", 3020);

    Call<abi::Module*, const void*> module_load = find("cuModuleLoadData", 2000);
    Call<abi::Module> module_unload = find("cuModuleUnload", 2000);
    Call<abi::Function*, abi::Module, const char*> module_get_function =
        find("cuModuleGetFunction", 2000);
    Call<abi::Function> function_load =
        find_if_there("cuFuncLoad", 12040);  // null before CUDA 12.4
    Call<abi::Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
         abi::Stream, void**, void**>
        launch = find("cuLaunchKernel", 4000);

    Call<abi::IpcHandle*, abi::DevicePointer> ipc_get_handle = find("cuIpcGetMemHandle", 4010);
    Call<abi::DevicePointer*, abi::IpcHandle, unsigned> ipc_open =
        find("cuIpcOpenMemHandle", 11000);
    Call<abi::DevicePointer> ipc_close = find("cuIpcCloseMemHandle", 4010);

    // One attribute of an address, whatever context is current, or none.
    template <typename T>
    bool ask(abi::PointerAttribute attribute, abi::DevicePointer address, T* value) const {
        void* values[] = {value};
        return pointer_get_attributes(1, &attribute, values, address) == abi::kSuccess;
    }
    // The number of the allocation at an address, which no other one gets; 0: there is none.
    uint64_t allocation_at(abi::DevicePointer address) const {
        unsigned long long number = 0;
        return ask(abi::kPointerBufferId, address, &number) ? number : 0;
    }
    // The primary context of a device, to be released. @return false: the program uses none
    bool retain_in_use(abi::Context* context, abi::Device device) const;
    // The context that is current, and its device. @return false: there is none
    bool get_current(abi::Context* context, abi::Device* device) const;
    // Is that context still the one with the id? The program may have destroyed it.
    bool is_alive(abi::Context context, unsigned long long id) const;
    // Pin pages of this process, and let the device of the current context reach them.
    bool pin(void* memory, size_t bytes, abi::DevicePointer* on_device) const;
    // A kernel of a module. @param is_whole  with what else its first launch would load
    abi::Result load_function(abi::Function* function, abi::Module module, const char* name,
                              bool is_whole) const;
    // "CUDA_ERROR_ILLEGAL_ADDRESS", for the log.
    const char* name_of(abi::Result result) const;
    // False until somebody in this process has called cuInit().
    bool is_initialized() const;

  private:
    mutable std::atomic<bool> is_initialized_{false};  // seen to be, once and for all
};

ucs_status_t to_status(abi::Result result);

// Makes a context current on this thread for the life of the object, if it is not already.
class CurrentContext {
  public:
    CurrentContext(const Driver& driver, abi::Context context);
    ~CurrentContext();
    CurrentContext(CurrentContext&&) = delete;
    abi::Result result() const { return result_; }

  private:
    const Driver& driver_;
    abi::Result result_ = abi::kSuccess;
    bool is_pushed_ = false;
};

}  // namespace uct::cuda
