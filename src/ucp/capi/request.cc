// SPDX-License-Identifier: BSD-3-Clause
#include <cstdio>
#include <string>

#include "ucp/api/ucp.h"
#include "ucp/capi/compat.h"
#include "ucp/endpoint/endpoint.h"
#include "ucp/base/handles.h"
#include "ucp/worker/worker.h"
#include "ucp/proto/stream/streams.h"
#include "ucp/proto/tag/engine.h"

using namespace ucp;

namespace {

ucs_status_t status_of(const Request& request) {
    return request.is_finished() ? request.status : UCS_INPROGRESS;
}

/** The lane of its endpoint, which the request may have outlived: then it is none of the worker's.
 */
std::string lane_of(const Request& request) {
    std::string name = "any";
    if ((request.flags & Request::kLight) != 0 || request.endpoint == nullptr) return name;
    request.worker->for_each_endpoint([&](Endpoint& endpoint) {
        if (&endpoint == request.endpoint) name = endpoint.one_sided_lane().attributes.transport;
    });
    return name;
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
    WorkerLock lock(*request.worker);
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
    WorkerLock lock(worker);
    Request& request = Request::from_handle(handle);
    if (request.is_finished()) return;
    if (request.callback_kind == Request::CallbackKind::kTagReceive) {
        worker.tags().cancel(request);
    } else if (request.callback_kind == Request::CallbackKind::kStreamReceive) {
        Streams::of(*request.endpoint).cancel(request);
    }
}

void ucp_request_free(void* handle) {
    Request& request = Request::from_handle(handle);
    Worker& worker = *request.worker;
    WorkerLock lock(worker);
    worker.free_request(request);
}

void ucp_request_release(void* handle) {
    Request& request = Request::from_handle(handle);
    Worker& worker = *request.worker;
    WorkerLock lock(worker);
    worker.release_request(request);
}

void* ucp_request_alloc(ucp_worker_h worker_h) {
    Worker& worker = unwrap(worker_h);
    WorkerLock lock(worker);
    Request* request = worker.lend_request();
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
