/* SPDX-License-Identifier: BSD-3-Clause */
/* Duplicates, splits and intercommunicators keep their messages apart. */
#include "check.h"

static void duplicates(void) {
    enum { kComms = 20 };
    MPI_Comm comms[kComms];
    for (int i = 0; i < kComms; ++i) MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    int in[kComms], out[kComms];
    MPI_Request requests[2 * kComms];
    for (int i = 0; i < kComms; ++i)
        MPI_Irecv(&in[i], 1, MPI_INT, previous, 1, comms[i], &requests[i]);
    for (int i = kComms - 1; i >= 0; --i) {
        out[i] = rank * 100 + i;
        MPI_Isend(&out[i], 1, MPI_INT, next, 1, comms[i], &requests[kComms + i]);
    }
    MPI_Waitall(2 * kComms, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < kComms; ++i) {
        CHECK_EQUAL(in[i], previous * 100 + i);
        MPI_Comm_free(&comms[i]);
    }
}

static void splits(void) {
    MPI_Comm half;
    const int colour = rank % 2;
    MPI_Comm_split(MPI_COMM_WORLD, colour, -rank, &half);
    int half_rank, half_size, sum = 0;
    MPI_Comm_rank(half, &half_rank);
    MPI_Comm_size(half, &half_size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, half);
    int expected = 0;
    for (int i = colour; i < size; i += 2) expected += i;
    CHECK_EQUAL(sum, expected);
    if (size >= 2) {
        MPI_Comm inter, merged;
        /* The leader of a half is its highest rank: keys run backwards. */
        const int other_leader = size - 1 - ((size - 1) % 2 == 1 - colour ? 0 : 1);
        MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, other_leader, 9, &inter);
        int remote_size;
        MPI_Comm_remote_size(inter, &remote_size);
        CHECK_EQUAL(remote_size, size - half_size);
        for (int i = 0; i < remote_size; ++i) {
            int value = half_rank * 10 + i;
            MPI_Request request;
            MPI_Isend(&value, 1, MPI_INT, i, 4, inter, &request);
            int got = -1;
            MPI_Recv(&got, 1, MPI_INT, i, 4, inter, MPI_STATUS_IGNORE);
            CHECK_EQUAL(got, i * 10 + half_rank);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        MPI_Intercomm_merge(inter, colour, &merged);
        int merged_size, merged_sum = 0;
        MPI_Comm_size(merged, &merged_size);
        CHECK_EQUAL(merged_size, size);
        MPI_Allreduce(&rank, &merged_sum, 1, MPI_INT, MPI_SUM, merged);
        CHECK_EQUAL(merged_sum, size * (size - 1) / 2);
        MPI_Comm_free(&merged);
        MPI_Comm_free(&inter);
    }
    MPI_Comm_free(&half);
}

int main(int argc, char** argv) {
    begin(&argc, &argv);
    duplicates();
    splits();
    return end("communicators");
}
