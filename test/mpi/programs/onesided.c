/* SPDX-License-Identifier: BSD-3-Clause */
/* One-sided: put, get, accumulate, fetch-and-op, compare-and-swap under each synchronisation. */
#include "check.h"

enum { kWords = 40000 };

static void fences(void) {
    long* memory;
    MPI_Win window;
    MPI_Win_allocate(sizeof(long) * kWords, sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &memory,
                     &window);
    long* local = malloc(sizeof(long) * kWords);
    const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    static const int counts[] = {1, 10, 1000, kWords};
    for (int c = 0; c < 4; ++c) {
        for (int i = 0; i < counts[c]; ++i) local[i] = rank * 100000L + i + c;
        MPI_Win_fence(0, window);
        MPI_Put(local, counts[c], MPI_LONG, next, 0, counts[c], MPI_LONG, window);
        MPI_Win_fence(0, window);
        int wrong = 0;
        for (int i = 0; i < counts[c]; ++i) wrong += memory[i] != previous * 100000L + i + c;
        CHECK_EQUAL(wrong, 0);
        memset(local, 0, sizeof(long) * kWords);
        MPI_Win_fence(0, window);
        MPI_Get(local, counts[c], MPI_LONG, next, 0, counts[c], MPI_LONG, window);
        MPI_Win_fence(0, window);
        wrong = 0;
        for (int i = 0; i < counts[c]; ++i) wrong += local[i] != rank * 100000L + i + c;
        CHECK_EQUAL(wrong, 0);
        for (int i = 0; i < counts[c]; ++i) memory[i] = 0;
        for (int i = 0; i < counts[c]; ++i) local[i] = rank + 1;
        MPI_Win_fence(0, window);
        for (int target = 0; target < size; ++target)
            MPI_Accumulate(local, counts[c], MPI_LONG, target, 0, counts[c], MPI_LONG, MPI_SUM,
                           window);
        MPI_Win_fence(0, window);
        wrong = 0;
        for (int i = 0; i < counts[c]; ++i) wrong += memory[i] != size * (size + 1L) / 2;
        CHECK_EQUAL(wrong, 0);
    }
    free(local);
    MPI_Win_free(&window);
}

