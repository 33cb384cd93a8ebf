// SPDX-License-Identifier: BSD-3-Clause
#include <new>

#include "ucp/api/ucp.h"
#include "ucp/base/handles.h"
#include "ucp/capi/compat.h"
#include "ucp/worker/worker.h"

using namespace ucp;

namespace {

ucs_status_ptr_t send_counted(Endpoint& endpoint, const void* buffer, size_t count, ucp_tag_t tag,
                              TagMode mode, const OpParams& params) {
    return worker_of(endpoint).tags().send(endpoint, buffer, count, tag, mode, params);
}

[[gnu::noinline]] ucs_status_ptr_t send_any(Endpoint& endpoint, const void* buffer, size_t count,
                                            ucp_tag_t tag, TagMode mode,
                                            const ucp_request_param_t* param) try {
    GateLock lock(endpoint.gate());
    const OpParams params(param);
    endpoint.count_send(known_length(params.datatype(), buffer, count));
    return send_counted(endpoint, buffer, count, tag, mode, params);
} catch (const std::bad_alloc&) {
    return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
}

// A message that must not go the short way now or, as several threads use the worker, not without
// the lock.
[[gnu::noinline]] ucs_status_ptr_t send_locked(Endpoint& endpoint, const void* buffer, size_t count,
                                               ucp_tag_t tag,
                                               const ucp_request_param_t* param) try {
    GateLock lock(endpoint.gate());
    const OpParams params(param);
    const size_t length = known_length(params.datatype(), buffer, count);
    if (!endpoint.fits_short_locked(length)) {
        endpoint.count_send(length);
    } else if (endpoint.pass_gate(buffer, length, Gate::kAnyTracker)) {
        const ucs_status_t status = endpoint.post_short(AmId::kTagShort, tag, buffer, length);
        if (status != UCS_ERR_NO_RESOURCE) [[likely]]
            return UCS_STATUS_PTR(status);
    }
    return send_counted(endpoint, buffer, count, tag, TagMode::kNormal, params);
} catch (const std::bad_alloc&) {
    return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
}

// What has passed the gate and goes the long way all the same.
[[gnu::noinline]] ucs_status_ptr_t send_passed(Endpoint& endpoint, const void* buffer, size_t count,
                                               ucp_tag_t tag,
                                               const ucp_request_param_t* param) try {
    GateLock lock(endpoint.gate());
    return send_counted(endpoint, buffer, count, tag, TagMode::kNormal, OpParams(param));
} catch (const std::bad_alloc&) {
    return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
}

}  // namespace

// The path of short messages: nothing is tested here that the limit of the endpoint or the gate of
// the worker can say.
ucs_status_ptr_t ucp_tag_send_nbx(ucp_ep_h ep, const void* buffer, size_t count, ucp_tag_t tag,
                                  const ucp_request_param_t* param) {
    Endpoint& endpoint = unwrap(ep);
    size_t length = count;
    const uint32_t mask = param->op_attr_mask;
    constexpr uint32_t kUnusual = UCP_OP_ATTR_FLAG_NO_IMM_CMPL | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    if ((mask & (UCP_OP_ATTR_FIELD_DATATYPE | kUnusual)) != 0) {
        if ((mask & kUnusual) != 0 ||
            (param->datatype & UCP_DATATYPE_CLASS_MASK) != UCP_DATATYPE_CONTIG) [[unlikely]] {
            return send_any(endpoint, buffer, count, tag, TagMode::kNormal, param);
        }
        length = count * contig_element_size(param->datatype);
    }
    if (!endpoint.fits_short(length)) [[unlikely]]
        return send_locked(endpoint, buffer, count, tag, param);
    if (endpoint.pass_gate(buffer, length, Gate::kTracker)) [[likely]] {
        const ucs_status_t status = endpoint.post_short(AmId::kTagShort, tag, buffer, length);
        if (status != UCS_ERR_NO_RESOURCE) [[likely]]
            return UCS_STATUS_PTR(status);
    }
    return send_passed(endpoint, buffer, count, tag, param);
}

ucs_status_ptr_t ucp_tag_send_sync_nbx(ucp_ep_h ep, const void* buffer, size_t count, ucp_tag_t tag,
                                       const ucp_request_param_t* param) {
    return send_any(unwrap(ep), buffer, count, tag, TagMode::kSync, param);
}

// --- older forms ---

ucs_status_ptr_t ucp_tag_send_nb(ucp_ep_h ep, const void* buffer, size_t count,
                                 ucp_datatype_t datatype, ucp_tag_t tag, ucp_send_callback_t cb) {
    return ucp_tag_send_nbx(ep, buffer, count, tag,
                            OldParams().datatype(datatype).send_callback(cb).get());
}

