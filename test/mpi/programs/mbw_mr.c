/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Multi-pair bandwidth and message rate, every byte checked: rank i of the first half sends windows
 * to rank i of the second, all pairs at once. Every TRICKLE hot messages each sender sends one to
 * every rank that is not its partner (0: none), so that few hot pairs lie among many lukewarm ones.
 * Rates include filling and checking: they show that it runs, not how fast it could.
 *
 *   mbw_mr [SECONDS of each size] [TRICKLE] [LARGEST]
 */
#include "check.h"

enum { kWindow = 64, kHot = 1, kControl = 2, kTrickle = 3 };

static unsigned char *windows, *trickles, *spare;
static MPI_Request* trickling;
static unsigned *trickled_to, *trickled_from; /* messages to and from each rank */
static size_t largest = 64 << 10;

/* What message `number` from `from` to `to` is filled by. */
static unsigned seed(int from, int to, unsigned number) {
    return (unsigned)from * 5003u + (unsigned)to * 67u + number;
}

static void take_trickle(const MPI_Status* status) {
    int length = 0;
    const int from = status->MPI_SOURCE;
    MPI_Get_count(status, MPI_BYTE, &length);
    MPI_Recv(spare, length, MPI_BYTE, from, kTrickle, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(matches(spare, (size_t)length, seed(from, rank, trickled_from[from])));
    ++trickled_from[from];
}

static void take_what_trickled_in(void) {
    MPI_Status status;
    int there = 1;
    while (there) {
        MPI_Iprobe(MPI_ANY_SOURCE, kTrickle, MPI_COMM_WORLD, &there, &status);
        if (there) take_trickle(&status);
    }
}

/*
 * One to everybody but the partner, unless the last ones are still under way: a sender that waited
 * for ranks that wait for their own senders might wait for ever.
 */
static void trickle(int partner, size_t length) {
    int done = 0;
    MPI_Testall(size, trickling, &done, MPI_STATUSES_IGNORE);
    for (int to = 0; to < size && done; ++to) {
        if (to == partner || to == rank) continue;
        unsigned char* data = trickles + (size_t)to * largest;
        fill(data, length, seed(rank, to, trickled_to[to]++));
        MPI_Isend(data, (int)length, MPI_BYTE, to, kTrickle, MPI_COMM_WORLD, &trickling[to]);
    }
}

/* One window to the partner; whether another follows is told behind it. */
static void send_window(int partner, size_t length, unsigned number, int more) {
    MPI_Request requests[kWindow];
    for (unsigned i = 0; i < kWindow; ++i) {
        unsigned char* data = windows + i * largest;
        fill(data, length, seed(rank, partner, number + i));
        MPI_Isend(data, (int)length, MPI_BYTE, partner, kHot, MPI_COMM_WORLD, &requests[i]);
    }
    MPI_Waitall(kWindow, requests, MPI_STATUSES_IGNORE);
    int taken;
    MPI_Sendrecv(&more, 1, MPI_INT, partner, kControl, &taken, 1, MPI_INT, partner, kControl,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static int receive_window(int partner, size_t length, unsigned number) {
    MPI_Request requests[kWindow];
    int more = 0;
    const int taken = 0;
    for (unsigned i = 0; i < kWindow; ++i)
        MPI_Irecv(windows + i * largest, (int)length, MPI_BYTE, partner, kHot, MPI_COMM_WORLD,
                  &requests[i]);
    MPI_Waitall(kWindow, requests, MPI_STATUSES_IGNORE);
    for (unsigned i = 0; i < kWindow; ++i)
        CHECK(matches(windows + i * largest, length, seed(partner, rank, number + i)));
    MPI_Sendrecv(&taken, 1, MPI_INT, partner, kControl, &more, 1, MPI_INT, partner, kControl,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return more;
}

/* Messages that this rank's pair exchanged, of one size. */
static unsigned run(int partner, int sends, size_t length, double seconds, unsigned every) {
    const double until = MPI_Wtime() + seconds;
    unsigned number = 0, since = every; /* hot messages since the last trickle: one comes at once */
    int more = 1;
    while (more) {
        if (sends) {
            more = MPI_Wtime() < until;
            send_window(partner, length, number, more);
            since += kWindow;
            if (every != 0 && since >= every) {
                trickle(partner, length);
                since -= every;
            }
        } else {
            more = receive_window(partner, length, number);
        }
        number += kWindow;
        take_what_trickled_in();
    }
    return number;
}

/* What is still under way: everybody is told how much that is. */
static void drain(void) {
    unsigned* due = malloc(sizeof(unsigned) * (size_t)size);
    MPI_Alltoall(trickled_to, 1, MPI_UNSIGNED, due, 1, MPI_UNSIGNED, MPI_COMM_WORLD);
    for (int from = 0; from < size; ++from) {
        while (trickled_from[from] < due[from]) {
            MPI_Status status;
            MPI_Probe(from, kTrickle, MPI_COMM_WORLD, &status);
            take_trickle(&status);
        }
    }
    MPI_Waitall(size, trickling, MPI_STATUSES_IGNORE);
    free(due);
}

int main(int argc, char** argv) {
    begin(&argc, &argv);
    const double seconds = argc > 1 ? atof(argv[1]) : 0.1;
    const unsigned every = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
    if (argc > 3) largest = (size_t)atol(argv[3]);
    const int pairs = size / 2, sends = rank < pairs;
    const int partner = sends ? rank + pairs : rank - pairs;
    windows = malloc(kWindow * largest);
    trickles = malloc((size_t)size * largest);
    spare = malloc(largest);
    trickling = malloc(sizeof(*trickling) * (size_t)size);
    for (int i = 0; i < size; ++i) trickling[i] = MPI_REQUEST_NULL;
    trickled_to = calloc((size_t)size, sizeof(unsigned));
    trickled_from = calloc((size_t)size, sizeof(unsigned));
    for (size_t length = 1; length <= largest; length *= 8) {
        const double start = MPI_Wtime();
        const unsigned mine = rank < 2 * pairs ? run(partner, sends, length, seconds, every) : 0;
        const double rate = sends ? mine / (MPI_Wtime() - start) : 0;
        double sum = 0;
        MPI_Reduce(&rate, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
        drain();
        if (rank == 0) printf("%zu %.2f %.0f\n", length, sum * (double)length / 1e6, sum);
    }
    if (every != 0 && sends)
        for (int to = 0; to < size; ++to) CHECK(to == rank || to == partner || trickled_to[to] > 0);
    free(windows);
    free(trickles);
    free(trickling);
    free(spare);
    free(trickled_to);
    free(trickled_from);
    return end("mbw_mr");
}
