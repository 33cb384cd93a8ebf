// SPDX-License-Identifier: BSD-3-Clause
// What the benchmarks of all runtimes share: the arguments, how many rounds, and what is printed,
// by rank 0: lines of a message size and a figure.
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;
static size_t largest = 1 << 20;  // first argument
static double effort = 1;         // second argument: factor on the number of rounds

static inline void read_arguments(int argc, char** argv) {
    if (argc > 1) largest = (size_t)atol(argv[1]);
    if (argc > 2) effort = atof(argv[2]);
}

// Fewer rounds for longer messages, so that each size takes about as long.
static inline int rounds(size_t length, int most) {
    const double wanted = most * effort / (1 + (double)length / 4096);
    return wanted < 10 ? 10 : (int)wanted;
}

static inline void report(size_t length, double figure) {
    if (rank == 0) printf("%zu %.6g\n", length, figure);
    fflush(stdout);
}
