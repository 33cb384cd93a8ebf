/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI_THREAD_MULTIPLE: threads of each rank exchange at once, on communicators and tags of their
 * own. */
#include <pthread.h>

#include "check.h"

enum { kThreads = 4, kRounds = 150 };

static MPI_Comm comms[kThreads];
static int wrong[kThreads];

static void* exchange(void* argument) {
    const int thread = *(int*)argument;
    static const int lengths[] = {8, 3000, 100000, 1};
    char* out = malloc(100000);
    char* in = malloc(100000);
    for (int round = 0; round < kRounds; ++round) {
        const int length = lengths[round % 4];
        const int to = (rank + 1 + round % (size - 1)) % size;
        const int from = (rank + size - 1 - round % (size - 1)) % size;
        const MPI_Comm comm = round % 2 ? comms[thread] : MPI_COMM_WORLD;
        const int tag = 10 + thread;
        MPI_Request requests[2];
        fill(out, (size_t)length, (unsigned)(rank * 100 + thread * 7 + round));
        memset(in, 0, (size_t)length);
        MPI_Irecv(in, length, MPI_BYTE, from, tag, comm, &requests[0]);
        MPI_Isend(out, length, MPI_BYTE, to, tag, comm, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        wrong[thread] += !matches(in, (size_t)length, (unsigned)(from * 100 + thread * 7 + round));
        if (round % 50 == 0) {
            int value = rank, sum = 0;
            MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, comms[thread]);
            wrong[thread] += sum != size * (size - 1) / 2;
        }
    }
    free(out);
    free(in);
    return NULL;
}

int main(int argc, char** argv) {
    int level = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK_EQUAL(level, MPI_THREAD_MULTIPLE);
    if (level == MPI_THREAD_MULTIPLE && size > 1) {
        pthread_t threads[kThreads];
        int numbers[kThreads];
        for (int i = 0; i < kThreads; ++i) MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
        for (int i = 0; i < kThreads; ++i) {
            numbers[i] = i;
            pthread_create(&threads[i], NULL, exchange, &numbers[i]);
        }
        for (int i = 0; i < kThreads; ++i) {
            pthread_join(threads[i], NULL);
            CHECK_EQUAL(wrong[i], 0);
            MPI_Comm_free(&comms[i]);
        }
    }
    return end("threads");
}
