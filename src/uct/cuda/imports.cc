// SPDX-License-Identifier: BSD-3-Clause
#include "uct/cuda/imports.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "uct/cuda/descriptors.h"

namespace uct::cuda {

namespace {

// The driver takes descriptors as a pointer's bits.
void* as_handle(int descriptor) {
    return reinterpret_cast<void*>(static_cast<intptr_t>(descriptor));
}

abi::Result ask_owner(const ucs::MemoryExport& owner, int* descriptor) {
    *descriptor = DescriptorServer::ask(owner.process, owner.token, owner.buffer);
    if (*descriptor >= 0) return abi::kSuccess;
    return *descriptor == -1 ? abi::kNotReady : abi::kNotFound;
}

}  // namespace

abi::Result Imports::open(const ucs::MemoryExport& owner, abi::Device device, Import* import) {
    import->kind = static_cast<HandleKind>(owner.has_handle);
    import->size = owner.size;
    switch (import->kind) {
        case HandleKind::kLegacy:
            return open_legacy(owner, import);
        case HandleKind::kFabric:
        case HandleKind::kDescriptor:
            return open_virtual(owner, device, import);
        case HandleKind::kPool:
            return open_in_pool(owner, device, import);
        case HandleKind::kNone:
            break;
    }
    return abi::kNotSupported;
}

void Imports::close(const Import& import) {
    switch (import.kind) {
        case HandleKind::kLegacy:
            (void)driver_.ipc_close(import.address);
            break;
        case HandleKind::kFabric:
        case HandleKind::kDescriptor:
            if (driver_.allocation_unmap(import.address, import.size) == abi::kSuccess)
                (void)driver_.address_free(import.address, import.size);
            break;
        case HandleKind::kPool:
            if (driver_.memory_free_async(import.address, import.pool->stream) == abi::kSuccess)
                (void)driver_.stream_synchronize(import.pool->stream);
            close_pool(*import.pool);
            break;
        case HandleKind::kNone:
            break;
    }
}

bool Imports::is_whole(const ucs::MemoryExport& owner, abi::DevicePointer address) const {
    abi::DevicePointer base = 0;
    size_t size = 0;
    return driver_.memory_get_range(&base, &size, address) == abi::kSuccess && owner.size <= size &&
           address - base <= size - owner.size;
}

abi::Result Imports::open_legacy(const ucs::MemoryExport& owner, Import* import) {
    abi::IpcHandle handle;
    std::memcpy(handle.reserved, owner.handle, sizeof(handle.reserved));
    const abi::Result result =
        driver_.ipc_open(&import->address, handle, abi::kIpcLazyEnablePeerAccess);
    if (result != abi::kSuccess || is_whole(owner, import->address)) return result;
    (void)driver_.ipc_close(import->address);
    return abi::kInvalidValue;
}

// --- virtual memory ---

abi::Result Imports::open_virtual(const ucs::MemoryExport& owner, abi::Device device,
                                  Import* import) {
    abi::AllocationHandle allocation = 0;
    abi::Result result;
    if (import->kind == HandleKind::kFabric) {
        abi::FabricHandle handle;
        std::memcpy(handle.data, owner.handle, sizeof(handle.data));
        result = driver_.allocation_import(&allocation, &handle, abi::kHandleFabric);
    } else {
        int descriptor = -1;
        result = ask_owner(owner, &descriptor);
        if (result != abi::kSuccess) return result;
        result =
            driver_.allocation_import(&allocation, as_handle(descriptor), abi::kHandleDescriptor);
        ::close(descriptor);
    }
    if (result != abi::kSuccess) return result;
    result = map(allocation, device, import);
    // What is mapped keeps the allocation.
    (void)driver_.allocation_release(allocation);
    return result;
}

// The driver refuses a size that is not the allocation's.
abi::Result Imports::map(abi::AllocationHandle allocation, abi::Device device, Import* import) {
    abi::Result result = driver_.address_reserve(&import->address, import->size, 0, 0, 0);
    if (result != abi::kSuccess) return result;
    result = driver_.allocation_map(import->address, import->size, 0, allocation, 0);
    if (result == abi::kSuccess) {
        const abi::AccessDescriptor access{{abi::kLocationDevice, device}, abi::kAccessReadWrite};
        result = driver_.allocation_set_access(import->address, import->size, &access, 1);
        if (result == abi::kSuccess) return result;
        (void)driver_.allocation_unmap(import->address, import->size);
    }
    (void)driver_.address_free(import->address, import->size);
    return result;
}

// --- pools ---

abi::Result Imports::open_pool(const ucs::MemoryExport& owner, abi::Device device,
                               Import::Pool** pool) {
    int descriptor = -1;
    abi::Result result = ask_owner(owner, &descriptor);
    if (result != abi::kSuccess) return result;
    Import::Pool made{owner.process, owner.group, device};
    result = driver_.stream_create(&made.stream, abi::kStreamNonBlocking);
    if (result == abi::kSuccess) {
        result =
            driver_.pool_import(&made.handle, as_handle(descriptor), abi::kHandleDescriptor, 0);
        if (result == abi::kSuccess) {
            const abi::AccessDescriptor access{{abi::kLocationDevice, device},
                                               abi::kAccessReadWrite};
            result = driver_.pool_set_access(made.handle, &access, 1);
            if (result != abi::kSuccess) (void)driver_.pool_destroy(made.handle);
        }
        if (result != abi::kSuccess) (void)driver_.stream_destroy(made.stream);
    }
    ::close(descriptor);
    if (result == abi::kSuccess) *pool = &pools_.emplace_front(made);
    return result;
}

void Imports::close_pool(Import::Pool& pool) {
    if (--pool.users > 0) return;
    (void)driver_.pool_destroy(pool.handle);
    (void)driver_.stream_destroy(pool.stream);
    pools_.remove_if([&](const Import::Pool& one) { return &one == &pool; });
}

// A pool that is known may have ended meanwhile, and another one have its number: the driver
// refuses what is not of the pool.
abi::Result Imports::open_in_pool(const ucs::MemoryExport& owner, abi::Device device,
                                  Import* import) {
    // With memory of a pool of another device the driver (580) ends the process sooner or later.
    abi::Uuid here{};
    if (driver_.device_get_uuid(&here, device) != abi::kSuccess ||
        std::memcmp(here.bytes, owner.device, sizeof(owner.device)) != 0)
        return abi::kNotSupported;
    abi::PoolPointer place;
    std::memcpy(place.reserved, owner.handle, sizeof(place.reserved));
    const auto known = std::ranges::find_if(pools_, [&](const Import::Pool& pool) {
        return pool.process == owner.process && pool.group == owner.group && pool.device == device;
    });
    abi::Result result = abi::kNotFound;
    if (known != pools_.end()) {
        import->pool = &*known;
        result = driver_.pool_import_pointer(&import->address, import->pool->handle, &place);
    }
    if (result != abi::kSuccess) {
        result = open_pool(owner, device, &import->pool);
        if (result != abi::kSuccess) return result;
        result = driver_.pool_import_pointer(&import->address, import->pool->handle, &place);
    }
    ++import->pool->users;
    if (result == abi::kSuccess && is_whole(owner, import->address)) return result;
    if (result == abi::kSuccess) {
        (void)driver_.memory_free_async(import->address, import->pool->stream);
        (void)driver_.stream_synchronize(import->pool->stream);
        result = abi::kInvalidValue;
    }
    close_pool(*import->pool);
    return result;
}

}  // namespace uct::cuda
