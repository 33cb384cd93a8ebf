/* SPDX-License-Identifier: BSD-3-Clause */
/* Links with the system's UCX: says which files its ucp and its ucs are of, after a message to
 * itself. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <ucp/api/ucp.h>

size_t ucs_get_page_size(void); /* what UCX's libucs has and ours has not */

static const char* file_of(void* function) {
    Dl_info info;
    return dladdr(function, &info) != 0 ? info.dli_fname : "nowhere";
}

static void wait_for(ucp_worker_h worker, ucs_status_ptr_t request) {
    if (!UCS_PTR_IS_PTR(request)) return;
    while (ucp_request_check_status(request) == UCS_INPROGRESS) ucp_worker_progress(worker);
    ucp_request_free(request);
}

int main(void) {
    ucp_params_t params = {0};
    ucp_worker_params_t worker_params = {0};
    ucp_ep_params_t ep_params = {0};
    ucp_request_param_t nothing = {0};
    ucp_address_t* address;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h ep;
    size_t length;
    char sent[] = "there", got[sizeof(sent)] = "";
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_TAG;
    if (ucp_init_version(1, 13, &params, NULL, &context) != UCS_OK) return 1;
    if (ucp_worker_create(context, &worker_params, &worker) != UCS_OK) return 2;
    if (ucp_worker_get_address(worker, &address, &length) != UCS_OK) return 3;
    ep_params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    ep_params.address = address;
    if (ucp_ep_create(worker, &ep_params, &ep) != UCS_OK) return 4;
    ucs_status_ptr_t receive =
        ucp_tag_recv_nbx(worker, got, sizeof(got), 1, (ucp_tag_t)-1, &nothing);
    wait_for(worker, ucp_tag_send_nbx(ep, sent, sizeof(sent), 1, &nothing));
    wait_for(worker, receive);
    wait_for(worker, ucp_ep_close_nbx(ep, &nothing));
    ucp_worker_release_address(worker, address);
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    if (strcmp(got, sent) != 0 || ucs_get_page_size() == 0) return 5;
    printf("%s %s\n", file_of((void*)&ucp_get_version_string), file_of((void*)&ucs_get_page_size));
    return 0;
}
