/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An operation of OpenSHMEM, the third argument, in microseconds; `puts` in millions a second. The
 * first half of the ranks operate on words and buffers of the second, which waits in a barrier; a
 * barrier is of all. A put ends with shmem_quiet(), as does an increment, which has no answer.
 */
#include <shmem.h>
#include <time.h>

#include "rounds.h"

enum { kWindow = 64 };

static char *out, *in;
static long* word;
static int peer;

static void put(size_t length) {
    shmem_putmem(in, out, length, peer);
    shmem_quiet();
}
static void puts_of_window(size_t length) {
    for (int i = 0; i < kWindow; ++i) shmem_putmem_nbi(in, out, length, peer);
    shmem_quiet();
}
static void get(size_t length) {
    shmem_getmem(in, out, length, peer);
}
static void fetch_add(size_t length) {
    (void)length;
    shmem_long_atomic_fetch_add(word, 1, peer);
}
static void compare_swap(size_t length) {
    (void)length;
    shmem_long_atomic_compare_swap(word, 0, 1, peer);
}
static void inc(size_t length) {
    (void)length;
    shmem_long_atomic_inc(word, peer);
    shmem_quiet();
}
static void barrier(size_t length) {
    (void)length;
    shmem_barrier_all();
}

static const struct Operation {
    const char* name;
    void (*run)(size_t length);
    size_t only_size; /* 0: as long as the first argument lets it be */
    int is_of_all;
    int is_rate;
} kOperations[] = {{"put", put, 0, 0, 0},
                   {"get", get, 0, 0, 0},
                   {"puts", puts_of_window, 0, 0, 1},
                   {"fetch_add", fetch_add, sizeof(long), 0, 0},
                   {"compare_swap", compare_swap, sizeof(long), 0, 0},
                   {"inc", inc, sizeof(long), 0, 0},
                   {"barrier", barrier, 1, 1, 0}};

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Seconds from a barrier of all to the one behind the last operation of any rank, at rank 0. */
static double measure(const struct Operation* operation, size_t length, int times) {
    const int takes_part = operation->is_of_all || rank < size / 2;
    shmem_barrier_all();
    const double start = now();
    for (int i = 0; i < times && takes_part; ++i) operation->run(length);
    shmem_barrier_all();
    return now() - start;
}

int main(int argc, char** argv) {
    shmem_init();
    rank = shmem_my_pe();
    size = shmem_n_pes();
    read_arguments(argc, argv);
    const struct Operation* operation = kOperations;
    const struct Operation* const end = operation + sizeof(kOperations) / sizeof(kOperations[0]);
    while (argc > 3 && operation < end && strcmp(argv[3], operation->name) != 0) ++operation;
    if (argc <= 3 || operation == end || size % 2 != 0) shmem_global_exit(2);
    peer = (rank + size / 2) % size;
    out = shmem_align(4096, largest);
    in = shmem_align(4096, largest);
    word = shmem_malloc(sizeof(long));
    if (out == NULL || in == NULL || word == NULL) shmem_global_exit(1);
    memset(out, 1, largest);
    memset(in, 1, largest);
    *word = 0;
    size_t length = operation->only_size == 0 ? 1 : operation->only_size;
    for (; length <= (operation->only_size == 0 ? largest : operation->only_size); length *= 2) {
        const int times = rounds(length, operation->is_rate ? 1000 : 20000);
        measure(operation, length, times / 10 + 5);
        const double took = measure(operation, length, times);
        report(length, operation->is_rate ? (double)(size / 2) * times * kWindow / took / 1e6
                                          : took * 1e6 / times);
    }
    shmem_barrier_all();
    shmem_free(word);
    shmem_free(in);
    shmem_free(out);
    shmem_finalize();
    return 0;
}
