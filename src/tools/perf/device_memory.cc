// SPDX-License-Identifier: BSD-3-Clause
#include "tools/perf/device_memory.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <stdexcept>

namespace tools::perf {
namespace {

// The driver's functions, of the signatures that they have since CUDA 4.
struct Driver {
    int (*init)(unsigned);
    int (*device_get_count)(int*);
    int (*primary_context_retain)(void**, int);
    int (*context_set_current)(void*);
    int (*copy)(uint64_t, uint64_t, size_t);
    int (*stream_synchronize)(void*);
};

template <typename Function>
void bind(void* library, const char* name, Function& function) {
    using GetAddress = int (*)(const char*, void**, int, uint64_t, int*);
    const auto get_address = reinterpret_cast<GetAddress>(dlsym(library, "cuGetProcAddress_v2"));
    void* address = nullptr;
    if (get_address == nullptr || get_address(name, &address, 12000, 0, nullptr) != 0 ||
        address == nullptr) {
        throw std::runtime_error(fmt::format("the CUDA driver has no {}", name));
    }
    function = reinterpret_cast<Function>(address);
}

Driver load() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NODELETE);
    if (library == nullptr) throw std::runtime_error(fmt::format("no CUDA here: {}", dlerror()));
    Driver driver{};
    bind(library, "cuInit", driver.init);
    bind(library, "cuDeviceGetCount", driver.device_get_count);
    bind(library, "cuDevicePrimaryCtxRetain", driver.primary_context_retain);
    bind(library, "cuCtxSetCurrent", driver.context_set_current);
    bind(library, "cuMemcpy", driver.copy);
    bind(library, "cuStreamSynchronize", driver.stream_synchronize);
    return driver;
}

const Driver& driver() {
    static const Driver instance = load();
    return instance;
}

void check(int result, const char* what) {
    if (result != 0) throw std::runtime_error(fmt::format("CUDA: {} gives error {}", what, result));
}

}  // namespace

MemoryPlace MemoryPlace::parse(const std::string& text) {
    if (text == "host") return {};
    MemoryPlace place{true, -1};
    if (text == "cuda") return place;
    const char* const end = text.data() + text.size();
    if (text.starts_with("cuda:")) {
        const auto [rest, error] = std::from_chars(text.data() + 5, end, place.device);
        if (error == std::errc() && rest == end && place.device >= 0) return place;
    }
    throw std::invalid_argument(fmt::format("'{}' is neither host, cuda nor cuda:DEVICE", text));
}

Device::Device(const MemoryPlace& place, bool is_initiator) {
    int count = 0;
    check(driver().init(0), "cuInit");
    check(driver().device_get_count(&count), "cuDeviceGetCount");
    const int device = place.device >= 0 ? place.device : (is_initiator || count < 2 ? 0 : 1);
    if (device >= count)
        throw std::runtime_error(
            fmt::format("there is no CUDA device {}: {} in all", device, count));
    check(driver().primary_context_retain(&context_, device), "cuDevicePrimaryCtxRetain");
    check(driver().context_set_current(context_), "cuCtxSetCurrent");
}

void Device::copy(void* to, const void* from, size_t length) const {
    if (length == 0) return;
    check(driver().context_set_current(context_), "cuCtxSetCurrent");
    check(driver().copy(reinterpret_cast<uintptr_t>(to), reinterpret_cast<uintptr_t>(from), length),
          "cuMemcpy");
    // From pageable memory it returns before the bytes have landed.
    check(driver().stream_synchronize(nullptr), "cuStreamSynchronize");
}

}  // namespace tools::perf
