/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All-to-all exchanges of 1 byte to 64 KiB for each pair of ranks, every byte checked: one at a
 * time, and several under way at once. All pairs are equally warm. Prints microseconds, which
 * include the checks.
 *
 *   alltoall [SECONDS of each size] [LARGEST]
 */
#include "check.h"

enum { kUnderWay = 3 };

static unsigned seed(int from, int to, unsigned round) {
    return (unsigned)from * 5003u + (unsigned)to * 67u + round;
}

static unsigned char *out[kUnderWay], *in[kUnderWay];

static void prepare(int slot, size_t length, unsigned round) {
    for (int to = 0; to < size; ++to)
        fill(out[slot] + (size_t)to * length, length, seed(rank, to, round));
    memset(in[slot], 0, (size_t)size * length);
}

static void inspect(int slot, size_t length, unsigned round) {
    for (int from = 0; from < size; ++from)
        CHECK(matches(in[slot] + (size_t)from * length, length, seed(from, rank, round)));
}

/* Rounds done: all ranks agree on the last one. */
static unsigned run(size_t length, double seconds) {
    const double until = MPI_Wtime() + seconds;
    const int count = (int)length;
    unsigned round = 0;
    int more = 1;
    while (more) {
        MPI_Request requests[kUnderWay];
        prepare(0, length, round);
        MPI_Alltoall(out[0], count, MPI_BYTE, in[0], count, MPI_BYTE, MPI_COMM_WORLD);
        inspect(0, length, round++);
        for (int i = 0; i < kUnderWay; ++i) {
            prepare(i, length, round + (unsigned)i);
            MPI_Ialltoall(out[i], count, MPI_BYTE, in[i], count, MPI_BYTE, MPI_COMM_WORLD,
                          &requests[i]);
        }
        MPI_Waitall(kUnderWay, requests, MPI_STATUSES_IGNORE);
        for (int i = 0; i < kUnderWay; ++i) inspect(i, length, round++);
        const int mine = MPI_Wtime() < until;
        MPI_Allreduce(&mine, &more, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    }
    return round;
}

int main(int argc, char** argv) {
    begin(&argc, &argv);
    const double seconds = argc > 1 ? atof(argv[1]) : 0.1;
    const size_t largest = argc > 2 ? (size_t)atol(argv[2]) : 64 << 10;
    for (int i = 0; i < kUnderWay; ++i) {
        out[i] = malloc(largest * (size_t)size);
        in[i] = malloc(largest * (size_t)size);
    }
    for (size_t length = 1; length <= largest; length *= 8) {
        const double start = MPI_Wtime();
        const unsigned rounds = run(length, seconds);
        if (rank == 0) printf("%zu %.2f\n", length, (MPI_Wtime() - start) * 1e6 / rounds);
    }
    for (int i = 0; i < kUnderWay; ++i) {
        free(out[i]);
        free(in[i]);
    }
    return end("alltoall");
}
