// SPDX-License-Identifier: BSD-3-Clause
// What the MPI programs share: checks that count failures, patterns, and the last line's verdict.
#pragma once

#include <mpi.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;
static int failures;

#define CHECK(condition)                                                                       \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            if (++failures <= 5)                                                               \
                fprintf(stderr, "rank %d: %s:%d: %s\n", rank, __FILE__, __LINE__, #condition); \
        }                                                                                      \
    } while (0)

#define CHECK_EQUAL(a, b)                                                                 \
    do {                                                                                  \
        long long left = (long long)(a), right = (long long)(b);                          \
        if (left != right) {                                                              \
            if (++failures <= 5)                                                          \
                fprintf(stderr, "rank %d: %s:%d: %s is %lld, not %lld\n", rank, __FILE__, \
                        __LINE__, #a, left, right);                                       \
        }                                                                                 \
    } while (0)

// Bytes that depend on their place and on a seed, so that a shifted or foreign block shows.
static inline unsigned char pattern(size_t place, unsigned seed) {
    return (unsigned char)(place * 7 + (place >> 8) * 13 + seed * 31 + 5);
}

static inline void fill(void* buffer, size_t length, unsigned seed) {
    unsigned char* bytes = buffer;
    for (size_t i = 0; i < length; ++i) bytes[i] = pattern(i, seed);
}

static inline int matches(const void* buffer, size_t length, unsigned seed) {
    const unsigned char* bytes = buffer;
    for (size_t i = 0; i < length; ++i)
        if (bytes[i] != pattern(i, seed)) return 0;
    return 1;
}

static inline void begin(int* argc, char*** argv) {
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
}

// Ends MPI. The runner looks for the verdict of rank 0: a program that exits early has none.
static inline int end(const char* name) {
    int sum = 0;
    MPI_Allreduce(&failures, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%s %s ranks=%d failures=%d\n", name, sum == 0 ? "PASSED" : "FAILED", size, sum);
    fflush(stdout);
    MPI_Finalize();
    return sum != 0;
}
