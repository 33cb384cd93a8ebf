// SPDX-License-Identifier: BSD-3-Clause
#include <sched.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "ucp/proto/am/am_handlers.h"
#include "ucp/api/ucp.h"
#include "ucp/capi/compat.h"
#include "ucp/base/handles.h"
#include "ucp/worker/worker.h"
#include "ucs/log.h"

using namespace ucp;

namespace ucp {

ucs_status_t wait_for(Worker& worker, ucs_status_ptr_t operation) {
    if (!UCS_PTR_IS_PTR(operation)) return UCS_PTR_RAW_STATUS(operation);
    Request& request = Request::from_handle(operation);
    while (!request.is_finished()) {
        if (worker.progress() == 0) sched_yield();
    }
    const ucs_status_t status = request.status;
    worker.free_request(request);
    return status;
}

namespace {

constexpr size_t kMaxDebugString = 256;

ucp_address_t* copy_address(const std::vector<std::byte>& address) {
    void* copy = std::malloc(address.size());
    if (copy != nullptr) std::memcpy(copy, address.data(), address.size());
    return static_cast<ucp_address_t*>(copy);
}

}  // namespace
}  // namespace ucp

ucs_status_t ucp_worker_create(ucp_context_h context, const ucp_worker_params_t* params,
                               ucp_worker_h* worker_p) {
    std::unique_ptr<Worker> worker;
    const ucs_status_t status = Worker::create(unwrap(context), *params, &worker);
    if (status != UCS_OK) return status;
    *worker_p = wrap(worker.release());
    return UCS_OK;
}

void ucp_worker_destroy(ucp_worker_h worker) {
    delete &unwrap(worker);
}

ucs_status_t ucp_worker_query(ucp_worker_h worker_h, ucp_worker_attr_t* attr) {
    Worker& worker = unwrap(worker_h);
    WorkerLock lock(worker);
    const auto wants = [&](uint64_t field) { return (attr->field_mask & field) != 0; };
    if (wants(UCP_WORKER_ATTR_FIELD_THREAD_MODE)) attr->thread_mode = worker.thread_mode();
    if (wants(UCP_WORKER_ATTR_FIELD_ADDRESS)) {
        const uint32_t flags = wants(UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS) ? attr->address_flags : 0;
        const std::vector<std::byte> address = worker.address(flags);
        attr->address = copy_address(address);
        if (attr->address == nullptr) return UCS_ERR_NO_MEMORY;
        attr->address_length = address.size();
    }
    if (wants(UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER)) attr->max_am_header = max_am_header(worker);
    if (wants(UCP_WORKER_ATTR_FIELD_NAME)) {
        snprintf(attr->name, sizeof(attr->name), "%s", worker.name().c_str());
    }
    if (wants(UCP_WORKER_ATTR_FIELD_MAX_INFO_STRING)) attr->max_debug_string = kMaxDebugString;
    return UCS_OK;
}

void ucp_worker_print_info(ucp_worker_h worker, FILE* stream) {
    WorkerLock lock(unwrap(worker));
    unwrap(worker).print_info(stream);
}

ucs_status_t ucp_worker_get_address(ucp_worker_h worker_h, ucp_address_t** address_p,
                                    size_t* address_length_p) {
    const Worker& worker = unwrap(worker_h);
    *address_p = copy_address(worker.address());
    *address_length_p = worker.address().size();
    return *address_p != nullptr ? UCS_OK : UCS_ERR_NO_MEMORY;
}

void ucp_worker_release_address(ucp_worker_h, ucp_address_t* address) {
    std::free(address);
}

ucs_status_t ucp_worker_address_query(ucp_address_t* address, ucp_worker_address_attr_t* attr) {
    WorkerAddress parsed;
    const ucs_status_t status = unpack_address(
        {reinterpret_cast<const std::byte*>(address), packed_address_length(address)}, &parsed);
    if (status != UCS_OK) return status;
    if ((attr->field_mask & UCP_WORKER_ADDRESS_ATTR_FIELD_UID) != 0) {
        attr->worker_uid = parsed.uuid;
    }
    return UCS_OK;
}

unsigned ucp_worker_progress(ucp_worker_h worker_h) {
    Worker& worker = unwrap(worker_h);
    if ((worker.gate() & Worker::kGateThreads) != 0) [[unlikely]] {
        WorkerLock lock(worker);
        return worker.progress();
    }
    return worker.progress();
}

ucs_status_t ucp_worker_fence(ucp_worker_h worker_h) {
    Worker& worker = unwrap(worker_h);
    WorkerLock lock(worker);
    worker.fence();
    return UCS_OK;
}

ucs_status_ptr_t ucp_worker_flush_nbx(ucp_worker_h worker_h, const ucp_request_param_t* param) {
    Worker& worker = unwrap(worker_h);
    WorkerLock lock(worker);
    return worker.flush(OpParams(param));
}

ucs_status_ptr_t ucp_worker_flush_nb(ucp_worker_h worker, unsigned, ucp_send_callback_t cb) {
    return ucp_worker_flush_nbx(worker, OldParams().send_callback(cb).get());
}

ucs_status_t ucp_worker_flush(ucp_worker_h worker_h) {
    Worker& worker = unwrap(worker_h);
    WorkerLock lock(worker);
    return wait_for(worker, worker.flush(OpParams(OldParams().get())));
}
