// SPDX-License-Identifier: BSD-3-Clause
#include <sched.h>

#include "ucp/api/ucp.h"
#include "ucp/base/handles.h"
#include "ucp/worker/wakeup.h"
#include "ucp/worker/worker.h"

using namespace ucp;

ucs_status_t ucp_worker_get_efd(ucp_worker_h worker_h, int* fd) {
    Worker& worker = unwrap(worker_h);
    WorkerLock lock(worker);
    Wakeup* wakeup = nullptr;
    const ucs_status_t status = worker.wakeup(&wakeup);
    if (status == UCS_OK) *fd = wakeup->descriptor();
    return status;
}

ucs_status_t ucp_worker_arm(ucp_worker_h worker_h) {
    Worker& worker = unwrap(worker_h);
    WorkerLock lock(worker);
    Wakeup* wakeup = nullptr;
    const ucs_status_t status = worker.wakeup(&wakeup);
    return status == UCS_OK ? wakeup->arm() : status;
}

ucs_status_t ucp_worker_wait(ucp_worker_h worker_h) {
    Worker& worker = unwrap(worker_h);
    Wakeup* wakeup = nullptr;
    {
        WorkerLock lock(worker);
        ucs_status_t status = worker.wakeup(&wakeup);
        if (status == UCS_OK) status = wakeup->arm();
        if (status == UCS_ERR_BUSY) return UCS_OK;
        if (status != UCS_OK) return status;
    }
    return wakeup->wait();
}

void ucp_worker_wait_mem(ucp_worker_h, void*) {
    sched_yield();
}

ucs_status_t ucp_worker_signal(ucp_worker_h worker_h) {
    Wakeup* wakeup = nullptr;
    const ucs_status_t status = unwrap(worker_h).wakeup(&wakeup);
    return status == UCS_OK ? wakeup->signal() : status;
}
