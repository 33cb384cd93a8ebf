/* SPDX-License-Identifier: BSD-3-Clause */
/* Point to point: modes, wildcards, order, probes, cancel, truncation, persistent requests. */
#include "check.h"

enum { kMany = 200 };

/* Order of equal envelopes: small and large messages mixed, so that protocols overtake if they can.
 */
static void order(void) {
    const int peer = rank ^ 1;
    if (peer >= size) return;
    static const int lengths[] = {4, 100000, 16, 5000, 1 << 18, 1};
    char* out[kMany];
    char* in[kMany];
    MPI_Request requests[2 * kMany];
    for (int i = 0; i < kMany; ++i) {
        const int length = lengths[i % 6] / (i % 6 == 4 ? 4 : 1);
        out[i] = malloc((size_t)length);
        in[i] = calloc(1, (size_t)length);
        fill(out[i], (size_t)length, (unsigned)(i + rank));
        MPI_Isend(out[i], length, MPI_BYTE, peer, 7, MPI_COMM_WORLD, &requests[i]);
    }
    for (int i = 0; i < kMany; ++i) {
        const int length = lengths[i % 6] / (i % 6 == 4 ? 4 : 1);
        MPI_Irecv(in[i], length, MPI_BYTE, peer, 7, MPI_COMM_WORLD, &requests[kMany + i]);
    }
    MPI_Waitall(2 * kMany, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < kMany; ++i) {
        CHECK(
            matches(in[i], (size_t)(lengths[i % 6] / (i % 6 == 4 ? 4 : 1)), (unsigned)(i + peer)));
        free(out[i]);
        free(in[i]);
    }
}

/* Everybody sends to rank 0, which takes them from any source and by any tag, in order of source.
 */
