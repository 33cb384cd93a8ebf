/* SPDX-License-Identifier: BSD-3-Clause */
/* Runtimes load the library for a component and close it again at their end, as Open MPI does: what
 * it has left in the process (modules, hooks of memory events) must not be called in memory that is
 * gone. Usage: unload LIBUCP */
#include <dlfcn.h>
#include <stdio.h>
#include <sys/mman.h>
#include <ucp/api/ucp.h>

enum { kRounds = 3, kMappings = 100, kLength = 4 << 20 };

static void* find(void* library, const char* name) {
    void* address = dlsym(library, name);
    if (address == NULL) fprintf(stderr, "no %s\n", name);
    return address;
}

static int use(const char* path) {
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    ucs_status_t (*init)(unsigned, unsigned, const ucp_params_t*, const ucp_config_t*,
                         ucp_context_h*) = find(library, "ucp_init_version");
    void (*cleanup)(ucp_context_h) = find(library, "ucp_cleanup");
    ucs_status_t (*create)(ucp_context_h, const ucp_worker_params_t*, ucp_worker_h*) =
        find(library, "ucp_worker_create");
    void (*destroy)(ucp_worker_h) = find(library, "ucp_worker_destroy");
    if (!init || !cleanup || !create || !destroy) return 1;

    const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                 .features = UCP_FEATURE_TAG | UCP_FEATURE_RMA};
    const ucp_worker_params_t worker_params = {.field_mask = 0};
    ucp_context_h context;
    ucp_worker_h worker;
    if (init(UCP_API_MAJOR, UCP_API_MINOR, &params, NULL, &context) != UCS_OK) return 1;
    if (create(context, &worker_params, &worker) != UCS_OK) return 1;
    destroy(worker);
    cleanup(context);
    return dlclose(library) != 0;
}

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    for (int round = 0; round < kRounds; ++round) {
        if (use(argv[1]) != 0) return 1;
        for (int i = 0; i < kMappings; ++i) {
            void* memory = mmap(NULL, kLength, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (memory == MAP_FAILED || munmap(memory, kLength) != 0) return 1;
        }
    }
    return 0;
}
