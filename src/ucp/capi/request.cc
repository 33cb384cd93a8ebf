// SPDX-License-Identifier: BSD-3-Clause
#include <cstdio>
#include <new>
#include <string>

#include <fmt/format.h>

#include "ucp/api/ucp.h"
#include "ucp/base/handles.h"
#include "ucp/capi/compat.h"
#include "ucp/endpoint/endpoint.h"
#include "ucp/proto/match/receive.h"
#include "ucp/proto/stream/stream.h"
#include "ucp/proto/tag/engine.h"
#include "ucp/worker/worker.h"

using namespace ucp;

namespace {

ucs_status_t status_of(const Request& request) {
    return request.is_finished() ? request.status : UCS_INPROGRESS;
}

// The lane of its endpoint, which the request may have outlived: then it is none of the worker's.
std::string lane_of(const Request& request) {
    if ((request.flags & Request::kPartial) != 0 || request.endpoint == nullptr) return "any";
    if (!request.pool->owner()->endpoints().contains(request.endpoint)) return "any";
    return request.endpoint->one_sided_lane().attributes.transport;
}

// A posted receive has its length and memory in its part, to the end and behind it.
size_t length_of(const Request& request) {
    if ((request.flags & Request::kPartial) == 0) return request.length;
    return const_cast<Request&>(request).part<TagReceive>().buffer.length();
}

ucs_memory_type_t memory_type_of(const Request& request) {
    if ((request.flags & Request::kPartial) == 0) return request.memory_type;
    const Unpacker& buffer = const_cast<Request&>(request).part<TagReceive>().buffer;
    return buffer.type_class() == DatatypeClass::kDevice ? buffer.memory_type()
                                                         : UCS_MEMORY_TYPE_HOST;
}

// Programs look for "length N" and for the name of the memory; of a receive from a stream nothing
// but its end is known, and they look for that as well.
std::string describe(const Request& request) {
    using Kind = Request::CallbackKind;
    const char* const state =
        request.is_finished() ? ucs_status_string(request.status) : "in progress";
    const std::string memory =
        fmt::format("{} memory", ucs_memory_type_names[memory_type_of(request)]);
    switch (request.callback_kind) {
        case Kind::kTagReceive:
        case Kind::kAmReceive:
            return fmt::format("{{{}}} recv length {} {}", state, length_of(request), memory);
        case Kind::kStreamReceive:
            return fmt::format("{{{}}} stream recv, room for {} bytes, {}: no debug info", state,
                               length_of(request), memory);
        default:
            return fmt::format("{{{}}} send length {} {} over {} {}", state, length_of(request),
                               request.protocol != nullptr ? request.protocol : "",
                               lane_of(request), memory);
    }
}

}  // namespace

ucs_status_t ucp_request_check_status(void* request) {
    return status_of(Request::from_handle(request));
}

int ucp_request_is_completed(void* request) {
    return Request::from_handle(request).is_finished() ? 1 : 0;
}

ucs_status_t ucp_request_query(void* handle, ucp_request_attr_t* attr) try {
    const auto wants = wanted_of(attr);
    Request& request = Request::from_handle(handle);
    GateLock lock(request.pool->gate());
    if (wants(UCP_REQUEST_ATTR_FIELD_INFO_STRING)) {
        if (!wants(UCP_REQUEST_ATTR_FIELD_INFO_STRING_SIZE)) {
            return UCS_ERR_INVALID_PARAM;
        }
        snprintf(attr->debug_string, attr->debug_string_size, "%s", describe(request).c_str());
    }
    if (wants(UCP_REQUEST_ATTR_FIELD_STATUS)) attr->status = status_of(request);
    if (wants(UCP_REQUEST_ATTR_FIELD_MEM_TYPE)) attr->mem_type = memory_type_of(request);
    return UCS_OK;
} catch (const std::bad_alloc&) {
    return UCS_ERR_NO_MEMORY;
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
