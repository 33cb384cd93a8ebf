// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "ucs/type/status.h"
#include "uct/cuda/abi.h"

namespace uct::cuda {

/**
 * The functions of libcuda.so.1 that are used, each at the version that its signature belongs to,
 * however new the driver is. Opening the library starts nothing: cuInit() is the program's.
 */
struct Driver {
    /** Null: there is no driver, or it is older than CUDA 12.0. Said once, in the log. */
    static const Driver* get();

    abi::Result (*get_error_name)(abi::Result, const char**);
    abi::Result (*get_error_string)(abi::Result, const char**);
    abi::Result (*init)(unsigned flags);
    abi::Result (*driver_get_version)(int*);

    abi::Result (*device_get_count)(int*);
    abi::Result (*device_get_name)(char*, int, abi::Device);
    abi::Result (*device_get_uuid)(abi::Uuid*, abi::Device);
    abi::Result (*device_get_attribute)(int*, abi::DeviceAttribute, abi::Device);
    abi::Result (*device_total_memory)(size_t*, abi::Device);
    abi::Result (*device_can_access_peer)(int*, abi::Device, abi::Device);

    abi::Result (*primary_context_retain)(abi::Context*, abi::Device);
    abi::Result (*primary_context_release)(abi::Device);
    abi::Result (*primary_context_state)(abi::Device, unsigned*, int*);
    abi::Result (*context_create)(abi::Context*, unsigned, abi::Device);
    abi::Result (*context_destroy)(abi::Context);
    abi::Result (*context_push)(abi::Context);
    abi::Result (*context_pop)(abi::Context*);
    abi::Result (*context_set)(abi::Context);
    abi::Result (*context_get)(abi::Context*);
    abi::Result (*context_get_device)(abi::Device*);
    abi::Result (*context_get_id)(abi::Context, unsigned long long*);
    abi::Result (*context_synchronize)();
    abi::Result (*context_enable_peer)(abi::Context, unsigned);

    abi::Result (*pointer_get_attributes)(unsigned, abi::PointerAttribute*, void**,
                                          abi::DevicePointer);

    abi::Result (*memory_allocate)(abi::DevicePointer*, size_t);
    abi::Result (*memory_free)(abi::DevicePointer);
    abi::Result (*memory_get_info)(size_t*, size_t*);
    abi::Result (*memory_get_range)(abi::DevicePointer*, size_t*, abi::DevicePointer);
    abi::Result (*memory_allocate_managed)(abi::DevicePointer*, size_t, unsigned);
    abi::Result (*memory_allocate_async)(abi::DevicePointer*, size_t, abi::Stream);
    abi::Result (*memory_free_async)(abi::DevicePointer, abi::Stream);
    abi::Result (*host_allocate)(void**, size_t, unsigned);
    abi::Result (*host_free)(void*);
    abi::Result (*host_register)(void*, size_t, unsigned);
    abi::Result (*host_unregister)(void*);
    abi::Result (*host_get_device_pointer)(abi::DevicePointer*, void*, unsigned);

    abi::Result (*address_reserve)(abi::DevicePointer*, size_t, size_t, abi::DevicePointer,
                                   unsigned long long);
    abi::Result (*address_free)(abi::DevicePointer, size_t);
    abi::Result (*allocation_create)(abi::AllocationHandle*, size_t,
                                     const abi::AllocationProperties*, unsigned long long);
    abi::Result (*allocation_release)(abi::AllocationHandle);
    abi::Result (*allocation_map)(abi::DevicePointer, size_t, size_t, abi::AllocationHandle,
                                  unsigned long long);
    abi::Result (*allocation_unmap)(abi::DevicePointer, size_t);
    abi::Result (*allocation_set_access)(abi::DevicePointer, size_t, const abi::AccessDescriptor*,
                                         size_t);
    /** The allocation that is mapped at an address: one more reference to it. */
    abi::Result (*allocation_retain)(abi::AllocationHandle*, void*);
    abi::Result (*allocation_export)(void*, abi::AllocationHandle, int, unsigned long long);
    abi::Result (*allocation_import)(abi::AllocationHandle*, void*, int);

