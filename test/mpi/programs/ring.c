/* SPDX-License-Identifier: BSD-3-Clause */
/* A token goes around, in sizes from nothing to some MiB: every size class of the protocols. */
#include "check.h"

int main(int argc, char** argv) {
    begin(&argc, &argv);
    static const size_t sizes[] = {0,     1,      8,      64,      200,     255,    256,   1000,
                                   2047,  2048,   4096,   8191,    8192,    16384,  32768, 65536,
                                   65537, 131072, 262144, 1000003, 1 << 20, 4 << 20};
    const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    char* buffer = malloc(4 << 20);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); ++i) {
        const int length = (int)sizes[i];
        for (int round = 0; round < 3; ++round) {
            MPI_Status status;
            int count;
            if (rank == 0) {
                fill(buffer, sizes[i], (unsigned)round);
                if (size == 1) break;
                MPI_Send(buffer, length, MPI_BYTE, next, round, MPI_COMM_WORLD);
                memset(buffer, 0, sizes[i]);
            }
            MPI_Recv(buffer, length, MPI_BYTE, previous, round, MPI_COMM_WORLD, &status);
            MPI_Get_count(&status, MPI_BYTE, &count);
            CHECK_EQUAL(count, length);
            CHECK(matches(buffer, sizes[i], (unsigned)round));
            if (rank != 0) MPI_Send(buffer, length, MPI_BYTE, next, round, MPI_COMM_WORLD);
        }
    }
    free(buffer);
    return end("ring");
}
