// SPDX-License-Identifier: BSD-3-Clause
#include "uct/cuda/driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace uct::cuda {

Driver::Driver() : library_(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) {
    constexpr int kOldest = 12000;
    int version = 0;
    if (library_ == nullptr) {
        problem_ = fmt::format("no CUDA here: {}", dlerror());
    } else if (problem_.empty() &&
               (driver_get_version(&version) != abi::kSuccess || version < kOldest)) {
        problem_ = "the CUDA driver is older than 12.0";
    }
}

Driver::Found Driver::find_if_there(const char* name, int version) const {
    using GetAddress = abi::Result (*)(const char*, void**, int, uint64_t, int*);
    if (library_ == nullptr) return {nullptr};
    const auto get_address = reinterpret_cast<GetAddress>(dlsym(library_, "cuGetProcAddress_v2"));
    void* address = nullptr;
    int found = 0;
    if (get_address == nullptr || get_address(name, &address, version, 0, &found) != abi::kSuccess)
        return {nullptr};
    return {address};
}

Driver::Found Driver::find(const char* name, int version) {
    const Found found = find_if_there(name, version);
    if (found.address == nullptr && problem_.empty())
        problem_ = fmt::format("the CUDA driver has no {} of version {}", name, version);
    return found;
}

const Driver& Driver::instance() {
    static const Driver driver;
    return driver;
}

const Driver* Driver::get() {
    return problem().empty() ? &instance() : nullptr;
}

const char* Driver::name_of(abi::Result result) const {
    const char* name = nullptr;
    return get_error_name(result, &name) == abi::kSuccess && name != nullptr ? name
                                                                             : "unknown error";
}

bool Driver::retain_in_use(abi::Context* context, abi::Device device) const {
    unsigned flags = 0;
    int is_active = 0;
    return primary_context_state(device, &flags, &is_active) == abi::kSuccess && is_active != 0 &&
           primary_context_retain(context, device) == abi::kSuccess;
}

bool Driver::get_current(abi::Context* context, abi::Device* device) const {
    return context_get(context) == abi::kSuccess && *context != nullptr &&
           context_get_device(device) == abi::kSuccess;
}

bool Driver::is_alive(abi::Context context, unsigned long long id) const {
    unsigned long long now = 0;
    return context_get_id(context, &now) == abi::kSuccess && now == id;
}

bool Driver::pin(void* memory, size_t bytes, abi::DevicePointer* on_device) const {
    constexpr unsigned kPortable = 1, kMapped = 2;
    return host_register(memory, bytes, kPortable | kMapped) == abi::kSuccess &&
           host_get_device_pointer(on_device, memory, 0) == abi::kSuccess;
}

abi::Result Driver::load_function(abi::Function* function, abi::Module module, const char* name,
                                  bool is_whole) const {
    const abi::Result result = module_get_function(function, module, name);
    return result == abi::kSuccess && is_whole && function_load != nullptr
               ? function_load(*function)
               : result;
}

bool Driver::is_initialized() const {
    if (is_initialized_.load(std::memory_order_relaxed)) return true;
    int count = 0;
    if (device_get_count(&count) != abi::kSuccess || count == 0) return false;
    is_initialized_.store(true, std::memory_order_relaxed);
    return true;
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
