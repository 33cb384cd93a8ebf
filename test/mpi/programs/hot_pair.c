/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All ranks trickle to all others while one pair sends fast; half way through the pair changes.
 * With one dedicated lane a worker (UCX_MAX_HOST_LANES=1) it must follow the hot pair. Every
 * message has its number and a pattern, so that one lost, doubled or out of order at a switch
 * shows. The counters are in the library's last line at level info. hot_pair [SECONDS of each
 * phase]
 */
#include <unistd.h>

#include "check.h"

enum { kWindow = 32, kMost = 2000 };

struct message {
    unsigned number;
    unsigned length;
    unsigned char bytes[kMost];
};

static unsigned *sent, *received;

static int prepare(struct message* message, int to) {
    message->number = sent[to]++;
    message->length = message->number % 7 == 0 ? kMost : message->number % 40;
    fill(message->bytes, message->length, message->number);
    return (int)(offsetof(struct message, bytes) + message->length);
}

static void inspect(const struct message* message, int from) {
    CHECK_EQUAL(message->number, received[from]);
    CHECK(matches(message->bytes, message->length, message->number));
    received[from] = message->number + 1;
}

/* A window of messages each way, then everybody's slower neighbours get one. */
static void hot(int peer, double until) {
    static struct message out[kWindow], in[kWindow];
    MPI_Request requests[2 * kWindow];
    int go = 1;
    while (go) {
        for (int i = 0; i < kWindow; ++i)
            MPI_Irecv(&in[i], sizeof(in[i]), MPI_BYTE, peer, 1, MPI_COMM_WORLD, &requests[i]);
        for (int i = 0; i < kWindow; ++i)
            MPI_Isend(&out[i], prepare(&out[i], peer), MPI_BYTE, peer, 1, MPI_COMM_WORLD,
                      &requests[kWindow + i]);
        MPI_Waitall(2 * kWindow, requests, MPI_STATUSES_IGNORE);
        for (int i = 0; i < kWindow; ++i) inspect(&in[i], peer);
        const int mine = MPI_Wtime() < until;
        int theirs = 0;
        MPI_Sendrecv(&mine, 1, MPI_INT, peer, 2, &theirs, 1, MPI_INT, peer, 2, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        go = mine && theirs;
    }
}

/* The others leave the processors to the pair, and answer what comes all the same. */
static void rest(double until) {
    while (MPI_Wtime() < until) {
        int found;
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
        usleep(500);
    }
}

static void trickle(void) {
    static struct message out, in;
    for (int step = 1; step < size; ++step) {
        const int to = (rank + step) % size, from = (rank + size - step) % size;
        MPI_Sendrecv(&out, prepare(&out, to), MPI_BYTE, to, 3, &in, sizeof(in), MPI_BYTE, from, 3,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        inspect(&in, from);
    }
}

int main(int argc, char** argv) {
    begin(&argc, &argv);
    const double seconds = argc > 1 ? atof(argv[1]) : 1;
    sent = calloc((size_t)size, sizeof(unsigned));
    received = calloc((size_t)size, sizeof(unsigned));
    for (int phase = 0; phase < 2 && size > 2; ++phase) {
        const int partner = phase + 1; /* of rank 0 */
        for (int round = 0; round < 10; ++round) {
            trickle();
            const double until = MPI_Wtime() + seconds / 10;
            if (rank == 0)
                hot(partner, until);
            else if (rank == partner)
                hot(0, until);
            else
                rest(until);
        }
    }
    trickle();
    if (rank == 0)
        for (int i = 1; i < size; ++i) printf("to rank %d: %u messages\n", i, sent[i]);
    free(sent);
    free(received);
    return end("hot_pair");
}
