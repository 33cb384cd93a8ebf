/* SPDX-License-Identifier: BSD-3-Clause */
/* Collective operations, blocking and not, at sizes of every algorithm, with their results checked.
 */
#include "check.h"

static void reductions(int count) {
    double* out = malloc(sizeof(double) * (size_t)count);
    double* in = calloc((size_t)count, sizeof(double));
    const double ranks = size * (size - 1) / 2.0;
    for (int i = 0; i < count; ++i) out[i] = rank + (i % 100);
    MPI_Allreduce(out, in, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    int wrong = 0;
    for (int i = 0; i < count; ++i) wrong += in[i] != ranks + size * (i % 100);
    CHECK_EQUAL(wrong, 0);
    MPI_Reduce(out, in, count, MPI_DOUBLE, MPI_MAX, size - 1, MPI_COMM_WORLD);
    wrong = 0;
    for (int i = 0; i < count && rank == size - 1; ++i) wrong += in[i] != size - 1 + (i % 100);
    MPI_Scan(out, in, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < count; ++i)
        wrong += in[i] != rank * (rank + 1) / 2.0 + (rank + 1) * (i % 100);
    CHECK_EQUAL(wrong, 0);
    MPI_Request request;
    memset(in, 0, sizeof(double) * (size_t)count);
    MPI_Iallreduce(out, in, count, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    wrong = 0;
    for (int i = 0; i < count; ++i) wrong += in[i] != i % 100;
    CHECK_EQUAL(wrong, 0);
    free(out);
    free(in);
}

static void spread(int length) {
    char* block = malloc((size_t)length + 1);
    char* blocks = malloc((size_t)length * (size_t)size + 1);
    char* back = malloc((size_t)length * (size_t)size + 1);
    for (int root = 0; root < size; ++root) {
        if (rank == root)
            fill(block, (size_t)length, (unsigned)root);
        else
            memset(block, 0, (size_t)length);
        MPI_Bcast(block, length, MPI_BYTE, root, MPI_COMM_WORLD);
        CHECK(matches(block, (size_t)length, (unsigned)root));
    }
    fill(block, (size_t)length, (unsigned)rank);
    MPI_Allgather(block, length, MPI_BYTE, blocks, length, MPI_BYTE, MPI_COMM_WORLD);
    for (int i = 0; i < size; ++i)
        CHECK(matches(blocks + (size_t)i * (size_t)length, (size_t)length, (unsigned)i));
    for (int i = 0; i < size; ++i)
        fill(blocks + (size_t)i * (size_t)length, (size_t)length, (unsigned)(rank * size + i));
    MPI_Alltoall(blocks, length, MPI_BYTE, back, length, MPI_BYTE, MPI_COMM_WORLD);
    for (int i = 0; i < size; ++i)
        CHECK(matches(back + (size_t)i * (size_t)length, (size_t)length,
                      (unsigned)(i * size + rank)));
    MPI_Request request;
    memset(back, 0, (size_t)length * (size_t)size);
    MPI_Ialltoall(blocks, length, MPI_BYTE, back, length, MPI_BYTE, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int i = 0; i < size; ++i)
        CHECK(matches(back + (size_t)i * (size_t)length, (size_t)length,
                      (unsigned)(i * size + rank)));
    MPI_Gather(block, length, MPI_BYTE, back, length, MPI_BYTE, 0, MPI_COMM_WORLD);
    for (int i = 0; i < size && rank == 0; ++i)
        CHECK(matches(back + (size_t)i * (size_t)length, (size_t)length, (unsigned)i));
    MPI_Scatter(back, length, MPI_BYTE, block, length, MPI_BYTE, 0, MPI_COMM_WORLD);
    CHECK(matches(block, (size_t)length, (unsigned)rank));
    free(block);
    free(blocks);
    free(back);
}

static void uneven(void) {
    int* counts = malloc(sizeof(int) * (size_t)size);
    int* places = malloc(sizeof(int) * (size_t)size);
    int total = 0;
    for (int i = 0; i < size; ++i) {
        counts[i] = (i * 7919) % 5000;
        places[i] = total;
        total += counts[i];
    }
    char* all = calloc(1, (size_t)total + 1);
    char* own = malloc((size_t)counts[rank] + 1);
    fill(own, (size_t)counts[rank], (unsigned)rank);
    MPI_Allgatherv(own, counts[rank], MPI_BYTE, all, counts, places, MPI_BYTE, MPI_COMM_WORLD);
    for (int i = 0; i < size; ++i) CHECK(matches(all + places[i], (size_t)counts[i], (unsigned)i));
    free(all);
    free(own);
    free(counts);
    free(places);
}

int main(int argc, char** argv) {
    begin(&argc, &argv);
    static const int counts[] = {1, 100, 3000, 100000};
    for (int i = 0; i < 4; ++i) reductions(counts[i]);
    static const int lengths[] = {1, 60, 2000, 20000, 300000};
    for (int i = 0; i < 5; ++i) spread(lengths[i]);
    uneven();
    for (int i = 0; i < 100; ++i) MPI_Barrier(MPI_COMM_WORLD);
    MPI_Request barriers[20];
    for (int i = 0; i < 20; ++i) MPI_Ibarrier(MPI_COMM_WORLD, &barriers[i]);
    MPI_Waitall(20, barriers, MPI_STATUSES_IGNORE);
    return end("collectives");
}
