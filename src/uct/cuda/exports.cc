// SPDX-License-Identifier: BSD-3-Clause
#include "uct/cuda/exports.h"

#include <algorithm>
#include <cstring>

#include "ucs/log/log.h"
#include "ucs/runtime/runtime.h"

namespace uct::cuda {

Exports::Exports(CopyEngine& engine)
    : engine_(engine), driver_(engine.driver()), process_(ucs::unique_id()) {}

uint64_t Exports::buffer_at(const Driver& driver, abi::DevicePointer address) {
    unsigned long long number = 0;
    return driver.ask(abi::kPointerBufferId, address, &number) ? number : 0;
}

bool Exports::describe(const void* address, size_t length, ucs::MemoryExport& description) {
    const auto place = reinterpret_cast<uintptr_t>(address);
    const uint64_t buffer = buffer_at(driver_, place);
    if (buffer == 0) return false;
    std::lock_guard lock(mutex_);
    const auto known = known_.find(buffer);
    if (known != known_.end()) {
        description = known->second;
    } else {
        const CopyEngine::Found found = engine_.look_up(address);
        if (found.type == UCS_MEMORY_TYPE_HOST) return false;
        description = describe_allocation(found, buffer);
        if (known_.size() >= limit_) forget_freed();
        known_.emplace(buffer, description);
    }
    const uint64_t offset = place - description.base;
    if (offset > description.size || length > description.size - offset) return false;
    description.offset = offset;
    return true;
}

ucs::MemoryExport Exports::describe_allocation(const CopyEngine::Found& found, uint64_t buffer) {
    ucs::MemoryExport description{};
    description.type = UCS_MEMORY_TYPE_CUDA;
    description.version = ucs::kMemoryExportVersion;
    description.process = process_;
    description.buffer = buffer;
    description.size = found.length;
    description.base = found.base;
    abi::Uuid uuid{};
    (void)driver_.device_get_uuid(&uuid, found.device);
    std::memcpy(description.device, uuid.bytes, sizeof(description.device));
    if (found.type == UCS_MEMORY_TYPE_CUDA && found.context != nullptr)
        description.has_handle = take_handle(found, description.handle) ? 1 : 0;
    return description;
}

bool Exports::take_handle(const CopyEngine::Found& found, char (&bytes)[64]) {
    // Whatever is current on this thread: the driver wants a context.
    CurrentContext current(driver_, found.context);
    abi::Result result = current.result();
    abi::IpcHandle handle{};
    if (result == abi::kSuccess) result = driver_.ipc_get_handle(&handle, found.base);
    if (result != abi::kSuccess) {
        ucs::log_info("{} bytes of CUDA device {} cannot be opened by other processes: {}",
                      found.length, found.device, driver_.name_of(result));
        return false;
    }
    static_assert(sizeof(handle) == sizeof(bytes));
    std::memcpy(bytes, handle.reserved, sizeof(bytes));
    return true;
}

void Exports::forget_freed() {
    std::erase_if(known_, [this](const auto& known) {
        return buffer_at(driver_, known.second.base) != known.first;
    });
    limit_ = std::max(kMany, known_.size() * 2);
}

}  // namespace uct::cuda
