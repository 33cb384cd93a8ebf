/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages a second from rank 0 to rank 1 under MPI_THREAD_MULTIPLE, in millions: as many threads
 * of each as the third argument says, each with a communicator of its own, over which it sends
 * windows of 64 to the thread of the same number. All of them are counted until the last is done.
 */
#include <pthread.h>

#include "bench.h"

enum { kWindow = 64, kMostThreads = 256 };

struct Thread {
    pthread_t handle;
    MPI_Comm comm;
    char* data;
};

static struct Thread threads[kMostThreads];
static int count = 1;
static pthread_barrier_t together;
static double start;

static void window(const struct Thread* self, int length) {
    MPI_Request requests[kWindow];
    char ack = 0;
    for (int i = 0; i < kWindow; ++i) {
        if (rank == 0) {
            MPI_Isend(self->data, length, MPI_BYTE, 1, 1, self->comm, &requests[i]);
        } else {
            MPI_Irecv(self->data, length, MPI_BYTE, 0, 1, self->comm, &requests[i]);
        }
    }
    MPI_Waitall(kWindow, requests, MPI_STATUSES_IGNORE);
    if (rank == 0) {
        MPI_Recv(&ack, 1, MPI_BYTE, 1, 2, self->comm, MPI_STATUS_IGNORE);
    } else {
        MPI_Send(&ack, 1, MPI_BYTE, 0, 2, self->comm);
    }
}

/* All threads of both ranks begin at once, and the time is that of all. */
static void meet(int is_first) {
    pthread_barrier_wait(&together);
    if (is_first) MPI_Barrier(MPI_COMM_WORLD);
    if (is_first) start = MPI_Wtime();
    pthread_barrier_wait(&together);
}

static void* run(void* argument) {
    const struct Thread* self = argument;
    const int is_first = self == threads;
    for (size_t length = 8; length <= largest; length *= 8) {
        const int times = rounds(length, 1000) / count + 2, warm = times / 10 + 2;
        for (int i = 0; i < warm; ++i) window(self, (int)length);
        meet(is_first);
        for (int i = 0; i < times; ++i) window(self, (int)length);
        pthread_barrier_wait(&together);
        const double took = MPI_Wtime() - start;
        if (is_first) report(length, (double)count * times * kWindow / took / 1e6);
    }
    return NULL;
}

int main(int argc, char** argv) {
    begin_threaded(&argc, &argv, MPI_THREAD_MULTIPLE);
    if (argc > 3) count = atoi(argv[3]);
    if (size != 2 || count < 1 || count > kMostThreads) MPI_Abort(MPI_COMM_WORLD, 2);
    pthread_barrier_init(&together, NULL, (unsigned)count);
    for (int i = 0; i < count; ++i) {
        MPI_Comm_dup(MPI_COMM_WORLD, &threads[i].comm);
        threads[i].data = buffer(largest);
    }
    for (int i = 0; i < count; ++i) pthread_create(&threads[i].handle, NULL, run, &threads[i]);
    for (int i = 0; i < count; ++i) {
        pthread_join(threads[i].handle, NULL);
        MPI_Comm_free(&threads[i].comm);
        free(threads[i].data);
    }
    MPI_Finalize();
    return 0;
}
