/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank that computes stops nobody who sends to it. With one dedicated lane a worker
 * (UCX_MAX_HOST_LANES=1) ranks 0 and 1 get hot; then 1 computes, without a call of MPI, while 0
 * gets hot with 2, which takes the lane, and sends short messages to 1. Rank 1 goes on computing
 * until 0 has sent them all, which it hears of through a file: a send that waits for it never ends.
 * Every message has its number. sleeper [SECONDS of computing, at least]
 */
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

/* No more than a scalable lane takes of one sender whose peer makes no progress (the queue of
 * shared memory is the smallest, and the hot messages' answers may still lie in it). */
enum { kWindow = 32, kShort = 64 };

static const double kPatience = 120; /* seconds, after which the sender is taken to be stuck */

static unsigned sent[3], received[3];

/* A window of messages each way, until either has had enough. */
static void hot(int peer, double until) {
    unsigned out[kWindow], in[kWindow];
    MPI_Request requests[2 * kWindow];
    for (int go = 1; go;) {
        for (int i = 0; i < kWindow; ++i) {
            out[i] = sent[peer]++;
            MPI_Irecv(&in[i], 1, MPI_UNSIGNED, peer, 1, MPI_COMM_WORLD, &requests[i]);
            MPI_Isend(&out[i], 1, MPI_UNSIGNED, peer, 1, MPI_COMM_WORLD, &requests[kWindow + i]);
        }
        MPI_Waitall(2 * kWindow, requests, MPI_STATUSES_IGNORE);
        for (int i = 0; i < kWindow; ++i) CHECK_EQUAL(in[i], received[peer]++);
        const int mine = MPI_Wtime() < until;
        int theirs = 0;
        MPI_Sendrecv(&mine, 1, MPI_INT, peer, 2, &theirs, 1, MPI_INT, peer, 2, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        go = mine && theirs;
    }
}

/* Rank 0, while 1 computes. */
static void send_meanwhile(double seconds, const char* done) {
    const double start = MPI_Wtime();
    double longest = 0, total = 0;
    for (unsigned long long i = 0; i < kShort; ++i) {
        hot(2, start + seconds * (double)(i + 1) / kShort);
        const double before = MPI_Wtime();
        MPI_Send(&i, 1, MPI_UNSIGNED_LONG_LONG, 1, 3, MPI_COMM_WORLD);
        const double took = MPI_Wtime() - before;
        total += took;
        if (took > longest) longest = took;
    }
    FILE* file = fopen(done, "w");
    CHECK(file != NULL && fclose(file) == 0);
    printf("8-byte MPI_Send to a rank that computes for %.1f s: longest %.1f us, mean %.1f us\n",
           MPI_Wtime() - start, longest * 1e6, total / kShort * 1e6);
}

/* Rank 1, without MPI: as if it computed, but it leaves the processor to the others. */
static void compute(double seconds, const char* done) {
    struct stat file;
    const double start = MPI_Wtime();
    while (MPI_Wtime() < start + seconds || stat(done, &file) != 0) {
        if (MPI_Wtime() > start + seconds + kPatience) {
            fprintf(stderr, "sleeper STUCK: sends wait for a rank that computes\n");
            ++failures;
            break;
        }
        usleep(10000);
    }
    for (unsigned long long i = 0; i < kShort; ++i) {
        unsigned long long number = 0;
        MPI_Recv(&number, 1, MPI_UNSIGNED_LONG_LONG, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK_EQUAL(number, i);
    }
}

int main(int argc, char** argv) {
    begin(&argc, &argv);
    const double seconds = argc > 1 ? atof(argv[1]) : 2;
    char done[64] = "";
    if (rank == 0) snprintf(done, sizeof(done), "/tmp/sleeper-%d", getpid());
    MPI_Bcast(done, sizeof(done), MPI_CHAR, 0, MPI_COMM_WORLD);
    /* Endpoints to all, before anybody computes. */
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank < 2) hot(1 - rank, MPI_Wtime() + seconds / 2);
    if (rank == 0) send_meanwhile(seconds, done);
    if (rank == 1) compute(seconds, done);
    if (rank == 2) {
        for (int i = 0; i < kShort; ++i) hot(0, MPI_Wtime() + 3600);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) unlink(done);
    /* The pair that slept gets hot again, behind what lay on its lanes. */
    if (rank < 2) hot(1 - rank, MPI_Wtime() + 0.2);
    return end("sleeper");
}
