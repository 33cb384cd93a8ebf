// SPDX-License-Identifier: BSD-3-Clause
// What the OpenSHMEM programs share: checks that count failures, and the last line's verdict.
#pragma once

#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int me, count;
static int failures;

#define CHECK(condition)                                                               \
    do {                                                                               \
        if (!(condition) && ++failures <= 5)                                           \
            fprintf(stderr, "pe %d: %s:%d: %s\n", me, __FILE__, __LINE__, #condition); \
    } while (0)

// For reductions; between two of them lies a barrier.
static long sync_area[SHMEM_REDUCE_SYNC_SIZE];

static inline void begin(void) {
    shmem_init();
    me = shmem_my_pe();
    count = shmem_n_pes();
    for (int i = 0; i < SHMEM_REDUCE_SYNC_SIZE; ++i) sync_area[i] = SHMEM_SYNC_VALUE;
    shmem_barrier_all();
}

// Ends OpenSHMEM. The runner looks for the verdict of the first: a program that exits early has
// none.
static inline int end(const char* name) {
    static int sum, part, work[SHMEM_REDUCE_MIN_WRKDATA_SIZE];
    part = failures;
    shmem_barrier_all();
    shmem_int_sum_to_all(&sum, &part, 1, 0, 0, count, work, sync_area);
    if (me == 0)
        printf("%s %s ranks=%d failures=%d\n", name, sum == 0 ? "PASSED" : "FAILED", count, sum);
    fflush(stdout);
    shmem_finalize();
    return sum != 0;
}
