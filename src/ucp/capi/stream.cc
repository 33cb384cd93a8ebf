// SPDX-License-Identifier: BSD-3-Clause
#include <new>

#include "ucp/api/ucp.h"
#include "ucp/base/handles.h"
#include "ucp/capi/compat.h"
#include "ucp/endpoint/extras.h"
#include "ucp/proto/stream/stream.h"
#include "ucp/worker/worker.h"

using namespace ucp;

ucs_status_ptr_t ucp_stream_send_nbx(ucp_ep_h ep, const void* buffer, size_t count,
                                     const ucp_request_param_t* param) try {
    Endpoint& endpoint = unwrap(ep);
    GateLock lock(endpoint.gate());
    constexpr uint32_t kUnusual =
        UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    const OpParams params(param);
    if ((param->op_attr_mask & kUnusual) != 0 || count == 0 || !endpoint.fits_short_locked(count) ||
        !endpoint.has_greeted()) {
        endpoint.count_send(known_length(params.datatype(), buffer, count));
    } else if (endpoint.pass_gate(buffer, count, Gate::kAnyTracker)) {
        const ucs_status_t status =
            endpoint.post_short(AmId::kStream, stream_name(endpoint), buffer, count);
        if (status != UCS_ERR_NO_RESOURCE) return UCS_STATUS_PTR(status);
    }
    return worker_of(endpoint).streams().send(endpoint, buffer, count, params);
} catch (const std::bad_alloc&) {
    return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
}

ucs_status_ptr_t ucp_stream_send_nb(ucp_ep_h ep, const void* buffer, size_t count,
                                    ucp_datatype_t datatype, ucp_send_callback_t cb, unsigned) {
    return ucp_stream_send_nbx(ep, buffer, count,
                               OldParams().datatype(datatype).send_callback(cb).get());
}

ucs_status_ptr_t ucp_stream_recv_nbx(ucp_ep_h ep, void* buffer, size_t count, size_t* length,
                                     const ucp_request_param_t* param) {
    return locked(ep, [&](Endpoint& endpoint) {
        return worker_of(endpoint).streams().of(endpoint).receive(buffer, count, length,
                                                                  OpParams(param));
    });
}

ucs_status_ptr_t ucp_stream_recv_nb(ucp_ep_h ep, void* buffer, size_t count,
                                    ucp_datatype_t datatype, ucp_stream_recv_callback_t cb,
                                    size_t* length, unsigned flags) {
    return ucp_stream_recv_nbx(
        ep, buffer, count, length,
        OldParams().datatype(datatype).flags(flags).stream_callback(cb).get());
}

ucs_status_ptr_t ucp_stream_recv_data_nb(ucp_ep_h ep, size_t* length) {
    return locked(ep, [&](Endpoint& endpoint) {
        return worker_of(endpoint).streams().of(endpoint).borrow(length);
    });
}

void ucp_stream_data_release(ucp_ep_h ep, void* data) {
    Endpoint& endpoint = unwrap(ep);
    GateLock lock(endpoint.gate());
    worker_of(endpoint).streams().of(endpoint).give_back(data);
}

ssize_t ucp_stream_worker_poll(ucp_worker_h worker_h, ucp_stream_poll_ep_t* poll_eps,
                               size_t max_eps, unsigned) {
    Worker& worker = unwrap(worker_h);
    GateLock lock(worker.gate());
    return static_cast<ssize_t>(worker.streams().poll(poll_eps, max_eps));
}

ucs_status_t ucp_stream_recv_request_test(void* handle, size_t* length_p) {
    const Request& request = Request::from_handle(handle);
    if (!request.is_finished()) return UCS_INPROGRESS;
    if (length_p != nullptr && request.status == UCS_OK) *length_p = request.received;
    return request.status;
}
