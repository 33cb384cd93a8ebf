// SPDX-License-Identifier: BSD-3-Clause
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "softhca/host/host_fabric.h"
#include "softhca/verbs/verbs_ops.h"
#include "softhca/virtual/virtual_fabric.h"

namespace softhca {
namespace {

// A device list entry keeps its fabric alive until the list is freed.
struct ListedDevice {
    Device device;
    std::shared_ptr<Fabric> fabric;
};

struct OpenContext : Context {
    std::shared_ptr<Fabric> keep;
};

void fill_ops(verbs_context& v) {
    v.sz = sizeof(verbs_context);
    v.query_port = query_port;
    v.query_device_ex = query_device_ex;
    v.query_rt_values = query_rt_values;
    v.create_cq_ex = create_cq_ex;
    v.modify_cq = modify_cq;
    v.create_qp_ex = create_qp_ex;
    v.create_srq_ex = create_srq_ex;
    v.get_srq_num = get_srq_num;
    v.alloc_td = alloc_td;
    v.dealloc_td = dealloc_td;
    v.alloc_parent_domain = alloc_parent_domain;
    v.alloc_dm = alloc_dm;
    v.free_dm = free_dm;
    v.reg_dm_mr = reg_dm_mr;
    ibv_context_ops& ops = v.context.ops;
    ops.alloc_mw = alloc_mw;
    ops.dealloc_mw = dealloc_mw;
    ops.bind_mw = bind_mw;
    ops.poll_cq = poll_cq;
    ops.req_notify_cq = req_notify_cq;
    ops.post_send = post_send;
    ops.post_recv = post_recv;
    ops.post_srq_recv = post_srq_recv;
}

}  // namespace

ibv_context* open_context(const Device& device, std::shared_ptr<Fabric> fabric, int cmd_fd) {
    auto context = std::make_unique<OpenContext>();
    context->device = device;
    context->fabric = fabric.get();
    context->keep = std::move(fabric);
    fill_ops(context->v);
    ibv_context& verbs = context->v.context;
    // Contexts outlive the list, so the device that programs see is the context's own copy.
    verbs.device = &context->device.verbs;
    verbs.cmd_fd = cmd_fd;
    verbs.async_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
    verbs.num_comp_vectors = 8;
    pthread_mutex_init(&verbs.mutex, nullptr);
    verbs.abi_compat = __VERBS_ABI_IS_EXTENDED;
    std::lock_guard guard(context->fabric->objects_mutex);
    context->fabric->contexts.push_back(context.get());
    return &context.release()->v.context;
}

std::shared_ptr<Fabric> current_fabric() {
    if (std::shared_ptr<Fabric> fabric = VirtualFabricImpl::current()) return fabric;
    return HostFabric::instance();
}

}  // namespace softhca

using namespace softhca;

SOFTHCA_API ibv_device** ibv_get_device_list(int* num) {
    const std::shared_ptr<Fabric> fabric = current_fabric();
    const std::vector<Device> devices =
        fabric != nullptr ? fabric->devices() : std::vector<Device>();
    auto** list = static_cast<ibv_device**>(std::calloc(devices.size() + 1, sizeof(ibv_device*)));
    if (list == nullptr) return nullptr;
    for (size_t i = 0; i < devices.size(); ++i) {
        list[i] = &(new ListedDevice{devices[i], fabric})->device.verbs;
    }
    if (num != nullptr) *num = int(devices.size());
    return list;
}

SOFTHCA_API void ibv_free_device_list(ibv_device** list) {
    for (ibv_device** device = list; *device != nullptr; ++device) {
        delete reinterpret_cast<ListedDevice*>(*device);
    }
    std::free(list);
}

SOFTHCA_API const char* ibv_get_device_name(ibv_device* device) {
    return device->name;
}

SOFTHCA_API int ibv_get_device_index(ibv_device* device) {
    return int(reinterpret_cast<Device*>(device)->index);
}

SOFTHCA_API __be64 ibv_get_device_guid(ibv_device* device) {
    return htobe64(reinterpret_cast<Device*>(device)->guid);
}

SOFTHCA_API ibv_context* ibv_open_device(ibv_device* handle) {
    auto& listed = *reinterpret_cast<ListedDevice*>(handle);
    // A file of its own, which tells the context to who imports it.
    return open_context(listed.device, listed.fabric, memfd_create("softhca-context", MFD_CLOEXEC));
}

SOFTHCA_API int ibv_close_device(ibv_context* handle) {
    std::unique_ptr<OpenContext> context(static_cast<OpenContext*>(Context::of(handle)));
    {
        std::lock_guard guard(context->fabric->objects_mutex);
        std::erase(context->fabric->contexts, context.get());
    }
    if (handle->async_fd >= 0) close(handle->async_fd);
    if (handle->cmd_fd >= 0) close(handle->cmd_fd);
    pthread_mutex_destroy(&handle->mutex);
    return 0;
}
