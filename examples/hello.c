/* SPDX-License-Identifier: BSD-3-Clause */
/* Two processes greet each other: each tells the other beforehand where its worker is. */
#include <err.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

static void check(ucs_status_t status) {
    if (status != UCS_OK) errx(1, "%s", ucs_status_string(status));
}
static void finish(ucp_worker_h worker, ucs_status_ptr_t handle) {
    while (UCS_PTR_IS_PTR(handle) && ucp_request_check_status(handle) == UCS_INPROGRESS)
        ucp_worker_progress(worker);
    check(UCS_PTR_IS_PTR(handle) ? ucp_request_check_status(handle) : UCS_PTR_RAW_STATUS(handle));
    if (handle != NULL) ucp_request_free(handle);
}
int main(void) {
    const ucp_params_t params = {UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_worker_attr_t mine = {.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS};
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h peer;
    char theirs[4096], text[64];
    int wire[2], child, result = 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, wire) != 0 || (child = fork()) < 0) err(1, "fork");
    close(wire[child == 0]); /* the other's end: if it dies, reading ends */
    check(ucp_init(&params, NULL, &context));
    check(ucp_worker_create(context, &(ucp_worker_params_t){0}, &worker));
    check(ucp_worker_query(worker, &mine));
    if (write(wire[child != 0], mine.address, mine.address_length) < 0) err(1, "write");
    if (read(wire[child != 0], theirs, sizeof(theirs)) <= 0) err(1, "read");
    const ucp_ep_params_t where = {UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = (void*)theirs};
    check(ucp_ep_create(worker, &where, &peer));
    finish(worker, ucp_tag_send_nbx(peer, "hello", sizeof("hello"), 1, &(ucp_request_param_t){0}));
    finish(worker, ucp_tag_recv_nbx(worker, text, sizeof(text), 1, -1, &(ucp_request_param_t){0}));
    printf("process %d hears: %s\n", getpid(), text);
    finish(worker, ucp_ep_close_nbx(peer, &(ucp_request_param_t){0}));
    ucp_worker_release_address(worker, mine.address);
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    return child != 0 && (wait(&result) != child || result != 0);
}
