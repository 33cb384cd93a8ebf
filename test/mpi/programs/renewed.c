/* SPDX-License-Identifier: BSD-3-Clause */
/* Buffers that are freed and come back with other pages between messages, and children made by
 * fork() and system() meanwhile. */
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static void make_child(int round) {
    if (round % 5 == 1) CHECK_EQUAL(system("exit 0"), 0);
    if (round % 5 != 2) return;
    const pid_t child = fork();
    if (child == 0) {
        free(malloc(64 << 20));
        _exit(0);
    }
    int status = -1;
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
}

int main(int argc, char** argv) {
    begin(&argc, &argv);
    const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    const size_t length = 1 << 20;
    for (int round = 0; round < 30; ++round) {
        char* sent = malloc(length);
        char* received = malloc(length);
        fill(sent, length, (unsigned)(round + rank));
        memset(received, 0, length);
        make_child(round);
        MPI_Sendrecv(sent, (int)length, MPI_BYTE, next, 0, received, (int)length, MPI_BYTE,
                     previous, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK(matches(received, length, (unsigned)(round + previous)));
        free(sent);
        free(received);
    }
    return end("renewed");
}
