// SPDX-License-Identifier: BSD-3-Clause
// What the benchmarks of MPI share.
#pragma once

#include <mpi.h>

#include "rounds.h"

static inline void begin_threaded(int* argc, char*** argv, int wanted) {
    int level = 0;
    MPI_Init_thread(argc, argv, wanted, &level);
    if (level < wanted) MPI_Abort(MPI_COMM_WORLD, 3);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    read_arguments(*argc, *argv);
}

static inline void begin(int* argc, char*** argv) {
    begin_threaded(argc, argv, MPI_THREAD_SINGLE);
}

static inline void* buffer(size_t length) {
    void* memory = NULL;
    if (posix_memalign(&memory, 4096, length == 0 ? 1 : length) != 0) MPI_Abort(MPI_COMM_WORLD, 1);
    memset(memory, 1, length == 0 ? 1 : length);
    return memory;
}
