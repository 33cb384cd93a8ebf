// SPDX-License-Identifier: BSD-3-Clause
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <string_view>
#include <utility>

#include "softhca/verbs/verbs_ops.h"

namespace softhca {
namespace {

constexpr unsigned kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                             IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                             IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB |
                             unsigned(IBV_ACCESS_OPTIONAL_RANGE);

// Pinning memory that is not there fails on hardware.
bool mapped(const void* addr, size_t length) {
    if (length == 0) return true;
    const auto page = uintptr_t(sysconf(_SC_PAGESIZE));
    const uintptr_t start = uintptr_t(addr) & ~(page - 1);
    return msync(reinterpret_cast<void*>(start), uintptr_t(addr) + length - start, MS_ASYNC) == 0;
}

int check_access(unsigned access) {
    if ((access & IBV_ACCESS_ON_DEMAND) != 0) return EOPNOTSUPP;
    if ((access & ~kAccess) != 0) return EINVAL;
    const bool remote_change = (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
    return remote_change && (access & IBV_ACCESS_LOCAL_WRITE) == 0 ? EINVAL : 0;
}

int check_region(const void* addr, size_t length, unsigned access) {
    if (const int error = check_access(access); error != 0) return error;
    if (uintptr_t(addr) + length < uintptr_t(addr)) return EINVAL;
    return mapped(addr, length) ? 0 : EFAULT;
}

// By which ways memory of GPUs can be registered: as on a host with or without nvidia-peermem, and
// with a kernel and an adapter that know dma-bufs or not.
struct GpuWays {
    bool peer_memory = true;
    bool dma_buf = true;
};

GpuWays gpu_ways() {
    const char* const text = std::getenv("SOFTHCA_GPU");
    const std::string_view ways = text == nullptr ? "all" : text;
    return {ways == "all" || ways == "peermem", ways == "all" || ways == "dmabuf"};
}

void give_key(Mr& mr) {
    MrRecord& record = *mr.record;
    record.key_byte = uint8_t(record.key_byte + 1);
    mr.verbs.lkey = mr.verbs.rkey = (mr.verbs.handle << 8) | record.key_byte;
}

// @return nothing: less may be held in memory
std::optional<Pin> take_pin(const Fabric& fabric, const void* addr, size_t length) {
    return fabric.limits.obeys_memlock == 0 ? Pin() : Pin::take(addr, length);
}

ibv_mr* register_gpu_memory(ibv_pd* pd, void* addr, size_t length, uint64_t iova, unsigned access) {
    Fabric& fabric = *Context::of(pd->context)->fabric;
    gpu::Hold hold = gpu::hold(addr, length);
    if (hold.is_empty()) return refuse(EFAULT);
    fabric.gpu_registered();
    ibv_mr* const mr = reg_mr(pd, addr, length, iova, access, true);
    if (mr != nullptr) Mr::of(mr)->gpu = std::move(hold);
    return mr;
}

// Of memory of the program's, which is to stay where it is.
ibv_mr* pin_and_register(ibv_pd* pd, void* addr, size_t length, uint64_t iova, unsigned access) {
    const gpu::Kind kind = gpu::kind_of(addr, length);
    if (kind != gpu::Kind::kHost) {
        if (kind != gpu::Kind::kGpu || !gpu_ways().peer_memory ||
            !Context::of(pd->context)->fabric->takes_gpu_memory()) {
            return refuse(EFAULT);
        }
        return register_gpu_memory(pd, addr, length, iova, access);
    }
    std::optional<Pin> pinned = take_pin(*Context::of(pd->context)->fabric, addr, length);
    if (!pinned) return refuse(ENOMEM);
    ibv_mr* const mr = reg_mr(pd, addr, length, iova, access);
    if (mr != nullptr) Mr::of(mr)->pin = std::move(*pinned);
    return mr;
}

void publish(Mr& mr) {
    mr.record->key.store(mr.verbs.rkey, std::memory_order_release);
}

void withdraw(Mr& mr) {
    mr.record->key.store(0, std::memory_order_seq_cst);
    Context::of(mr.verbs.context)->fabric->drain_region(mr.verbs.rkey);
}

}  // namespace

ibv_mr* reg_mr(ibv_pd* pd, void* addr, size_t length, uint64_t iova, unsigned access,
               bool is_on_gpu) {
    Fabric& fabric = *Context::of(pd->context)->fabric;
    const int error = is_on_gpu ? check_access(access) : check_region(addr, length, access);
    if (error != 0) return refuse(error);
    if (fabric.mr_count.fetch_add(1) >= fabric.limits.max_mr || fabric.faults.fail_create()) {
        --fabric.mr_count;
        return refuse(ENOMEM);
    }
    std::unique_ptr<Mr> mr(new (std::nothrow) Mr);
    if (mr != nullptr) mr->record = fabric.segment.allocate_mr();
    if (mr == nullptr || mr->record == nullptr) {
        --fabric.mr_count;
        return refuse(ENOMEM);
    }
    MrRecord& record = *mr->record;
    record.pd = Pd::of(pd)->real()->number;
    record.access = access;
    record.window = false;
    record.windows = 0;
    record.iova = (access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : iova;
    record.addr = uintptr_t(addr);
    record.length = length;
    mr->verbs.context = pd->context;
    mr->verbs.pd = pd;
    mr->verbs.addr = addr;
    mr->verbs.length = length;
    mr->verbs.handle = fabric.segment.mr_index(record);
    give_key(*mr);
    publish(*mr);
    ++Pd::of(pd)->users;
    return &mr.release()->verbs;
}

ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attr) {
    if (attr->comp_mask != 0) return refuse(EOPNOTSUPP);
    return new ibv_td{context};
}

int dealloc_td(ibv_td* td) {
    delete td;
    return 0;
}

ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr) {
    if (attr->pd == nullptr) return refuse(EINVAL);
    auto* pd = new Pd;
    pd->verbs.context = context;
    pd->verbs.handle = attr->pd->handle;
    pd->parent = Pd::of(attr->pd)->real();
    ++pd->parent->users;
    return &pd->verbs;
}

}  // namespace softhca

