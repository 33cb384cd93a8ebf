/* SPDX-License-Identifier: BSD-3-Clause */
/* A collective operation, the third argument, in microseconds: the mean of the slowest rank. The
   length is what each rank sends to each other one (alltoall), contributes (allgather, allreduce),
   receives (reduce_scatter) or is told (bcast); sums are of doubles. Or pairs of neighbours that
   exchange messages of the length: of what nobody writes (exchange), or of what each writes in
   between (halo), which is in the time. */
#include "bench.h"

static char *out, *in;

static void alltoall(int length) {
    MPI_Alltoall(out, length, MPI_BYTE, in, length, MPI_BYTE, MPI_COMM_WORLD);
}
static void allgather(int length) {
    MPI_Allgather(out, length, MPI_BYTE, in, length, MPI_BYTE, MPI_COMM_WORLD);
}
static void bcast(int length) {
    MPI_Bcast(out, length, MPI_BYTE, 0, MPI_COMM_WORLD);
}
static void allreduce(int length) {
    MPI_Allreduce(out, in, length / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}
static void reduce_scatter(int length) {
    MPI_Reduce_scatter_block(out, in, length / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

/* The last of an odd number has nobody. */
static void exchange(int length) {
    if ((rank ^ 1) < size)
        MPI_Sendrecv(out, length, MPI_BYTE, rank ^ 1, 1, in, length, MPI_BYTE, rank ^ 1, 1,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}
static void halo(int length) {
    exchange(length);
    double* const mine = (double*)out;
    const double* const theirs = (const double*)in;
    for (int i = 0; i < length / 8; ++i) mine[i] = 0.5 * mine[i] + theirs[i];
}

static const struct {
    const char* name;
    void (*run)(int length);
    int is_of_all; /* a rank's memory is as long as the lengths of all together */
} kOperations[] = {
    {"alltoall", alltoall, 1},  {"allgather", allgather, 1}, {"reduce_scatter", reduce_scatter, 1},
    {"bcast", bcast, 0},        {"exchange", exchange, 0},   {"halo", halo, 0},
    {"allreduce", allreduce, 0}};

int main(int argc, char** argv) {
    begin(&argc, &argv);
    size_t which = 0;
    const size_t count = sizeof(kOperations) / sizeof(kOperations[0]);
    while (argc > 3 && which < count && strcmp(argv[3], kOperations[which].name) != 0) ++which;
    if (argc <= 3 || which == count) MPI_Abort(MPI_COMM_WORLD, 2);
    const size_t parts = kOperations[which].is_of_all ? (size_t)size : 1;
    out = buffer(parts * largest);
    in = buffer(parts * largest);
    for (size_t length = 8; length <= largest; length *= length < 8192 ? 4 : 2) {
        const int times = rounds(length * (size_t)size, 2000), warm = times / 10 + 2;
        double start = 0;
        for (int i = 0; i < warm + times; ++i) {
            if (i == warm) {
                MPI_Barrier(MPI_COMM_WORLD);
                start = MPI_Wtime();
            }
            kOperations[which].run((int)length);
        }
        double took = MPI_Wtime() - start, longest = 0;
        MPI_Reduce(&took, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        report(length, longest * 1e6 / times);
    }
    free(out);
    free(in);
    MPI_Finalize();
    return 0;
}
