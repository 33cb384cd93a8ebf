// SPDX-License-Identifier: BSD-3-Clause
#include <cstdio>
#include <string>

#include "ucp/api/ucp.h"
#include "ucp/base/handles.h"
#include "ucp/capi/compat.h"
#include "ucp/endpoint/endpoint.h"
#include "ucp/proto/stream/streams.h"
#include "ucp/proto/tag/engine.h"
#include "ucp/worker/worker.h"

using namespace ucp;

namespace {

ucs_status_t status_of(const Request& request) {
    return request.is_finished() ? request.status : UCS_INPROGRESS;
}

/** The lane of its endpoint, which the request may have outlived: then it is none of the worker's.
 */
std::string lane_of(const Request& request) {
    if ((request.flags & Request::kLight) != 0 || request.endpoint == nullptr) return "any";
    if (!request.pool->owner()->endpoints().contains(request.endpoint)) return "any";
    return request.endpoint->one_sided_lane().attributes.transport;
}

}  // namespace

ucs_status_t ucp_request_check_status(void* request) {
    return status_of(Request::from_handle(request));
}

int ucp_request_is_completed(void* request) {
    return Request::from_handle(request).is_finished() ? 1 : 0;
}

ucs_status_t ucp_request_query(void* handle, ucp_request_attr_t* attr) {
    Request& request = Request::from_handle(handle);
    GateLock lock(request.pool->gate());
    if ((attr->field_mask & UCP_REQUEST_ATTR_FIELD_INFO_STRING) != 0) {
        if ((attr->field_mask & UCP_REQUEST_ATTR_FIELD_INFO_STRING_SIZE) == 0) {
            return UCS_ERR_INVALID_PARAM;
        }
        using Kind = Request::CallbackKind;
        const bool is_receive = request.callback_kind == Kind::kTagReceive ||
                                request.callback_kind == Kind::kAmReceive ||
                                request.callback_kind == Kind::kStreamReceive;
        snprintf(attr->debug_string, attr->debug_string_size, "{%s, %s, over %s}",
                 is_receive ? "receive" : "send",
                 request.is_finished() ? ucs_status_string(request.status) : "in progress",
                 lane_of(request).c_str());
    }
    if ((attr->field_mask & UCP_REQUEST_ATTR_FIELD_STATUS) != 0) attr->status = status_of(request);
    if ((attr->field_mask & UCP_REQUEST_ATTR_FIELD_MEM_TYPE) != 0) {
        attr->mem_type = UCS_MEMORY_TYPE_HOST;
    }
    return UCS_OK;
}

void ucp_request_cancel(ucp_worker_h worker_h, void* handle) {
    Worker& worker = unwrap(worker_h);
    GateLock lock(worker.gate());
    Request& request = Request::from_handle(handle);
    if (request.is_finished()) return;
    if (request.callback_kind == Request::CallbackKind::kTagReceive) {
        worker.tags().cancel(request);
    } else if (request.callback_kind == Request::CallbackKind::kStreamReceive) {
        worker.streams().of(*request.endpoint).cancel(request);
    }
}

void ucp_request_free(void* handle) {
    Request& request = Request::from_handle(handle);
    RequestPool& requests = *request.pool;
    GateLock lock(requests.gate());
    requests.free(request);
}

void ucp_request_release(void* handle) {
    Request& request = Request::from_handle(handle);
    RequestPool& requests = *request.pool;
    GateLock lock(requests.gate());
    requests.release(request);
}

void* ucp_request_alloc(ucp_worker_h worker_h) {
    Worker& worker = unwrap(worker_h);
    GateLock lock(worker.gate());
    Request* request = worker.requests().lend();
    return request == nullptr ? nullptr : request->handle();
}

ucs_status_t ucp_tag_recv_request_test(void* handle, ucp_tag_recv_info_t* info) {
    const Request& request = Request::from_handle(handle);
    if (!request.is_finished()) return UCS_INPROGRESS;
    if (info != nullptr) *info = request.tag_info;
    return request.status;
}

ucs_status_t ucp_request_test(void* request, ucp_tag_recv_info_t* info) {
    return ucp_tag_recv_request_test(request, info);
}