ucs_status_t ucp_tag_send_nbr(ucp_ep_h ep, const void* buffer, size_t count,
                              ucp_datatype_t datatype, ucp_tag_t tag, void* req) {
    // The macro evaluates its argument more than once.
    const ucs_status_ptr_t operation =
        ucp_tag_send_nbx(ep, buffer, count, tag, OldParams().datatype(datatype).request(req).get());
    return UCS_PTR_STATUS(operation);
}

ucs_status_ptr_t ucp_tag_send_sync_nb(ucp_ep_h ep, const void* buffer, size_t count,
                                      ucp_datatype_t datatype, ucp_tag_t tag,
                                      ucp_send_callback_t cb) {
    return ucp_tag_send_sync_nbx(ep, buffer, count, tag,
                                 OldParams().datatype(datatype).send_callback(cb).get());
}

// --- receiving ---

namespace {

// Parameters of the older calls. Their callbacks have no last argument for user data; to call them
// with it is harmless in the calling conventions of the platforms.
ucp_request_param_t older_params(ucp_datatype_t datatype, ucp_tag_recv_callback_t callback) {
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    params.datatype = datatype;
    if (callback != nullptr) {
        params.op_attr_mask |= UCP_OP_ATTR_FIELD_CALLBACK;
        params.cb.recv =
            reinterpret_cast<ucp_tag_recv_nbx_callback_t>(reinterpret_cast<void (*)()>(callback));
    }
    return params;
}

// Out of the way of workers that one thread uses.
[[gnu::noinline]] ucs_status_ptr_t receive_locked(Worker& worker, void* buffer, size_t count,
                                                  ucp_tag_t tag, ucp_tag_t tag_mask,
                                                  const ucp_request_param_t* param) {
    GateLock lock(worker.gate());
    return worker.tags().receive(buffer, count, tag, tag_mask, OpParams(param));
}

}  // namespace

extern "C" {

ucs_status_ptr_t ucp_tag_recv_nbx(ucp_worker_h worker, void* buffer, size_t count, ucp_tag_t tag,
                                  ucp_tag_t tag_mask, const ucp_request_param_t* param) {
    Worker& self = unwrap(worker);
    if (self.gate().has_threads()) [[unlikely]]
        return receive_locked(self, buffer, count, tag, tag_mask, param);
    return self.tags().receive(buffer, count, tag, tag_mask, OpParams(param));
}

ucs_status_ptr_t ucp_tag_recv_nb(ucp_worker_h worker, void* buffer, size_t count,
                                 ucp_datatype_t datatype, ucp_tag_t tag, ucp_tag_t tag_mask,
                                 ucp_tag_recv_callback_t cb) {
    const ucp_request_param_t params = older_params(datatype, cb);
    return ucp_tag_recv_nbx(worker, buffer, count, tag, tag_mask, &params);
}

ucs_status_t ucp_tag_recv_nbr(ucp_worker_h worker, void* buffer, size_t count,
                              ucp_datatype_t datatype, ucp_tag_t tag, ucp_tag_t tag_mask,
                              void* req) {
    ucp_request_param_t params = older_params(datatype, nullptr);
    params.op_attr_mask |= UCP_OP_ATTR_FIELD_REQUEST;
    params.request = req;
    const ucs_status_ptr_t operation =
        ucp_tag_recv_nbx(worker, buffer, count, tag, tag_mask, &params);
    return UCS_PTR_STATUS(operation);
}

ucp_tag_message_h ucp_tag_probe_nb(ucp_worker_h worker, ucp_tag_t tag, ucp_tag_t tag_mask,
                                   int remove, ucp_tag_recv_info_t* info) {
    Worker& self = unwrap(worker);
    GateLock lock(self.gate());
    TagMessage* message = self.tags().probe(tag, tag_mask, remove != 0);
    if (message != nullptr && info != nullptr) *info = {message->tag, message->length};
    return wrap(message);
}

ucs_status_ptr_t ucp_tag_msg_recv_nbx(ucp_worker_h worker, void* buffer, size_t count,
                                      ucp_tag_message_h message,
                                      const ucp_request_param_t* param) try {
    if (message == nullptr) return UCS_STATUS_PTR(UCS_ERR_INVALID_PARAM);
    Worker& self = unwrap(worker);
    GateLock lock(self.gate());
    return self.tags().receive_message(unwrap(message), buffer, count, OpParams(param));
} catch (const std::bad_alloc&) {
    return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
}

ucs_status_ptr_t ucp_tag_msg_recv_nb(ucp_worker_h worker, void* buffer, size_t count,
                                     ucp_datatype_t datatype, ucp_tag_message_h message,
                                     ucp_tag_recv_callback_t cb) {
    const ucp_request_param_t params = older_params(datatype, cb);
    return ucp_tag_msg_recv_nbx(worker, buffer, count, message, &params);
}

}  // extern "C"
