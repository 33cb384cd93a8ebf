// SPDX-License-Identifier: BSD-3-Clause
#include <cstring>
#include <new>

#include "ucp/api/ucp.h"
#include "ucp/base/handles.h"
#include "ucp/capi/compat.h"
#include "ucp/dt/datatype.h"
#include "ucp/proto/am/am_handlers.h"
#include "ucp/worker/worker.h"
#include "ucs/log/log.h"

using namespace ucp;

ucs_status_t ucp_worker_set_am_recv_handler(ucp_worker_h worker_h,
                                            const ucp_am_handler_param_t* param) {
    return locked(worker_h, [&](Worker& worker) { return worker.am_handlers().set(*param); });
}

ucs_status_t ucp_worker_set_am_handler(ucp_worker_h worker_h, uint16_t id, ucp_am_callback_t cb,
                                       void* arg, uint32_t flags) {
    return locked(worker_h,
                  [&](Worker& worker) { return worker.am_handlers().set(id, cb, arg, flags); });
}

ucs_status_ptr_t ucp_am_send_nbx(ucp_ep_h ep, unsigned id, const void* header, size_t header_length,
                                 const void* buffer, size_t count,
                                 const ucp_request_param_t* param) try {
    Endpoint& endpoint = unwrap(ep);
    if (id > UINT16_MAX) return UCS_STATUS_PTR(UCS_ERR_INVALID_PARAM);
    constexpr uint32_t kUnusual = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL |
                                  UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    GateLock lock(endpoint.gate());
    const OpParams params(param);
    if ((param->op_attr_mask & kUnusual) != 0 || header_length != 0 ||
        !endpoint.fits_short_locked(count)) {
        endpoint.count_send(header_length + known_length(params.datatype(), buffer, count));
    } else if (endpoint.pass_gate(buffer, count, Gate::kAnyTracker)) {
        const AmHeader am{static_cast<uint16_t>(id), 0, 0};
        uint64_t word;
        std::memcpy(&word, &am, sizeof(word));
        const ucs_status_t status = endpoint.post_short(AmId::kAmShort, word, buffer, count);
        if (status != UCS_ERR_NO_RESOURCE) return UCS_STATUS_PTR(status);
    }
    Worker& worker = worker_of(endpoint);
    if (const size_t longest = worker.interfaces().max_am_header(); header_length > longest) {
        ucs::log_error("the header of an active message has {} bytes; at most {} are possible",
                       header_length, longest);
        return UCS_STATUS_PTR(UCS_ERR_INVALID_PARAM);
    }
    return worker.am_handlers().send(endpoint, static_cast<uint16_t>(id), header, header_length,
                                     buffer, count, params);
} catch (const std::bad_alloc&) {
    return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
}

ucs_status_ptr_t ucp_am_send_nb(ucp_ep_h ep, uint16_t id, const void* buffer, size_t count,
                                ucp_datatype_t datatype, ucp_send_callback_t cb, unsigned flags) {
    // Handlers of this call's kind get all data at once: it cannot be announced first.
    flags |= UCP_AM_SEND_FLAG_EAGER;
    return ucp_am_send_nbx(ep, id, nullptr, 0, buffer, count,
                           OldParams().datatype(datatype).flags(flags).send_callback(cb).get());
}

ucs_status_ptr_t ucp_am_recv_data_nbx(ucp_worker_h worker_h, void* data_desc, void* buffer,
                                      size_t count, const ucp_request_param_t* param) {
    return locked(worker_h, [&](Worker& worker) {
        return worker.am_handlers().receive(data_desc, buffer, count, OpParams(param));
    });
}

void ucp_am_data_release(ucp_worker_h worker_h, void* data) {
    Worker& worker = unwrap(worker_h);
    GateLock lock(worker.gate());
    worker.am_handlers().release(data);
}
