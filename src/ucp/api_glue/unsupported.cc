// SPDX-License-Identifier: BSD-3-Clause

// Functions of the interface that the library does not offer yet: streams, listeners, exported
// memory handles. Each says so once in the log and fails.

#include <cstdlib>

#include "ucp/api/ucp.h"
#include "ucs/log.h"

namespace {

ucs_status_t refuse(const char* function) {
    ucs::log_warn("{} is not supported yet", function);
    return UCS_ERR_UNSUPPORTED;
}

ucs_status_ptr_t refuse_pointer(const char* function) {
    return UCS_STATUS_PTR(refuse(function));
}

}  // namespace

ucs_status_ptr_t ucp_stream_send_nbx(ucp_ep_h, const void*, size_t, const ucp_request_param_t*) {
    return refuse_pointer(__func__);
}

ucs_status_ptr_t ucp_stream_send_nb(ucp_ep_h, const void*, size_t, ucp_datatype_t,
                                    ucp_send_callback_t, unsigned) {
    return refuse_pointer(__func__);
}

ucs_status_ptr_t ucp_stream_recv_nbx(ucp_ep_h, void*, size_t, size_t*, const ucp_request_param_t*) {
    return refuse_pointer(__func__);
}

ucs_status_ptr_t ucp_stream_recv_nb(ucp_ep_h, void*, size_t, ucp_datatype_t,
                                    ucp_stream_recv_callback_t, size_t*, unsigned) {
    return refuse_pointer(__func__);
}

ucs_status_ptr_t ucp_stream_recv_data_nb(ucp_ep_h, size_t*) {
    return refuse_pointer(__func__);
}

void ucp_stream_data_release(ucp_ep_h, void*) {}

ssize_t ucp_stream_worker_poll(ucp_worker_h, ucp_stream_poll_ep_t*, size_t, unsigned) {
    return refuse(__func__);
}

ucs_status_t ucp_stream_recv_request_test(void*, size_t*) {
    return refuse(__func__);
}

ucs_status_t ucp_listener_create(ucp_worker_h, const ucp_listener_params_t*, ucp_listener_h*) {
    return refuse(__func__);
}

void ucp_listener_destroy(ucp_listener_h) {}

ucs_status_t ucp_listener_query(ucp_listener_h, ucp_listener_attr_t*) {
    return refuse(__func__);
}

ucs_status_t ucp_listener_reject(ucp_listener_h, ucp_conn_request_h) {
    return refuse(__func__);
}

ucs_status_t ucp_conn_request_query(ucp_conn_request_h, ucp_conn_request_attr_t*) {
    return refuse(__func__);
}
