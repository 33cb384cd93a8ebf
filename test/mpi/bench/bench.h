// SPDX-License-Identifier: BSD-3-Clause
// What the benchmarks share. Each prints lines of a message size and a figure, from rank 0.
#pragma once

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;
static size_t largest = 1 << 20;  // first argument
static double effort = 1;         // second argument: factor on the number of rounds

static inline void begin(int* argc, char*** argv) {
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (*argc > 1) largest = (size_t)atol((*argv)[1]);
    if (*argc > 2) effort = atof((*argv)[2]);
}

// Fewer rounds for longer messages, so that each size takes about as long.
static inline int rounds(size_t length, int most) {
    const double wanted = most * effort / (1 + (double)length / 4096);
    return wanted < 10 ? 10 : (int)wanted;
}

static inline void* buffer(size_t length) {
    void* memory = NULL;
    if (posix_memalign(&memory, 4096, length == 0 ? 1 : length) != 0) MPI_Abort(MPI_COMM_WORLD, 1);
    memset(memory, 1, length == 0 ? 1 : length);
    return memory;
}

static inline void report(size_t length, double figure) {
    if (rank == 0) printf("%zu %.6g\n", length, figure);
    fflush(stdout);
}
