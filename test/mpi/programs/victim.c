/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One rank kills itself in the midst of traffic. Every call of the others must go on to return:
 * they start and test operations to the dead and to each other for a while, and say so. Whether an
 * operation to the dead fails, or never ends, is the runtime's affair.
 *   victim MILLISECONDS   when rank 1 dies
 */
#define _GNU_SOURCE
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { kSlots = 16, kMost = 200000 };

static volatile sig_atomic_t calls, calls_before;

/* No call may take longer than two alarms lie apart. */
static void on_alarm(int signal) {
    (void)signal;
    if (calls == calls_before) {
        static const char kStuck[] = "victim STUCK: a call does not return\n";
        if (write(STDOUT_FILENO, kStuck, sizeof(kStuck) - 1) < 0) _exit(3);
        _exit(2);
    }
    calls_before = calls;
    alarm(10);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int main(int argc, char** argv) {
    begin(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    static const int lengths[] = {8, 3000, kMost, 100};
    MPI_Request receives[kSlots], sends[kSlots];
    char* memory = calloc(2 * kSlots, kMost);
    for (int i = 0; i < kSlots; ++i) receives[i] = sends[i] = MPI_REQUEST_NULL;
    const double start = now(), death = start + (argc > 1 ? atof(argv[1]) : 100) / 1000;
    long ended = 0, refused = 0;
    signal(SIGALRM, on_alarm);
    alarm(10);
    while (now() < death + 2) {
        const long refused_before = refused;
        if (rank == 1 && now() > death) kill(getpid(), SIGKILL);
        for (int i = 0; i < kSlots; ++i) {
            const int peer = (rank + 1 + i % (size - 1)) % size;
            int done = 0;
            ++calls;
            if (receives[i] == MPI_REQUEST_NULL)
                refused += MPI_Irecv(memory + (size_t)i * kMost, kMost, MPI_BYTE, peer, 1,
                                     MPI_COMM_WORLD, &receives[i]) != MPI_SUCCESS;
            ++calls;
            if (sends[i] == MPI_REQUEST_NULL)
                refused += MPI_Isend(memory + (size_t)(kSlots + i) * kMost, lengths[i % 4],
                                     MPI_BYTE, peer, 1, MPI_COMM_WORLD, &sends[i]) != MPI_SUCCESS;
            ++calls;
            if (receives[i] != MPI_REQUEST_NULL)
                refused += MPI_Test(&receives[i], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS;
            ended += done;
            ++calls;
            if (sends[i] != MPI_REQUEST_NULL)
                refused += MPI_Test(&sends[i], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS;
        }
        if (refused != refused_before) usleep(10000); /* the runtime prints each refusal */
    }
    printf("victim SURVIVED rank=%d ended=%ld refused=%ld\n", rank, ended, refused);
    fflush(stdout);
    exit(0); /* without MPI_Finalize, which would wait for the dead */
}