static void wildcards(void) {
    enum { kEach = 50 };
    if (rank != 0) {
        for (int i = 0; i < kEach; ++i) {
            const int value[2] = {rank, i};
            MPI_Send(value, 2, MPI_INT, 0, i % 5, MPI_COMM_WORLD);
        }
    } else {
        int* next = calloc((size_t)size, sizeof(int));
        for (int i = 0; i < kEach * (size - 1); ++i) {
            int value[2];
            MPI_Status status;
            MPI_Recv(value, 2, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
            CHECK_EQUAL(value[0], status.MPI_SOURCE);
            CHECK_EQUAL(value[1] % 5, status.MPI_TAG);
            CHECK_EQUAL(value[1], next[status.MPI_SOURCE]);
            ++next[status.MPI_SOURCE];
        }
        free(next);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    /* Posted first, by tag, out of order. */
    const int peer = rank ^ 1;
    if (peer >= size) return;
    int in[16], out[16];
    MPI_Request requests[32];
    for (int i = 0; i < 16; ++i)
        MPI_Irecv(&in[i], 1, MPI_INT, i % 2 ? MPI_ANY_SOURCE : peer, 100 + i, MPI_COMM_WORLD,
                  &requests[i]);
    MPI_Sendrecv(NULL, 0, MPI_INT, peer, 99, NULL, 0, MPI_INT, peer, 99, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    for (int i = 15; i >= 0; --i) {
        out[i] = 1000 * rank + i;
        MPI_Isend(&out[i], 1, MPI_INT, peer, 100 + i, MPI_COMM_WORLD, &requests[16 + i]);
    }
    MPI_Waitall(32, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < 16; ++i) CHECK_EQUAL(in[i], 1000 * peer + i);
}

/* A synchronous send ends only after its receive began; ready and buffered sends carry the data. */
static void modes(void) {
    const int peer = rank ^ 1;
    if (peer >= size) return;
    static const int lengths[] = {0, 8, 3000, 70000, 1 << 20};
    for (int i = 0; i < 5; ++i) {
        const size_t length = (size_t)lengths[i];
        char* out = malloc(length + 1);
        char* in = calloc(1, length + 1);
        fill(out, length, (unsigned)(10 * i + rank));
        MPI_Request request;
        int done = 0;
        MPI_Issend(out, lengths[i], MPI_BYTE, peer, 11, MPI_COMM_WORLD, &request);
        for (int spin = 0; spin < 100; ++spin) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        CHECK(!done); /* the peer receives only after the next exchange */
        MPI_Sendrecv(NULL, 0, MPI_BYTE, peer, 12, NULL, 0, MPI_BYTE, peer, 12, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        MPI_Recv(in, lengths[i], MPI_BYTE, peer, 11, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(matches(in, length, (unsigned)(10 * i + peer)));

        memset(in, 0, length);
        MPI_Irecv(in, lengths[i], MPI_BYTE, peer, 13, MPI_COMM_WORLD, &request);
        MPI_Sendrecv(NULL, 0, MPI_BYTE, peer, 14, NULL, 0, MPI_BYTE, peer, 14, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        MPI_Rsend(out, lengths[i], MPI_BYTE, peer, 13, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(matches(in, length, (unsigned)(10 * i + peer)));

        int pack = lengths[i] + MPI_BSEND_OVERHEAD;
        void* attached = malloc((size_t)pack);
        MPI_Buffer_attach(attached, pack);
        memset(in, 0, length);
        MPI_Bsend(out, lengths[i], MPI_BYTE, peer, 15, MPI_COMM_WORLD);
        MPI_Recv(in, lengths[i], MPI_BYTE, peer, 15, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Buffer_detach(&attached, &pack);
        CHECK(matches(in, length, (unsigned)(10 * i + peer)));
        free(attached);
        free(out);
        free(in);
    }
}

static void probes(void) {
    const int peer = rank ^ 1;
    if (peer >= size) return;
    static const int lengths[] = {0, 17, 9000, 300000};
    for (int i = 0; i < 4; ++i) {
        const size_t length = (size_t)lengths[i];
        char* out = malloc(length + 1);
        char* in = calloc(1, length + 1);
        fill(out, length, (unsigned)(rank + i));
        MPI_Request request;
        MPI_Status status;
        int count, flag = 0;
        MPI_Isend(out, lengths[i], MPI_BYTE, peer, 20 + i, MPI_COMM_WORLD, &request);
        MPI_Probe(peer, 20 + i, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_BYTE, &count);
        CHECK_EQUAL(count, lengths[i]);
        MPI_Iprobe(MPI_ANY_SOURCE, 20 + i, MPI_COMM_WORLD, &flag, &status);
        CHECK(flag);
        MPI_Iprobe(peer, 4999, MPI_COMM_WORLD, &flag, &status);
        CHECK(!flag);
        MPI_Recv(in, lengths[i], MPI_BYTE, peer, 20 + i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(matches(in, length, (unsigned)(peer + i)));

        /* A matched message is the prober's: an equal receive posted after it takes the next. */
        MPI_Message message;
        MPI_Request requests[2];
        int marks[2] = {1, 2}, got = 0;
        memset(in, 0, length);
        MPI_Isend(out, lengths[i], MPI_BYTE, peer, 30, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(&marks[1], 1, MPI_INT, peer, 30, MPI_COMM_WORLD, &requests[1]);
        MPI_Mprobe(peer, 30, MPI_COMM_WORLD, &message, &status);
        MPI_Recv(&got, 1, MPI_INT, peer, 30, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK_EQUAL(got, 2);
        MPI_Mrecv(in, lengths[i], MPI_BYTE, &message, &status);
        MPI_Get_count(&status, MPI_BYTE, &count);
        CHECK_EQUAL(count, lengths[i]);
        CHECK(matches(in, length, (unsigned)(peer + i)));
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        do {
            MPI_Improbe(peer, 31, MPI_COMM_WORLD, &flag, &message, &status);
            CHECK(!flag);
        } while (flag);
        free(out);
        free(in);
    }
}

static void cancel(void) {
    int value = 0, cancelled = 0;
    MPI_Request request;
    MPI_Status status;
    MPI_Irecv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 40, MPI_COMM_WORLD, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &cancelled);
    CHECK(cancelled);
    MPI_Barrier(MPI_COMM_WORLD);
    /* The cancelled receive takes nothing that comes later. */
    const int peer = rank ^ 1;
    if (peer >= size) return;
    int out = rank + 1, in = 0;
    MPI_Sendrecv(&out, 1, MPI_INT, peer, 40, &in, 1, MPI_INT, peer, 40, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    CHECK_EQUAL(in, peer + 1);
    CHECK_EQUAL(value, 0);
}

/* A message longer than the receive ends with an error, and touches nothing behind the buffer. */
static void truncation(void) {
    const int peer = rank ^ 1;
    if (peer >= size) return;
    static const int lengths[] = {100, 20000, 1 << 20};
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int early = 0; early < 2; ++early) {
        for (int i = 0; i < 3; ++i) {
            const size_t length = (size_t)lengths[i];
            char* out = malloc(length);
            char* in = calloc(1, length);
            fill(out, length, (unsigned)rank);
            MPI_Request send, receive;
            MPI_Status status;
            if (early) {
                MPI_Irecv(in, lengths[i] / 2, MPI_BYTE, peer, 50, MPI_COMM_WORLD, &receive);
                MPI_Sendrecv(NULL, 0, MPI_BYTE, peer, 51, NULL, 0, MPI_BYTE, peer, 51,
                             MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            }
            MPI_Isend(out, lengths[i], MPI_BYTE, peer, 50, MPI_COMM_WORLD, &send);
            if (!early) {
                MPI_Probe(peer, 50, MPI_COMM_WORLD, &status);
                MPI_Irecv(in, lengths[i] / 2, MPI_BYTE, peer, 50, MPI_COMM_WORLD, &receive);
            }
            int class = MPI_SUCCESS;
            const int error = MPI_Wait(&receive, &status);
            MPI_Error_class(error, &class);
            CHECK_EQUAL(class, MPI_ERR_TRUNCATE);
            MPI_Wait(&send, MPI_STATUS_IGNORE);
            for (size_t place = length / 2; place < length; ++place) {
                if (in[place] == 0) continue;
                CHECK(!"bytes behind the receive buffer");
                break;
            }
            free(out);
            free(in);
        }
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Sendrecv(NULL, 0, MPI_BYTE, peer, 52, NULL, 0, MPI_BYTE, peer, 52, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
}

static void persistent(void) {
    const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    enum { kWords = 5000 };
    static int in[kWords], out[kWords];
    MPI_Request requests[4];
    int small_in = 0, small_out = 0;
    MPI_Send_init(out, kWords, MPI_INT, next, 60, MPI_COMM_WORLD, &requests[0]);
    MPI_Recv_init(in, kWords, MPI_INT, previous, 60, MPI_COMM_WORLD, &requests[1]);
    MPI_Ssend_init(&small_out, 1, MPI_INT, next, 61, MPI_COMM_WORLD, &requests[2]);
    MPI_Recv_init(&small_in, 1, MPI_INT, MPI_ANY_SOURCE, 61, MPI_COMM_WORLD, &requests[3]);
    for (int round = 0; round < 50; ++round) {
        for (int i = 0; i < kWords; ++i) out[i] = rank * 1000003 + round * 101 + i;
        small_out = rank + round;
        MPI_Startall(4, requests);
        MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
        int wrong = 0;
        for (int i = 0; i < kWords; ++i) wrong += in[i] != previous * 1000003 + round * 101 + i;
        CHECK_EQUAL(wrong, 0);
        CHECK_EQUAL(small_in, previous + round);
    }
    for (int i = 0; i < 4; ++i) MPI_Request_free(&requests[i]);
}

/* More unexpected messages than any receive queue holds, then all are received. */
static void flood(void) {
    enum { kFlood = 5000 };
    const int peer = rank ^ 1;
    if (peer < size && rank % 2 == 0) {
        MPI_Request* requests = malloc(kFlood * sizeof(MPI_Request));
        int* values = malloc(kFlood * sizeof(int));
        for (int i = 0; i < kFlood; ++i) {
            values[i] = i;
            MPI_Isend(&values[i], 1, MPI_INT, peer, 70 + i % 3, MPI_COMM_WORLD, &requests[i]);
        }
        MPI_Waitall(kFlood, requests, MPI_STATUSES_IGNORE);
        free(requests);
        free(values);
    } else if (peer < size) {
        for (int tag = 2; tag >= 0; --tag) {
            for (int i = tag; i < kFlood; i += 3) {
                int value = -1;
                MPI_Recv(&value, 1, MPI_INT, peer, 70 + tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                CHECK_EQUAL(value, i);
            }
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* A rank talks to itself. */
static void self(void) {
    static const int lengths[] = {4, 5000, 1 << 20};
    for (int i = 0; i < 3; ++i) {
        char* out = malloc((size_t)lengths[i]);
        char* in = calloc(1, (size_t)lengths[i]);
        MPI_Request request;
        fill(out, (size_t)lengths[i], (unsigned)rank);
        MPI_Isend(out, lengths[i], MPI_BYTE, rank, 80, MPI_COMM_WORLD, &request);
        MPI_Recv(in, lengths[i], MPI_BYTE, rank, 80, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(matches(in, (size_t)lengths[i], (unsigned)rank));
        free(out);
        free(in);
    }
}

int main(int argc, char** argv) {
    begin(&argc, &argv);
    order();
    wildcards();
    modes();
    probes();
    cancel();
    truncation();
    persistent();
    flood();
    self();
    return end("matching");
}
