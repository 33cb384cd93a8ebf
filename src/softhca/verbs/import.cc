// SPDX-License-Identifier: BSD-3-Clause
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "softhca/verbs/verbs_ops.h"

// Imports: second handles for a device, its protection domains and its regions, within a process.
// As on hardware, only one handle of an object may end it, and only after the others are gone.

using namespace softhca;

namespace {

// Whether two descriptors are one open command file: each context has a file of its own.
bool same_file(int a, int b) {
    struct stat first {};
    struct stat second {};
    return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

}  // namespace

SOFTHCA_API ibv_context* ibv_import_device(int cmd_fd) {
    const std::shared_ptr<Fabric> fabric = current_fabric();
    if (fabric == nullptr) return nullptr;
    Device device;
    {
        std::lock_guard guard(fabric->objects_mutex);
        const auto found = std::find_if(
            fabric->contexts.begin(), fabric->contexts.end(),
            [&](Context* context) { return same_file(context->v.context.cmd_fd, cmd_fd); });
        if (found == fabric->contexts.end()) return refuse(EINVAL);
        device = (*found)->device;
    }
    return open_context(device, fabric, cmd_fd);
}

SOFTHCA_API ibv_pd* ibv_import_pd(ibv_context* context, uint32_t handle) {
    if (handle == 0 || handle >= Context::of(context)->fabric->next_pd.load())
        return refuse(ENOENT);
    auto* pd = new Pd;
    pd->verbs.context = context;
    pd->verbs.handle = pd->number = handle;
    return &pd->verbs;
}

SOFTHCA_API void ibv_unimport_pd(ibv_pd* pd) {
    delete Pd::of(pd);
}

SOFTHCA_API ibv_mr* ibv_import_mr(ibv_pd* pd, uint32_t handle) {
    Fabric& fabric = *Context::of(pd->context)->fabric;
    MrRecord* record = fabric.segment.mr_at(handle);
    const uint32_t key = record != nullptr ? record->key.load(std::memory_order_acquire) : 0;
    if (key == 0 || !fabric.local(record->owner) || record->pd != Pd::of(pd)->real()->number)
        return refuse(ENOENT);
    auto* mr = new Mr;
    mr->record = record;
    mr->verbs.context = pd->context;
    mr->verbs.pd = pd;
    mr->verbs.length = record->length;
    mr->verbs.handle = handle;
    mr->verbs.lkey = mr->verbs.rkey = key;
    ++Pd::of(pd)->users;
    return &mr->verbs;
}

SOFTHCA_API void ibv_unimport_mr(ibv_mr* mr) {
    --Pd::of(mr->pd)->users;
    delete Mr::of(mr);
}
