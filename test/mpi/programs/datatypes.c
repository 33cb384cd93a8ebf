/* SPDX-License-Identifier: BSD-3-Clause */
/* Derived datatypes: vectors, indexed, structures, resized, at sizes of every protocol. */
#include "check.h"

static void exchange(const void* out, int out_count, MPI_Datatype out_type, void* in, int in_count,
                     MPI_Datatype in_type) {
    const int peer = rank ^ 1;
    MPI_Status status;
    MPI_Sendrecv(out, out_count, out_type, peer, 3, in, in_count, in_type, peer, 3, MPI_COMM_WORLD,
                 &status);
}

/* Columns of a matrix to rows, and back. */
static void vectors(int n) {
    int* matrix = malloc(sizeof(int) * (size_t)n * (size_t)n);
    int* row = calloc((size_t)n, sizeof(int));
    for (int i = 0; i < n * n; ++i) matrix[i] = rank * 10000000 + i;
    MPI_Datatype column;
    MPI_Type_vector(n, 1, n, MPI_INT, &column);
    MPI_Type_commit(&column);
    exchange(matrix + 1, 1, column, row, n, MPI_INT);
    int wrong = 0;
    for (int i = 0; i < n; ++i) wrong += row[i] != (rank ^ 1) * 10000000 + i * n + 1;
    CHECK_EQUAL(wrong, 0);
    for (int i = 0; i < n; ++i) row[i] = rank + i;
    exchange(row, n, MPI_INT, matrix, 1, column);
    wrong = 0;
    for (int i = 0; i < n; ++i) wrong += matrix[i * n] != (rank ^ 1) + i;
    for (int i = 0; i < n; ++i)
        for (int j = 1; j < n; ++j) wrong += matrix[i * n + j] != rank * 10000000 + i * n + j;
    CHECK_EQUAL(wrong, 0);
    MPI_Type_free(&column);
    free(matrix);
    free(row);
}

struct particle {
    char kind;
    double place[3];
    short charge;
    int id;
};

static void structures(int count) {
    MPI_Datatype plain, particle;
    const int lengths[] = {1, 3, 1, 1};
    const MPI_Aint places[] = {offsetof(struct particle, kind), offsetof(struct particle, place),
                               offsetof(struct particle, charge), offsetof(struct particle, id)};
    const MPI_Datatype types[] = {MPI_CHAR, MPI_DOUBLE, MPI_SHORT, MPI_INT};
    MPI_Type_create_struct(4, lengths, places, types, &plain);
    MPI_Type_create_resized(plain, 0, sizeof(struct particle), &particle);
    MPI_Type_commit(&particle);
    struct particle* out = malloc(sizeof(*out) * (size_t)count);
    struct particle* in = calloc((size_t)count, sizeof(*in));
    memset(out, 0xee, sizeof(*out) * (size_t)count);
    for (int i = 0; i < count; ++i) {
        out[i].kind = (char)(i + rank);
        for (int axis = 0; axis < 3; ++axis) out[i].place[axis] = i + axis * 0.25 + rank;
        out[i].charge = (short)(-i);
        out[i].id = i * 3 + rank;
    }
    exchange(out, count, particle, in, count, particle);
    const int peer = rank ^ 1;
    int wrong = 0;
    for (int i = 0; i < count; ++i) {
        wrong += in[i].kind != (char)(i + peer) || in[i].charge != (short)(-i) ||
                 in[i].id != i * 3 + peer;
        for (int axis = 0; axis < 3; ++axis) wrong += in[i].place[axis] != i + axis * 0.25 + peer;
    }
    CHECK_EQUAL(wrong, 0);
    free(out);
    free(in);
    MPI_Type_free(&plain);
    MPI_Type_free(&particle);
}

/* Blocks of uneven length, sent as such and received as bytes in a row, through a probe. */
static void indexed(int blocks) {
    int* lengths = malloc(sizeof(int) * (size_t)blocks);
    int* places = malloc(sizeof(int) * (size_t)blocks);
    int total = 0, extent = 0;
    for (int i = 0; i < blocks; ++i) {
        lengths[i] = i % 5;
        places[i] = extent;
        total += lengths[i];
        extent += lengths[i] + 1 + i % 3;
    }
    MPI_Datatype type;
    MPI_Type_indexed(blocks, lengths, places, MPI_LONG, &type);
    MPI_Type_commit(&type);
    long* out = malloc(sizeof(long) * (size_t)extent);
    long* in = calloc((size_t)total + 1, sizeof(long));
    for (int i = 0; i < extent; ++i) out[i] = rank * 1000000L + i;
    const int peer = rank ^ 1;
    MPI_Request request;
    MPI_Status status;
    MPI_Isend(out, 1, type, peer, 5, MPI_COMM_WORLD, &request);
    MPI_Probe(peer, 5, MPI_COMM_WORLD, &status);
    int count;
    MPI_Get_count(&status, MPI_LONG, &count);
    CHECK_EQUAL(count, total);
    MPI_Recv(in, total, MPI_LONG, peer, 5, MPI_COMM_WORLD, &status);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    int at = 0, wrong = 0;
    for (int i = 0; i < blocks; ++i)
        for (int j = 0; j < lengths[i]; ++j) wrong += in[at++] != peer * 1000000L + places[i] + j;
    CHECK_EQUAL(wrong, 0);
    /* A receive into the scattered type from a shorter message leaves the rest alone. */
    for (int i = 0; i < extent; ++i) out[i] = -1;
    MPI_Isend(in, total / 2, MPI_LONG, peer, 6, MPI_COMM_WORLD, &request);
    MPI_Recv(out, 1, type, peer, 6, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_LONG, &count);
    CHECK_EQUAL(count, total / 2);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    at = wrong = 0;
    for (int i = 0; i < blocks; ++i)
        for (int j = 0; j < lengths[i]; ++j, ++at)
            wrong += at < total / 2 ? out[places[i] + j] == -1 : out[places[i] + j] != -1;
    CHECK_EQUAL(wrong, 0);
    MPI_Type_free(&type);
    free(lengths);
    free(places);
    free(out);
    free(in);
}

int main(int argc, char** argv) {
    begin(&argc, &argv);
    if ((rank ^ 1) < size) {
        static const int sizes[] = {2, 16, 200, 1000};
        for (int i = 0; i < 4; ++i) vectors(sizes[i]);
        static const int counts[] = {1, 10, 300, 40000};
        for (int i = 0; i < 4; ++i) structures(counts[i]);
        static const int blocks[] = {4, 100, 30000};
        for (int i = 0; i < 3; ++i) indexed(blocks[i]);
    }
    return end("datatypes");
}
