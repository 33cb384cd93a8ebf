/* SPDX-License-Identifier: BSD-3-Clause */
/* Contiguous buffers in device memory, handed to a runtime that knows nothing of CUDA: each rank
 * has one of the devices. Prints "passed" at rank 0. */
#include <dlfcn.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { kLongest = 4 << 20, kRounds = 3 };
static const int kSizes[] = {1, 8, 1000, 8192, 65536, 300000, kLongest};
enum { kSizeCount = sizeof(kSizes) / sizeof(*kSizes) };

static int (*get_address)(const char*, void**, int, uint64_t, int*);
static int (*copy)(uint64_t to, uint64_t from, size_t length);
static int (*synchronize)(void* stream);
static int rank, ranks, wrong;
static unsigned char* host;

static void* find(const char* name, int version) {
    void* address = NULL;
    if (get_address(name, &address, version, 0, NULL) != 0 || address == NULL) {
        fprintf(stderr, "the CUDA driver has no %s\n", name);
        exit(1);
    }
    return address;
}

static void must(int result, const char* what) {
    if (result == 0) return;
    fprintf(stderr, "%s gives %d\n", what, result);
    exit(1);
}

/* Device memory of this rank. */
static void* allocate(size_t length) {
    static int (*memory_allocate)(uint64_t*, size_t);
    uint64_t address = 0;
    if (memory_allocate == NULL) {
        void* driver = dlopen("libcuda.so.1", RTLD_NOW);
        if (driver == NULL) {
            fprintf(stderr, "%s\n", dlerror());
            exit(77);
        }
        *(void**)&get_address = dlsym(driver, "cuGetProcAddress_v2");
        int (*init)(unsigned) = find("cuInit", 2000);
        int (*count)(int*) = find("cuDeviceGetCount", 2000);
        int (*retain)(void**, int) = find("cuDevicePrimaryCtxRetain", 7000);
        int (*set)(void*) = find("cuCtxSetCurrent", 4000);
        *(void**)&memory_allocate = find("cuMemAlloc", 3020);
        *(void**)&copy = find("cuMemcpy", 4000);
        *(void**)&synchronize = find("cuStreamSynchronize", 2000);
        int devices = 0;
        void* context = NULL;
        must(init(0), "cuInit");
        must(count(&devices), "cuDeviceGetCount");
        must(devices == 0, "devices");
        must(retain(&context, rank % devices), "cuDevicePrimaryCtxRetain");
        must(set(context), "cuCtxSetCurrent");
    }
    must(memory_allocate(&address, length), "cuMemAlloc");
    return (void*)(uintptr_t)address;
}

static unsigned char content(int seed, int at) {
    return (unsigned char)(at * 31 + seed * 7 + (at >> 8));
}
static void fill(void* device, int length, int seed) {
    for (int i = 0; i < length; ++i) host[i] = content(seed, i);
    must(copy((uintptr_t)device, (uintptr_t)host, length), "cuMemcpy");
    must(synchronize(NULL), "cuStreamSynchronize");
}
static void expect(const char* what, const void* device, int length, int seed) {
    must(copy((uintptr_t)host, (uintptr_t)device, length), "cuMemcpy");
    for (int i = 0; i < length; ++i) {
        if (host[i] == content(seed, i)) continue;
        fprintf(stderr, "rank %d: %s of %d bytes: byte %d is wrong\n", rank, what, length, i);
        wrong = 1;
        return;
    }
}

static void messages(void* out, void* in) {
    const int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
    for (size_t s = 0; s < kSizeCount; ++s) {
        const int length = kSizes[s];
        MPI_Request requests[2];
        MPI_Recv_init(in, length, MPI_BYTE, last, 2, MPI_COMM_WORLD, &requests[0]);
        MPI_Send_init(out, length, MPI_BYTE, next, 2, MPI_COMM_WORLD, &requests[1]);
        for (int round = 0; round < kRounds; ++round) {
            fill(out, length, rank + round);
            MPI_Sendrecv(out, length, MPI_BYTE, next, 1, in, length, MPI_BYTE, last, 1,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            expect("MPI_Sendrecv", in, length, last + round);
            fill(out, length, rank + round + 100);
            MPI_Startall(2, requests);
            MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
            expect("a persistent message", in, length, last + round + 100);
        }
        MPI_Request_free(&requests[0]);
        MPI_Request_free(&requests[1]);
    }
}

/* Windows of device memory, written and read from device memory. */
static void one_sided(void* out, void* in) {
    void* target = allocate(kLongest);
    MPI_Win window;
    MPI_Win_create(target, kLongest, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    const int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
    for (size_t s = 0; s < kSizeCount; ++s) {
        const int length = kSizes[s];
        fill(out, length, rank + 50);
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, next, 0, window);
        MPI_Put(out, length, MPI_BYTE, next, 0, length, MPI_BYTE, window);
        MPI_Win_unlock(next, window);
        MPI_Barrier(MPI_COMM_WORLD);
        expect("MPI_Put", target, length, last + 50);
        MPI_Win_lock(MPI_LOCK_SHARED, next, 0, window);
        MPI_Get(in, length, MPI_BYTE, next, 0, length, MPI_BYTE, window);
        MPI_Win_unlock(next, window);
        expect("MPI_Get", in, length, rank + 50);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Win_free(&window);
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    host = malloc(kLongest);
    void* out = allocate(kLongest);
    void* in = allocate(kLongest);
    messages(out, in);
    for (size_t s = 0; s < kSizeCount; ++s) {
        fill(out, kSizes[s], rank + 3);
        MPI_Bcast(out, kSizes[s], MPI_BYTE, 0, MPI_COMM_WORLD);
        expect("MPI_Bcast", out, kSizes[s], 3);
    }
    one_sided(out, in);
    int all = 0;
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0 && all == 0) puts("passed");
    MPI_Finalize();
    return all != 0;
}
