/* SPDX-License-Identifier: BSD-3-Clause */
/* Loads the libraries named in this order into one process; a context and a worker of each live at
 * the same time. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucp/api/ucp.h>

#define FUNCTION(name) __typeof__(&name) my_##name = (__typeof__(&name))dlsym(library, #name)

static int use(void* library) {
    FUNCTION(ucp_get_version_string);
    FUNCTION(ucp_init_version);
    FUNCTION(ucp_worker_create);
    FUNCTION(ucp_worker_progress);
    ucp_params_t params;
    ucp_worker_params_t worker_params;
    ucp_context_h context;
    ucp_worker_h worker;
    ucs_status_t status;
    memset(&params, 0, sizeof(params));
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_TAG;
    memset(&worker_params, 0, sizeof(worker_params));
    status = my_ucp_init_version(1, 13, &params, NULL, &context);
    if (status == UCS_OK) status = my_ucp_worker_create(context, &worker_params, &worker);
    if (status != UCS_OK) {
        fprintf(stderr, "%s: status %d\n", my_ucp_get_version_string(), status);
        return 0;
    }
    my_ucp_worker_progress(worker);
    printf("%s ", my_ucp_get_version_string());
    return 1;
}

int main(int argc, char** argv) {
    int i;
    int good = 1;
    for (i = 1; i < argc; ++i) {
        void* library = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
        if (library == NULL) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        good &= use(library);
    }
    munmap(mmap(NULL, 1 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1 << 20);
    puts("");
    return good ? 0 : 1;
}
