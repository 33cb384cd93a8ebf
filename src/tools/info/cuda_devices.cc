// SPDX-License-Identifier: BSD-3-Clause
#include "tools/info/cuda_devices.h"

#include <fmt/format.h>

#include <iterator>
#include <stdexcept>

#include "tools/common/cuda_driver.h"

namespace tools {
namespace {

constexpr int kPciBus = 33, kPciDevice = 34, kPciDomain = 50;  // CUdevice_attribute
constexpr int kNativeAtomics = 3;                              // CUdevice_P2PAttribute

int attribute(const CudaDriver& cuda, int which, int device) {
    int value = 0;
    CudaDriver::check(cuda.device_get_attribute(&value, which, device), "cuDeviceGetAttribute");
    return value;
}

std::string link(const CudaDriver& cuda, int from, int to) {
    int reaches = 0;
    int has_atomics = 0;
    CudaDriver::check(cuda.device_can_access_peer(&reaches, from, to), "cuDeviceCanAccessPeer");
    if (reaches == 0) return "not reached: messages are staged through host memory";
    CudaDriver::check(cuda.device_get_p2p_attribute(&has_atomics, kNativeAtomics, from, to),
                      "cuDeviceGetP2PAttribute");
    return has_atomics != 0 ? "reached directly, atomic operations included, as over NVLink"
                            : "reached directly, without atomic operations, as over PCIe";
}

std::string describe() {
    const CudaDriver& cuda = CudaDriver::get();
    int count = 0;
    CudaDriver::check(cuda.device_get_count(&count), "cuDeviceGetCount");
    std::string text;
    auto out = std::back_inserter(text);
    for (int device = 0; device < count; ++device) {
        char name[256] = {};
        size_t memory = 0;
        CudaDriver::check(cuda.device_get_name(name, sizeof(name), device), "cuDeviceGetName");
        CudaDriver::check(cuda.device_total_memory(&memory, device), "cuDeviceTotalMem");
        fmt::format_to(out, "#   CUDA device {}  :  {}, {} MiB, PCI {:04x}:{:02x}:{:02x}\n", device,
                       static_cast<const char*>(name), memory >> 20,
                       attribute(cuda, kPciDomain, device), attribute(cuda, kPciBus, device),
                       attribute(cuda, kPciDevice, device));
        for (int other = 0; other < count; ++other) {
            if (other == device) continue;
            fmt::format_to(out, "#                     device {}: {}\n", other,
                           link(cuda, device, other));
        }
    }
    return text;
}

}  // namespace

std::string describe_cuda_devices() {
    try {
        return describe() + "#\n";
    } catch (const std::runtime_error& error) {
        return fmt::format("#   CUDA devices  :  none: {}\n#\n", error.what());
    }
}

}  // namespace tools
