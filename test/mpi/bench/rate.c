/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages a second from the first half of the ranks to the second, in windows of 64 or of what is
 * 256 MiB together, all pairs at once; in millions. With one pair, times the length, it is the
 * bandwidth. Third argument: the shortest message (1).
 */
#include "bench.h"

enum { kWindow = 64, kWindowBytes = 256 << 20 };

static int window_of(size_t length) {
    const size_t most = kWindowBytes / length;
    return most >= kWindow ? kWindow : most == 0 ? 1 : (int)most;
}

int main(int argc, char** argv) {
    begin(&argc, &argv);
    const long given = argc > 3 ? atol(argv[3]) : 1;
    const size_t shortest = given > 0 ? (size_t)given : 1;
    const int pairs = size / 2;
    const int peer = rank < pairs ? rank + pairs : rank - pairs;
    char* data = buffer(largest);
    MPI_Request requests[kWindow];
    for (size_t length = shortest; length <= largest; length *= 2) {
        const int window = window_of(length);
        const int count = rounds(length, 1000), warm = count / 10 + 2;
        double start = 0;
        char ack = 0;
        MPI_Barrier(MPI_COMM_WORLD);
        for (int i = 0; i < warm + count && rank < 2 * pairs; ++i) {
            if (i == warm) {
                MPI_Barrier(MPI_COMM_WORLD);
                start = MPI_Wtime();
            }
            if (rank < pairs) {
                for (int j = 0; j < window; ++j)
                    MPI_Isend(data, (int)length, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &requests[j]);
                MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
                MPI_Recv(&ack, 1, MPI_BYTE, peer, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            } else {
                for (int j = 0; j < window; ++j)
                    MPI_Irecv(data, (int)length, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &requests[j]);
                MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
                MPI_Send(&ack, 1, MPI_BYTE, peer, 2, MPI_COMM_WORLD);
            }
        }
        double took = MPI_Wtime() - start, longest = 0;
        MPI_Reduce(&took, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        report(length, (double)pairs * count * window / longest / 1e6);
    }
    free(data);
    MPI_Finalize();
    return 0;
}
