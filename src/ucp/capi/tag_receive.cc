// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/base/handles.h"
#include "ucp/worker/worker.h"
#include "ucp/proto/tag/engine.h"

using namespace ucp;

namespace {

/**
 * Parameters of the older calls. Their callbacks have no last argument for user data; to call them
 * with it is harmless in the calling conventions of the platforms.
 */
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

}  // namespace

extern "C" {

ucs_status_ptr_t ucp_tag_recv_nbx(ucp_worker_h worker, void* buffer, size_t count, ucp_tag_t tag,
                                  ucp_tag_t tag_mask, const ucp_request_param_t* param) {
    Worker& self = unwrap(worker);
    if (!self.has_threads()) [[likely]]
        return self.tags().receive(buffer, count, tag, tag_mask, OpParams(param));
    WorkerLock lock(self);
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
    WorkerLock lock(self);
    TagMessage* message = self.tags().probe(tag, tag_mask, remove != 0);
    if (message != nullptr && info != nullptr) *info = {message->tag, message->length};
    return wrap(message);
}

ucs_status_ptr_t ucp_tag_msg_recv_nbx(ucp_worker_h worker, void* buffer, size_t count,
                                      ucp_tag_message_h message, const ucp_request_param_t* param) {
    if (message == nullptr) return UCS_STATUS_PTR(UCS_ERR_INVALID_PARAM);
    Worker& self = unwrap(worker);
    WorkerLock lock(self);
    return self.tags().receive_message(unwrap(message), buffer, count, OpParams(param));
}

ucs_status_ptr_t ucp_tag_msg_recv_nb(ucp_worker_h worker, void* buffer, size_t count,
                                     ucp_datatype_t datatype, ucp_tag_message_h message,
                                     ucp_tag_recv_callback_t cb) {
    const ucp_request_param_t params = older_params(datatype, cb);
    return ucp_tag_msg_recv_nbx(worker, buffer, count, message, &params);
}

}  // extern "C"
