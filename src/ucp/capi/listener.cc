// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/wireup/listener.h"

#include <memory>
#include <new>

#include "ucp/api/ucp.h"
#include "ucp/base/handles.h"
#include "ucp/capi/compat.h"
#include "ucp/worker/worker.h"

using namespace ucp;

ucs_status_t ucp_listener_create(ucp_worker_h worker_h, const ucp_listener_params_t* params,
                                 ucp_listener_h* listener_p) {
    return locked(worker_h, [&](Worker& worker) {
        wireup::ConnectionManager* manager = nullptr;
        ucs_status_t status = worker.connections(&manager);
        if (status != UCS_OK) return status;
        wireup::Listener* listener = nullptr;
        status = wireup::Listener::create(*manager, *params, &listener);
        if (status == UCS_OK) *listener_p = wrap(listener);
        return status;
    });
}

void ucp_listener_destroy(ucp_listener_h listener_h) {
    wireup::Listener& listener = unwrap(listener_h);
    if (listener.is_inherited()) return;
    GateLock lock(listener.gate());
    delete &listener;
}

ucs_status_t ucp_listener_query(ucp_listener_h listener_h, ucp_listener_attr_t* attr) {
    wireup::Listener& listener = unwrap(listener_h);
    GateLock lock(listener.gate());
    if ((attr->field_mask & UCP_LISTENER_ATTR_FIELD_SOCKADDR) != 0) {
        attr->sockaddr = listener.address().storage();
    }
    return UCS_OK;
}

ucs_status_t ucp_listener_reject(ucp_listener_h, ucp_conn_request_h conn_request) try {
    if (conn_request == nullptr) return UCS_ERR_INVALID_PARAM;
    wireup::reject(std::unique_ptr<wireup::ConnectionRequest>(&unwrap(conn_request)));
    return UCS_OK;
} catch (const std::bad_alloc&) {
    return UCS_ERR_NO_MEMORY;
}

ucs_status_t ucp_conn_request_query(ucp_conn_request_h conn_request,
                                    ucp_conn_request_attr_t* attr) {
    const auto wants = wanted_of(attr);
    const wireup::ConnectionRequest& request = unwrap(conn_request);
    if (wants(UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR))
        attr->client_address = request.client.storage();
    if (wants(UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ID)) {
        if (!request.introduction.has_client_id) return UCS_ERR_UNSUPPORTED;
        attr->client_id = request.introduction.client_id;
    }
    return UCS_OK;
}
