// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <string>

#include "uct/cuda/driver.h"

namespace tools {

// The CUDA driver, started. Throws std::runtime_error if there is none.
const uct::cuda::Driver& cuda_driver();
// Throws std::runtime_error unless the result is 0.
void check_cuda(uct::cuda::abi::Result result, const char* what);

// Where a process has its messages: "host", "cuda" or "cuda:DEVICE"; "pinned" is host memory that
// the process has registered with the CUDA driver, "vmm" or "vmm:DEVICE" memory of a device by
// virtual memory management, made to be shared.
struct MemoryPlace {
    bool is_device = false;
    bool is_pinned = false;
    bool is_virtual = false;  // is_device, too
    int device = -1;          // -1: the first one; the target takes the second one, if there is one

    // Throws std::invalid_argument for other words.
    static MemoryPlace parse(const std::string& text);
};

// The CUDA driver as a program uses it: a primary context, and copies that have ended on return.
class CudaDevice {
  public:
    // Makes the device's primary context and has it current on this thread. Throws
    // std::runtime_error if there is no such device.
    CudaDevice(const MemoryPlace& place, bool is_initiator);
    CudaDevice(const CudaDevice&) = delete;

    // Messages lie in host memory that is pinned.
    bool is_pinned() const { return place_.is_pinned; }
    bool is_virtual() const { return place_.is_virtual; }
    void make_current() const;
    // Have the devices reach each other's memory, where they can.
    static void connect(const CudaDevice& first, const CudaDevice& second);
    // Until unpin().
    void pin(void* address, size_t length) const;
    void unpin(void* address) const;
    // Memory of the device, by virtual memory management if the place says so. Until free().
    std::byte* allocate(size_t length) const;
    void free(void* memory, size_t length) const;
    // Either side or both may be device memory. Any thread.
    void copy(void* to, const void* from, size_t length) const;

  private:
    std::byte* allocate_virtual(size_t length) const;

    const MemoryPlace place_;
    int number_ = 0;
    uct::cuda::abi::Context context_ = nullptr;
};

}  // namespace tools
