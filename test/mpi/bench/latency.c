/* SPDX-License-Identifier: BSD-3-Clause */
/* Half a round trip between ranks 0 and 1, in microseconds. */
#include "bench.h"

int main(int argc, char** argv) {
    begin(&argc, &argv);
    char* data = buffer(largest);
    for (size_t length = 1; length <= largest; length *= 2) {
        const int count = rounds(length, 20000), warm = count / 10 + 5;
        double start = 0;
        MPI_Barrier(MPI_COMM_WORLD);
        for (int i = 0; i < warm + count && rank < 2; ++i) {
            if (i == warm) start = MPI_Wtime();
            if (rank == 0) {
                MPI_Send(data, (int)length, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
                MPI_Recv(data, (int)length, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            } else {
                MPI_Recv(data, (int)length, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                MPI_Send(data, (int)length, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
            }
        }
        report(length, (MPI_Wtime() - start) * 1e6 / (2.0 * count));
    }
    free(data);
    MPI_Finalize();
    return 0;
}
