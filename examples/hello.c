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
static void finish(ucp_worker_h worker, ucs_status_ptr_t request) {
    ucs_status_t state = UCS_PTR_RAW_STATUS(request); /* of what was over at once */
    while (UCS_PTR_IS_PTR(request) && (state = ucp_request_check_status(request)) == UCS_INPROGRESS)
        ucp_worker_progress(worker);
    check(state);
    if (request != NULL) ucp_request_free(request);
}
int main(void) {
    const ucp_params_t params = {UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    const ucp_request_param_t defaults = {0};
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h peer;
    ucp_address_t* address;
    size_t length;
    char theirs[4096], text[64];
    int ends[2], result = 0;
    const pid_t child = socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0 ? fork() : -1;
    if (child < 0) err(1, "no second process");
    const int wire = ends[child == 0];
    close(ends[child != 0]);

    check(ucp_init(&params, NULL, &context));
    check(ucp_worker_create(context, &(ucp_worker_params_t){0}, &worker));
    check(ucp_worker_get_address(worker, &address, &length));
    if (write(wire, address, length) < 0 || read(wire, theirs, sizeof(theirs)) <= 0) err(1, "wire");
    const ucp_ep_params_t where = {UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = (void*)theirs};
    check(ucp_ep_create(worker, &where, &peer));
    finish(worker, ucp_tag_send_nbx(peer, "hello", sizeof("hello"), 1, &defaults));
    finish(worker, ucp_tag_recv_nbx(worker, text, sizeof(text), 1, ~0ull, &defaults));
    printf("process %d hears: %s\n", getpid(), text);
    finish(worker, ucp_ep_close_nbx(peer, &defaults));
    ucp_worker_release_address(worker, address);
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    return child != 0 && (wait(&result) != child || result != 0);
}
