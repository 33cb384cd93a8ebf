/* SPDX-License-Identifier: BSD-3-Clause */
/* client_server PORT waits for a greeting; client_server PORT HOST sends one there. */
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

#define CHECK(call)                                      \
    do {                                                 \
        const ucs_status_t got = (call);                 \
        if (got == UCS_OK) break;                        \
        fprintf(stderr, "%s\n", ucs_status_string(got)); \
        exit(1);                                         \
    } while (0)

static const ucp_request_param_t nothing; /* the defaults of every operation */

static void wait_for(ucp_worker_h worker, ucs_status_ptr_t request) {
    ucs_status_t status = UCS_PTR_RAW_STATUS(request);
    if (UCS_PTR_IS_PTR(request)) {
        while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS)
            ucp_worker_progress(worker);
        ucp_request_free(request);
    }
    CHECK(status);
}
static void on_caller(ucp_conn_request_h request, void* caller) {
    *(ucp_conn_request_h*)caller = request;
}

int main(int argc, char** argv) {
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_worker_params_t worker_params = {0};
    ucp_ep_params_t ep_params = {0};
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h peer;
    char text[64] = "hello";
    struct addrinfo* where;
    if (argc < 2 || getaddrinfo(argc > 2 ? argv[2] : "0.0.0.0", argv[1], NULL, &where) != 0)
        return 2;
    CHECK(ucp_init(&params, NULL, &context));
    CHECK(ucp_worker_create(context, &worker_params, &worker));
    if (argc > 2) {
        ep_params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR;
        ep_params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
        ep_params.sockaddr = (ucs_sock_addr_t){where->ai_addr, where->ai_addrlen};
        CHECK(ucp_ep_create(worker, &ep_params, &peer));
        wait_for(worker, ucp_tag_send_nbx(peer, text, sizeof(text), 1, &nothing));
    } else {
        ucp_listener_h listener;
        ucp_conn_request_h caller = NULL;
        ucp_listener_params_t listen = {.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR |
                                                      UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
                                        .sockaddr = {where->ai_addr, where->ai_addrlen},
                                        .conn_handler = {on_caller, &caller}};
        CHECK(ucp_listener_create(worker, &listen, &listener));
        while (caller == NULL) ucp_worker_progress(worker);
        ep_params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST;
        ep_params.conn_request = caller;
        CHECK(ucp_ep_create(worker, &ep_params, &peer));
        wait_for(worker, ucp_tag_recv_nbx(worker, text, sizeof(text), 1, ~0ull, &nothing));
        printf("the caller says: %s\n", text);
        ucp_listener_destroy(listener);
    }
    wait_for(worker, ucp_ep_close_nbx(peer, &nothing));
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    return 0;
}
