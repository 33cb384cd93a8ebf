/* SPDX-License-Identifier: BSD-3-Clause */
/* What it takes to start: seconds of MPI_Init and of the first all-to-all, memory of a rank in KiB.
 */
#include <time.h>

#include "check.h"

static long status_value(const char* key) {
    char line[256];
    long value = 0;
    FILE* status = fopen("/proc/self/status", "r");
    if (status == NULL) return 0;
    while (fgets(line, sizeof(line), status) != NULL) {
        if (strncmp(line, key, strlen(key)) == 0) value = atol(line + strlen(key));
    }
    fclose(status);
    return value;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int main(int argc, char** argv) {
    const double start = seconds();
    begin(&argc, &argv);
    const double initialised = seconds();
    int* out = malloc(sizeof(int) * (size_t)size);
    int* in = malloc(sizeof(int) * (size_t)size);
    for (int i = 0; i < size; ++i) out[i] = rank * size + i;
    MPI_Alltoall(out, 1, MPI_INT, in, 1, MPI_INT, MPI_COMM_WORLD);
    const double exchanged = seconds();
    for (int i = 0; i < size; ++i) CHECK_EQUAL(in[i], i * size + rank);
    /* Private memory: what is shared with other ranks counts once, not for each. */
    double mine[3] = {initialised - start, exchanged - initialised,
                      (double)(status_value("RssAnon:") + status_value("RssShmem:"))};
    double most[3], sum[3];
    MPI_Reduce(mine, most, 3, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(mine, sum, 3, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d ranks: init %.3f s, first all-to-all %.3f s, memory %.0f KiB a rank\n", size,
               most[0], most[1], sum[2] / size);
    free(out);
    free(in);
    return end("startup");
}