using namespace softhca;

SOFTHCA_API ibv_pd* ibv_alloc_pd(ibv_context* handle) {
    Context& context = *Context::of(handle);
    if (context.fabric->faults.fail_create()) return refuse(ENOMEM);
    auto* pd = new Pd;
    pd->verbs.context = handle;
    pd->verbs.handle = pd->number = context.fabric->next_pd++;
    return &pd->verbs;
}

SOFTHCA_API int ibv_dealloc_pd(ibv_pd* handle) {
    Pd* pd = Pd::of(handle);
    if (pd->users.load() != 0) return EBUSY;
    if (pd->parent != nullptr) --pd->parent->users;
    delete pd;
    return 0;
}

SOFTHCA_API ibv_mr* ibv_reg_mr(ibv_pd* pd, void* addr, size_t length, int access) {
    return pin_and_register(pd, addr, length, uintptr_t(addr), unsigned(access));
}

SOFTHCA_API ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* addr, size_t length, uint64_t iova,
                                    int access) {
    return pin_and_register(pd, addr, length, iova, unsigned(access));
}

SOFTHCA_API ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* addr, size_t length, uint64_t iova,
                                     unsigned access) {
    return pin_and_register(pd, addr, length, iova, access);
}

// The memory behind the descriptor cannot be mapped: of a GPU's the program knows the address,
// which is what peers are to use as well.
SOFTHCA_API ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova,
                                      int fd, int access) {
    if (!gpu_ways().dma_buf || !Context::of(pd->context)->fabric->takes_gpu_memory())
        return refuse(EOPNOTSUPP);
    struct stat file {};
    if (fstat(fd, &file) != 0) return refuse(EBADF);
    const off_t size = lseek(fd, 0, SEEK_END);
    if (size < 0) return refuse(EINVAL);
    if (length == 0 || offset > uint64_t(size) || length > uint64_t(size) - offset)
        return refuse(EINVAL);
    void* const addr = reinterpret_cast<void*>(iova);
    if (gpu::kind_of(addr, length) != gpu::Kind::kGpu) return refuse(EOPNOTSUPP);
    return register_gpu_memory(pd, addr, length, iova, unsigned(access));
}

SOFTHCA_API int ibv_rereg_mr(ibv_mr* handle, int flags, ibv_pd* pd, void* addr, size_t length,
                             int access) {
    Mr& mr = *Mr::of(handle);
    MrRecord& record = *mr.record;
    const bool move = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
    const bool rights = (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0;
    const bool domain = (flags & IBV_REREG_MR_CHANGE_PD) != 0;
    int error = (flags & ~int(IBV_REREG_MR_FLAGS_SUPPORTED)) != 0 || flags == 0 ? EINVAL : 0;
    if (domain && pd == nullptr) error = EINVAL;
    const bool is_on_gpu =
        !mr.gpu.is_empty() || (move && gpu::kind_of(addr, length) != gpu::Kind::kHost);
    if (error == 0 && is_on_gpu) error = EOPNOTSUPP;
    if (error == 0) {
        error = check_region(move ? addr : handle->addr, move ? length : handle->length,
                             rights ? unsigned(access) : record.access);
    }
    std::optional<Pin> pinned;
    if (error == 0 && move) {
        pinned = take_pin(*Context::of(handle->context)->fabric, addr, length);
        if (!pinned) error = ENOMEM;
    }
    if (error != 0) {
        errno = error;
        return IBV_REREG_MR_ERR_INPUT;
    }
    // Peers may go on using the keys they have: adapters change a region in place.
    withdraw(mr);
    if (move) {
        mr.pin = std::move(*pinned);
        record.addr = record.iova = uintptr_t(addr);
        record.length = length;
        handle->addr = addr;
        handle->length = length;
    }
    if (rights) record.access = unsigned(access);
    if (domain) {
        record.pd = Pd::of(pd)->real()->number;
        --Pd::of(handle->pd)->users;
        ++Pd::of(pd)->users;
        handle->pd = pd;
    }
    publish(mr);
    return 0;
}

SOFTHCA_API int ibv_dereg_mr(ibv_mr* handle) {
    if (Mr::of(handle)->record->windows.load() != 0) return EBUSY;
    std::unique_ptr<Mr> mr(Mr::of(handle));
    Fabric& fabric = *Context::of(handle->context)->fabric;
    withdraw(*mr);
    Segment::release(*mr->record);
    --fabric.mr_count;
    --Pd::of(handle->pd)->users;
    if (mr->dm != nullptr) --mr->dm->users;
    return 0;
}
