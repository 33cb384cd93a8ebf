// SPDX-License-Identifier: BSD-3-Clause
#include "uct/cuda/exports.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "ucs/log/log.h"
#include "ucs/runtime/runtime.h"

namespace uct::cuda {

Exports::Exports(CopyEngine& engine)
    : engine_(engine),
      driver_(engine.driver()),
      process_(ucs::unique_id()),
      token_(ucs::unique_id()),
      descriptors_(process_, token_) {}

bool Exports::describe(const void* address, size_t length, const ucs::MemoryInfo* known,
                       ucs::MemoryExport& description) {
    // What this thread described last by a handle of the driver's, which stays what it is.
    thread_local ucs::MemoryExport last{};
    const auto place = reinterpret_cast<uintptr_t>(address);
    const uint64_t buffer =
        known != nullptr && known->allocation != 0 ? known->allocation : engine_.number_at(address);
    if (buffer == 0) return false;
    if (last.buffer != buffer) {
        if (!describe_whole(address, buffer, description)) return false;
        if (description.has_handle == static_cast<uint16_t>(HandleKind::kLegacy))
            last = description;
    } else {
        description = last;
    }
    const uint64_t offset = place - description.base;
    if (offset > description.size || length > description.size - offset) return false;
    description.offset = offset;
    return true;
}

// The allocation with that number, in which the address lies.
bool Exports::describe_whole(const void* address, uint64_t buffer, ucs::MemoryExport& description) {
    std::lock_guard lock(mutex_);
    const auto known = known_.find(buffer);
    // What was given up, and is asked for, is offered anew.
    if (known != known_.end() && !descriptors_.is_wanted(buffer)) {
        description = known->second;
        return true;
    }
    const CopyEngine::Found found = engine_.look_up(address);
    if (found.type == UCS_MEMORY_TYPE_HOST) return false;
    description = describe_allocation(found, buffer);
    if (known_.size() >= limit_) forget_freed();
    known_.insert_or_assign(buffer, description);
    return true;
}

ucs::MemoryExport Exports::describe_allocation(const CopyEngine::Found& found, uint64_t buffer) {
    // Whatever is current on this thread: of pools the driver says nothing without a context.
    std::optional<CurrentContext> current;
    CopyContext* const context = found.context != nullptr ? nullptr : engine_.context_of(found);
    if (context != nullptr) current.emplace(driver_, context->handle());
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
    description.token = token_;
    description.has_handle = static_cast<uint16_t>(take_handle(found, description));
    return description;
}

HandleKind Exports::take_handle(const CopyEngine::Found& found, ucs::MemoryExport& description) {
    if (found.type != UCS_MEMORY_TYPE_CUDA) return HandleKind::kNone;
    if (found.context != nullptr) return take_legacy(found, description);
    uint64_t kinds = 0;
    abi::Pool pool = nullptr;
    (void)driver_.ask(abi::kPointerHandleTypes, found.base, &kinds);
    (void)driver_.ask(abi::kPointerPool, found.base, &pool);
    if (pool != nullptr) return take_of_pool(pool, kinds, description);
    return take_virtual(kinds, description);
}

HandleKind Exports::refused(abi::Result result, const ucs::MemoryExport& description) const {
    ucs::log_info("{} bytes of CUDA memory cannot be opened by other processes: {}",
                  description.size, driver_.name_of(result));
    return HandleKind::kNone;
}

HandleKind Exports::take_legacy(const CopyEngine::Found& found, ucs::MemoryExport& description) {
    // Whatever is current on this thread: the driver wants a context.
    CurrentContext current(driver_, found.context);
    abi::Result result = current.result();
    abi::IpcHandle handle{};
    if (result == abi::kSuccess) result = driver_.ipc_get_handle(&handle, found.base);
    if (result != abi::kSuccess) return refused(result, description);
    static_assert(sizeof(handle) == sizeof(description.handle));
    std::memcpy(description.handle, handle.reserved, sizeof(description.handle));
    return HandleKind::kLegacy;
}

HandleKind Exports::take_virtual(uint64_t kinds, ucs::MemoryExport& description) {
    if ((kinds & (abi::kHandleDescriptor | abi::kHandleFabric)) == 0) return HandleKind::kNone;
    abi::AllocationHandle allocation = 0;
    abi::Result result =
        driver_.allocation_retain(&allocation, reinterpret_cast<void*>(description.base));
    if (result != abi::kSuccess) return refused(result, description);
    HandleKind kind = HandleKind::kNone;
    if ((kinds & abi::kHandleDescriptor) != 0) {
        int descriptor = -1;
        result = driver_.allocation_export(&descriptor, allocation, abi::kHandleDescriptor, 0);
        if (result == abi::kSuccess &&
            descriptors_.offer(description.buffer, ucs::Descriptor(descriptor)))
            kind = HandleKind::kDescriptor;
    } else {
        abi::FabricHandle handle{};
        static_assert(sizeof(handle) == sizeof(description.handle));
        result = driver_.allocation_export(&handle, allocation, abi::kHandleFabric, 0);
        if (result == abi::kSuccess) {
            std::memcpy(description.handle, handle.data, sizeof(description.handle));
            kind = HandleKind::kFabric;
        }
    }
    (void)driver_.allocation_release(allocation);
    return result == abi::kSuccess ? kind : refused(result, description);
}

HandleKind Exports::take_of_pool(abi::Pool pool, uint64_t kinds, ucs::MemoryExport& description) {
    if ((kinds & abi::kHandleDescriptor) == 0) return HandleKind::kNone;
    // In this order: places are given out of pools that were exported.
    int descriptor = -1;
    abi::Result result = driver_.pool_export(&descriptor, pool, abi::kHandleDescriptor, 0);
    if (result != abi::kSuccess) return refused(result, description);
    abi::PoolPointer place{};
    static_assert(sizeof(place) == sizeof(description.handle));
    result = driver_.pool_export_pointer(&place, description.base);
    if (result != abi::kSuccess) {
        close(descriptor);
        return refused(result, description);
    }
    if (!descriptors_.offer(description.buffer, ucs::Descriptor(descriptor)))
        return HandleKind::kNone;
    std::memcpy(description.handle, place.reserved, sizeof(description.handle));
    description.group = reinterpret_cast<uintptr_t>(pool);
    return HandleKind::kPool;
}

void Exports::forget(uint64_t buffer) {
    std::lock_guard lock(mutex_);
    const auto known = known_.find(buffer);
    if (known == known_.end() || driver_.allocation_at(known->second.base) == buffer) return;
    descriptors_.withdraw(buffer);
    known_.erase(known);
}

void Exports::forget_freed() {
    std::erase_if(known_, [this](const auto& known) {
        if (driver_.allocation_at(known.second.base) == known.first) return false;
        descriptors_.withdraw(known.first);
        return true;
    });
    limit_ = std::max(kMany, known_.size() * 2);
}

}  // namespace uct::cuda
