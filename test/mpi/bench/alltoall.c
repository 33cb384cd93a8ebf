/* SPDX-License-Identifier: BSD-3-Clause */
/* An all-to-all of that many bytes to each rank, in microseconds. */
#include "bench.h"

int main(int argc, char** argv) {
    begin(&argc, &argv);
    char* out = buffer((size_t)size * largest + 8);
    char* in = buffer((size_t)size * largest + 8);
    for (size_t length = 8; length <= largest; length *= 4) {
        const int count = rounds(length * (size_t)size, 2000), warm = count / 10 + 2;
        double start = 0;
        for (int i = 0; i < warm + count; ++i) {
            if (i == warm) {
                MPI_Barrier(MPI_COMM_WORLD);
                start = MPI_Wtime();
            }
            MPI_Alltoall(out, (int)length, MPI_BYTE, in, (int)length, MPI_BYTE, MPI_COMM_WORLD);
        }
        double took = MPI_Wtime() - start, longest = 0;
        MPI_Reduce(&took, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        report(length, longest * 1e6 / count);
    }
    free(out);
    free(in);
    MPI_Finalize();
    return 0;
}
