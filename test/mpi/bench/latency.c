/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Half a round trip between ranks 0 and 1, in microseconds. The third argument says what is sent,
 * as caches of either side hold more or less of it: same     what was received last (the default)
 *   apart    a buffer that nobody writes, so that the receiver's caches hold it from the time
 * before written  a buffer that the sender has just written; the writing is not counted fresh    a
 * buffer that was not used for long, received into another such
 */
#include "bench.h"

enum { kPool = 64 << 20 };

static const char* state = "same";

static int is(const char* name) {
    return strcmp(state, name) == 0;
}

/* Place of the next message in a pool. */
static char* next_place(char* pool, size_t* offset, size_t length) {
    const size_t room = (length + 4095) / 4096 * 4096;
    if (!is("fresh")) return pool;
    if (*offset + room > kPool) *offset = 0;
    char* const place = pool + *offset;
    *offset += room;
    return place;
}

/* Both ranks write at the same time: rank 0 waits until the other one has surely done so, too. */
static void write_both(char* place, size_t length) {
    const double start = MPI_Wtime();
    memset(place, 3, length);
    const double took = MPI_Wtime() - start;
    while (rank == 0 && MPI_Wtime() < start + 3 * took + 1e-6) {
    }
}

int main(int argc, char** argv) {
    begin(&argc, &argv);
    if (argc > 3) state = argv[3];
    const size_t room = is("fresh") ? kPool : largest;
    char* const out = buffer(room);
    char* const in = is("same") ? out : buffer(room);
    size_t out_offset = 0, in_offset = 0;
    for (size_t length = 1; length <= largest; length *= 2) {
        const int count = rounds(length, 20000), warm = count / 10 + 5;
        double took = 0;
        MPI_Barrier(MPI_COMM_WORLD);
        for (int i = 0; i < warm + count && rank < 2; ++i) {
            char* const from = next_place(out, &out_offset, length);
            char* const to = next_place(in, &in_offset, length);
            if (is("written")) write_both(from, length);
            if (i == warm || is("written")) took = i <= warm ? -MPI_Wtime() : took - MPI_Wtime();
            if (rank == 0) {
                MPI_Send(from, (int)length, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
                MPI_Recv(to, (int)length, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            } else {
                MPI_Recv(to, (int)length, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                MPI_Send(from, (int)length, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
            }
            if (i == warm + count - 1 || is("written")) took += MPI_Wtime();
        }
        report(length, took * 1e6 / (2.0 * count));
    }
    if (in != out) free(in);
    free(out);
    MPI_Finalize();
    return 0;
}
