// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/api/ucpx.h"
#include "ucp/base/handles.h"
#include "ucp/worker/worker.h"

using namespace ucp;

ucs_status_t ucpx_worker_explain(ucp_worker_h worker_h, const ucp_address_t* address, size_t length,
                                 unsigned flags, FILE* stream) {
    Worker& worker = unwrap(worker_h);
    WorkerLock lock(worker);
    WorkerAddress peer;
    const ucs_status_t status =
        unpack_address({reinterpret_cast<const std::byte*>(address), length}, &peer);
    if (status != UCS_OK) return status;
    if ((flags & UCPX_EXPLAIN_FLAG_OTHER_HOST) != 0) ++peer.host;
    worker.explain(peer, stream);
    return UCS_OK;
}
