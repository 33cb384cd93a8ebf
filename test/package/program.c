/* SPDX-License-Identifier: BSD-3-Clause */
/* A message from a worker to itself; prints the library's version. */
#include <stdio.h>
#include <string.h>
#include <ucp/api/ucp.h>

static int is_done(ucp_worker_h worker, ucs_status_ptr_t request) {
    ucs_status_t status = UCS_PTR_RAW_STATUS(request);
    if (UCS_PTR_IS_PTR(request)) {
        while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS)
            ucp_worker_progress(worker);
        ucp_request_free(request);
    }
    if (status != UCS_OK) fprintf(stderr, "%s\n", ucs_status_string(status));
    return status == UCS_OK;
}

int main(void) {
    ucp_params_t params;
    ucp_worker_params_t worker_params;
    ucp_ep_params_t ep_params;
    ucp_request_param_t param;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h ep;
    size_t length;
    char received[6] = "";
    int good;

    memset(&params, 0, sizeof(params));
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_TAG;
    memset(&worker_params, 0, sizeof(worker_params));
    memset(&ep_params, 0, sizeof(ep_params));
    ep_params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    memset(&param, 0, sizeof(param));
    if (ucp_init(&params, NULL, &context) != UCS_OK) return 1;
    if (ucp_worker_create(context, &worker_params, &worker) != UCS_OK) return 1;
    if (ucp_worker_get_address(worker, (ucp_address_t**)&ep_params.address, &length) != UCS_OK)
        return 1;
    if (ucp_ep_create(worker, &ep_params, &ep) != UCS_OK) return 1;

    ucs_status_ptr_t send = ucp_tag_send_nbx(ep, "hello", 6, 7, &param);
    ucs_status_ptr_t receive = ucp_tag_recv_nbx(worker, received, 6, 7, ~0ull, &param);
    good = is_done(worker, receive) & is_done(worker, send) & (strcmp(received, "hello") == 0);
    good &= is_done(worker, ucp_ep_close_nbx(ep, &param));
    ucp_worker_release_address(worker, (ucp_address_t*)ep_params.address);
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    printf("%s %s\n", good ? received : "failed", ucp_get_version_string());
    return good ? 0 : 1;
}