/* Counters that all ranks update at once: every increment is seen once. */
static void locks(void) {
    enum { kRounds = 200 };
    long* memory;
    MPI_Win window;
    MPI_Win_allocate(sizeof(long) * 8, sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &memory,
                     &window);
    memset(memory, 0, sizeof(long) * 8);
    MPI_Barrier(MPI_COMM_WORLD);
    char* seen = calloc(1, (size_t)(kRounds * size));
    const long one = 1;
    MPI_Win_lock_all(0, window);
    for (int i = 0; i < kRounds; ++i) {
        long old = -1;
        MPI_Fetch_and_op(&one, &old, MPI_LONG, 0, 0, MPI_SUM, window);
        MPI_Win_flush(0, window);
        CHECK(old >= 0 && old < kRounds * size);
        if (old >= 0 && old < kRounds * size) seen[old] = 1;
    }
    /* A spin lock built of compare-and-swap guards a plain counter. */
    for (int i = 0; i < 20; ++i) {
        const long mine = rank + 1, nobody = 0;
        long found = -1, value = 0;
        while (found != 0) {
            MPI_Compare_and_swap(&mine, &nobody, &found, MPI_LONG, 0, 1, window);
            MPI_Win_flush(0, window);
        }
        MPI_Get(&value, 1, MPI_LONG, 0, 2, 1, MPI_LONG, window);
        MPI_Win_flush(0, window);
        ++value;
        MPI_Put(&value, 1, MPI_LONG, 0, 2, 1, MPI_LONG, window);
        MPI_Win_flush(0, window);
        MPI_Compare_and_swap(&nobody, &mine, &found, MPI_LONG, 0, 1, window);
        MPI_Win_flush(0, window);
        CHECK_EQUAL(found, mine);
    }
    MPI_Win_unlock_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
    char* all = calloc(1, (size_t)(kRounds * size));
    MPI_Allreduce(seen, all, kRounds * size, MPI_CHAR, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < kRounds * size; ++i) CHECK_EQUAL(all[i], 1);
    /* Exclusive locks around a read and a write. */
    for (int i = 0; i < 30; ++i) {
        long value = 0;
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, size - 1, 0, window);
        MPI_Get(&value, 1, MPI_LONG, size - 1, 3, 1, MPI_LONG, window);
        MPI_Win_flush(size - 1, window);
        ++value;
        MPI_Put(&value, 1, MPI_LONG, size - 1, 3, 1, MPI_LONG, window);
        MPI_Win_unlock(size - 1, window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
    if (rank == 0) CHECK_EQUAL(memory[2], 20 * size);
    if (rank == size - 1) CHECK_EQUAL(memory[3], 30 * size);
    MPI_Win_unlock(rank, window);
    free(seen);
    free(all);
    MPI_Win_free(&window);
}

/* Post, start, complete, wait around the ring, on memory that the program brings. */
static void pscw(void) {
    static int memory[1000];
    static int local[1000];
    MPI_Win window;
    MPI_Win_create(memory, sizeof(memory), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Group world, to, from;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    MPI_Group_incl(world, 1, &next, &to);
    MPI_Group_incl(world, 1, &previous, &from);
    for (int round = 0; round < 20; ++round) {
        for (int i = 0; i < 1000; ++i) local[i] = rank * 5000 + round + i;
        MPI_Win_post(from, 0, window);
        MPI_Win_start(to, 0, window);
        MPI_Put(local, 1000, MPI_INT, next, 0, 1000, MPI_INT, window);
        MPI_Win_complete(window);
        MPI_Win_wait(window);
        int wrong = 0;
        for (int i = 0; i < 1000; ++i) wrong += memory[i] != previous * 5000 + round + i;
        CHECK_EQUAL(wrong, 0);
    }
    MPI_Group_free(&to);
    MPI_Group_free(&from);
    MPI_Group_free(&world);
    MPI_Win_free(&window);
}

/* Requests, strided targets, get-accumulate, and memory attached later. */
static void others(void) {
    MPI_Win window;
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    int* attached = calloc(1000, sizeof(int));
    MPI_Win_attach(window, attached, 1000 * sizeof(int));
    MPI_Aint* places = malloc(sizeof(MPI_Aint) * (size_t)size);
    MPI_Aint own;
    MPI_Get_address(attached, &own);
    MPI_Allgather(&own, 1, MPI_AINT, places, 1, MPI_AINT, MPI_COMM_WORLD);
    const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    int out[100], in[100];
    for (int i = 0; i < 100; ++i) out[i] = rank * 1000 + i;
    MPI_Datatype strided;
    MPI_Type_vector(100, 1, 2, MPI_INT, &strided);
    MPI_Type_commit(&strided);
    MPI_Win_lock(MPI_LOCK_SHARED, next, 0, window);
    MPI_Put(out, 100, MPI_INT, next, places[next], 1, strided, window);
    MPI_Win_flush(next, window);
    MPI_Get(in, 100, MPI_INT, next, places[next], 1, strided, window);
    MPI_Win_unlock(next, window);
    int wrong = 0;
    for (int i = 0; i < 100; ++i) wrong += in[i] != rank * 1000 + i;
    CHECK_EQUAL(wrong, 0);
    MPI_Barrier(MPI_COMM_WORLD);
    wrong = 0;
    for (int i = 0; i < 100; ++i)
        wrong += attached[2 * i] != previous * 1000 + i || attached[2 * i + 1] != 0;
    CHECK_EQUAL(wrong, 0);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_detach(window, attached);
    MPI_Type_free(&strided);
    MPI_Win_free(&window);
    free(attached);
    free(places);

    double* memory;
    MPI_Win_allocate(100 * sizeof(double), sizeof(double), MPI_INFO_NULL, MPI_COMM_WORLD, &memory,
                     &window);
    for (int i = 0; i < 100; ++i) memory[i] = 1;
    MPI_Barrier(MPI_COMM_WORLD);
    double add[100], before[100];
    for (int i = 0; i < 100; ++i) add[i] = i + 0.5;
    MPI_Win_lock_all(0, window);
    MPI_Request request;
    MPI_Rget_accumulate(add, 100, MPI_DOUBLE, before, 100, MPI_DOUBLE, next, 0, 100, MPI_DOUBLE,
                        MPI_SUM, window, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Win_unlock_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
    wrong = 0;
    for (int i = 0; i < 100; ++i) wrong += before[i] != 1 || memory[i] != 1 + i + 0.5;
    CHECK_EQUAL(wrong, 0);
    MPI_Win_free(&window);
}

int main(int argc, char** argv) {
    begin(&argc, &argv);
    fences();
    locks();
    pscw();
    others();
    return end("onesided");
}