    abi::Result (*pool_create)(abi::Pool*, const abi::PoolProperties*);
    abi::Result (*pool_destroy)(abi::Pool);
    abi::Result (*pool_allocate)(abi::DevicePointer*, size_t, abi::Pool, abi::Stream);
    abi::Result (*pool_set_access)(abi::Pool, const abi::AccessDescriptor*, size_t);
    abi::Result (*pool_export)(void*, abi::Pool, int, unsigned long long);
    abi::Result (*pool_import)(abi::Pool*, void*, int, unsigned long long);
    abi::Result (*pool_export_pointer)(abi::PoolPointer*, abi::DevicePointer);
    abi::Result (*pool_import_pointer)(abi::DevicePointer*, abi::Pool, abi::PoolPointer*);

    abi::Result (*stream_create)(abi::Stream*, unsigned);
    abi::Result (*stream_destroy)(abi::Stream);
    abi::Result (*stream_query)(abi::Stream);
    abi::Result (*stream_synchronize)(abi::Stream);
    abi::Result (*stream_wait_event)(abi::Stream, abi::Event, unsigned);
    abi::Result (*stream_write_value)(abi::Stream, abi::DevicePointer, uint32_t, unsigned);
    abi::Result (*stream_batch)(abi::Stream, unsigned, abi::StreamBatchEntry*, unsigned);
    abi::Result (*stream_get_context)(abi::Stream, abi::Context*);
    abi::Result (*stream_is_capturing)(abi::Stream, unsigned*);
    abi::Result (*exchange_capture_mode)(unsigned*);  //!< of this thread
    abi::Result (*event_create)(abi::Event*, unsigned);
    abi::Result (*event_destroy)(abi::Event);
    abi::Result (*event_record)(abi::Event, abi::Stream);
    abi::Result (*event_query)(abi::Event);
    abi::Result (*event_synchronize)(abi::Event);

    abi::Result (*copy)(abi::DevicePointer, abi::DevicePointer, size_t);
    abi::Result (*copy_async)(abi::DevicePointer, abi::DevicePointer, size_t, abi::Stream);
    abi::Result (*set_bytes)(abi::DevicePointer, unsigned char, size_t);

    abi::Result (*module_load)(abi::Module*, const void*);
    abi::Result (*module_unload)(abi::Module);
    abi::Result (*module_get_function)(abi::Function*, abi::Module, const char*);
    abi::Result (*function_load)(abi::Function);  //!< null before CUDA 12.4
    abi::Result (*launch)(abi::Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                          unsigned, abi::Stream, void**, void**);

    abi::Result (*ipc_get_handle)(abi::IpcHandle*, abi::DevicePointer);
    abi::Result (*ipc_open)(abi::DevicePointer*, abi::IpcHandle, unsigned);
    abi::Result (*ipc_close)(abi::DevicePointer);

    /** One attribute of an address, whatever context is current, or none. */
    template <typename T>
    bool ask(abi::PointerAttribute attribute, abi::DevicePointer address, T* value) const {
        void* values[] = {value};
        return pointer_get_attributes(1, &attribute, values, address) == abi::kSuccess;
    }
    /** "CUDA_ERROR_ILLEGAL_ADDRESS", for the log. */
    const char* name_of(abi::Result result) const;
    /** False until somebody in this process has called cuInit(). */
    bool is_initialized() const;
};

ucs_status_t to_status(abi::Result result);

/** Makes a context current on this thread for the life of the object, if it is not already. */
class CurrentContext {
  public:
    CurrentContext(const Driver& driver, abi::Context context);
    ~CurrentContext();
    CurrentContext(const CurrentContext&) = delete;
    CurrentContext& operator=(const CurrentContext&) = delete;
    abi::Result result() const { return result_; }

  private:
    const Driver& driver_;
    abi::Result result_ = abi::kSuccess;
    bool is_pushed_ = false;
};

}  // namespace uct::cuda
