// SPDX-License-Identifier: BSD-3-Clause
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "softhca/verbs/verbs_ops.h"

// Device memory: pages that programs reach by copies and by zero-based regions only.
namespace softhca {
namespace {

constexpr uint32_t kMaxLogAlign = 12;  // memory comes in pages

std::shared_ptr<char> map_pages(size_t length) {
    void* pages = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return nullptr;
    return {static_cast<char*>(pages), [length](char* p) { munmap(p, length); }};
}

// The memory's interface has words of four bytes.
int check(const Dm& dm, uint64_t offset, size_t length) {
    if (length > dm.length || offset > dm.length - length) return EFAULT;
    return offset % 4 != 0 || length % 4 != 0 ? EINVAL : 0;
}

int copy_to(ibv_dm* handle, uint64_t offset, const void* from, size_t length) {
    Dm& dm = *Dm::of(handle);
    const int error = check(dm, offset, length);
    if (error == 0) std::memcpy(dm.memory.get() + offset, from, length);
    return error;
}

int copy_from(void* to, ibv_dm* handle, uint64_t offset, size_t length) {
    Dm& dm = *Dm::of(handle);
    const int error = check(dm, offset, length);
    if (error == 0) std::memcpy(to, dm.memory.get() + offset, length);
    return error;
}

Dm* make(ibv_context* context, uint32_t handle, std::shared_ptr<char> memory, size_t length) {
    auto* dm = new Dm;
    dm->verbs.context = context;
    dm->verbs.memcpy_to_dm = copy_to;
    dm->verbs.memcpy_from_dm = copy_from;
    dm->verbs.handle = handle;
    dm->memory = std::move(memory);
    dm->length = length;
    return dm;
}

uint16_t lid_of(const Dm* dm) {
    return Context::of(dm->verbs.context)->device.lid;
}

}  // namespace

ibv_dm* alloc_dm(ibv_context* handle, ibv_alloc_dm_attr* attr) {
    Context& context = *Context::of(handle);
    Fabric& fabric = *context.fabric;
    if (attr->comp_mask != 0 || attr->length == 0 || attr->log_align_req > kMaxLogAlign)
        return refuse(EINVAL);
    std::lock_guard guard(fabric.objects_mutex);
    uint64_t taken = 0;
    for (const Dm* dm : fabric.all_dms) taken += lid_of(dm) == context.device.lid ? dm->length : 0;
    std::shared_ptr<char> memory;
    if (attr->length <= kDeviceMemory && taken <= kDeviceMemory - attr->length &&
        !fabric.faults.fail_create()) {
        memory = map_pages(attr->length);
    }
    if (memory == nullptr) return refuse(ENOMEM);
    Dm* dm = make(handle, fabric.next_dm++, std::move(memory), attr->length);
    fabric.all_dms.push_back(dm);
    return &dm->verbs;
}

int free_dm(ibv_dm* handle) {
    Dm* dm = Dm::of(handle);
    Fabric& fabric = *Context::of(handle->context)->fabric;
    if (dm->users.load() != 0) return EBUSY;
    {
        std::lock_guard guard(fabric.objects_mutex);
        std::erase(fabric.all_dms, dm);
    }
    delete dm;
    return 0;
}

ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* handle, uint64_t offset, size_t length, unsigned access) {
    Dm& dm = *Dm::of(handle);
    if ((access & IBV_ACCESS_ZERO_BASED) == 0 || length > dm.length ||
        offset > dm.length - length) {
        return refuse(EINVAL);
    }
    ibv_mr* mr = reg_mr(pd, dm.memory.get() + offset, length, 0, access);
    if (mr == nullptr) return nullptr;
    mr->addr = nullptr;
    Mr::of(mr)->dm = &dm;
    ++dm.users;
    return mr;
}

}  // namespace softhca

using namespace softhca;

SOFTHCA_API ibv_dm* ibv_import_dm(ibv_context* context, uint32_t handle) {
    Fabric& fabric = *Context::of(context)->fabric;
    std::lock_guard guard(fabric.objects_mutex);
    const auto found = std::ranges::find_if(fabric.all_dms, [&](const Dm* dm) {
        return dm->verbs.handle == handle && lid_of(dm) == Context::of(context)->device.lid;
    });
    if (found == fabric.all_dms.end()) return refuse(ENOENT);
    return &make(context, handle, (*found)->memory, (*found)->length)->verbs;
}

SOFTHCA_API void ibv_unimport_dm(ibv_dm* dm) {
    delete Dm::of(dm);
}
