// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

namespace tools {

struct CudaLocation {
    int type;  // kDevice
    int device;
    static constexpr int kDevice = 1;
};

// CUmemAllocationProp.
struct CudaAllocation {
    int type = 1;          // pinned
    int handle_types = 1;  // may leave the process as a file descriptor
    CudaLocation location{};
    void* unused = nullptr;
    uint64_t flags = 0;
};

// CUmemAccessDesc.
struct CudaAccess {
    CudaLocation location{};
    int flags = 3;  // read and write
};

// The functions of the CUDA driver that the tools call for themselves, of the versions named.
struct CudaDriver {
    // Opens libcuda.so.1 and starts the driver, once. Throws std::runtime_error if there is none.
    static const CudaDriver& get();
    // Throws std::runtime_error unless the result is 0.
    static void check(int result, const char* what);

    int (*init)(unsigned);                                                                   // 2.0
    int (*device_get_count)(int*);                                                           // 2.0
    int (*device_get_name)(char*, int, int);                                                 // 2.0
    int (*device_get_attribute)(int*, int, int);                                             // 2.0
    int (*device_total_memory)(size_t*, int);                                                // 3.2
    int (*device_can_access_peer)(int*, int, int);                                           // 4.0
    int (*device_get_p2p_attribute)(int*, int, int, int);                                    // 8.0
    int (*primary_context_retain)(void**, int);                                              // 7.0
    int (*context_set_current)(void*);                                                       // 4.0
    int (*copy)(uint64_t, uint64_t, size_t);                                                 // 4.0
    int (*copy_async)(uint64_t, uint64_t, size_t, void*);                                    // 4.0
    int (*memory_allocate)(uint64_t*, size_t);                                               // 3.2
    int (*memory_free)(uint64_t);                                                            // 3.2
    int (*address_reserve)(uint64_t*, size_t, size_t, uint64_t, unsigned long long);         // 10.2
    int (*address_free)(uint64_t, size_t);                                                   // 10.2
    int (*allocation_create)(uint64_t*, size_t, const CudaAllocation*, unsigned long long);  // 10.2
    int (*allocation_release)(uint64_t);                                                     // 10.2
    int (*allocation_map)(uint64_t, size_t, size_t, uint64_t, unsigned long long);           // 10.2
    int (*allocation_unmap)(uint64_t, size_t);                                               // 10.2
    int (*allocation_set_access)(uint64_t, size_t, const CudaAccess*, size_t);               // 10.2
    int (*context_enable_peer)(void*, unsigned);                                             // 4.0
    int (*stream_create)(void**, unsigned);                                                  // 2.0
    int (*stream_destroy)(void*);                                                            // 4.0
    int (*host_register)(void*, size_t, unsigned);                                           // 6.5
    int (*host_unregister)(void*);                                                           // 4.0
    int (*stream_synchronize)(void*);                                                        // 2.0
};

}  // namespace tools
