/* SPDX-License-Identifier: BSD-3-Clause */
/* Windows to which memory is attached later: several regions, through every kind of access.
 *
 * Open MPI 4.1 keeps a table of the regions sorted by address, and loses track of their keys when
 * one is put in behind another: what it hands over then is whatever lies there, often zeros, with
 * which the library below must do. Here that does not depend on what lies there: regions are
 * attached by falling addresses, and each second key is replaced by zeros on its way. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "check.h"

enum { kWords = 3000, kMostRegions = 4 };

static int replaces_keys; /* each second one, from now on */
static long replaced;

/* Stands between the runtime and the library. */
int ucp_ep_rkey_unpack(void* endpoint, const void* buffer, void** key) {
    static const char zeros[64];
    static int (*unpack)(void*, const void*, void**);
    static long calls;
    if (unpack == NULL) *(void**)&unpack = dlsym(RTLD_NEXT, "ucp_ep_rkey_unpack");
    if (replaces_keys && ++calls % 2 == 0) {
        buffer = zeros;
        ++replaced;
    }
    return unpack(endpoint, buffer, key);
}

static MPI_Win window;
static MPI_Aint* places; /* of region r of a rank: places[rank * kMostRegions + r] */

static MPI_Aint place(int target, int region, int word) {
    return MPI_Aint_add(places[target * kMostRegions + region], (MPI_Aint)sizeof(long) * word);
}

/* Each rank puts into every region of the next one, and reads back. */
static void put_and_get(int regions, long** memory) {
    const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    static long out[kWords], in[kWords];
    for (int r = 0; r < regions; ++r) {
        for (int i = 0; i < kWords; ++i) out[i] = rank * 1000000L + r * 100000L + i;
        MPI_Win_lock(MPI_LOCK_SHARED, next, 0, window);
        MPI_Put(out, kWords, MPI_LONG, next, place(next, r, 0), kWords, MPI_LONG, window);
        MPI_Win_unlock(next, window);
        memset(in, 0, sizeof(in));
        MPI_Win_lock(MPI_LOCK_SHARED, next, 0, window);
        MPI_Get(in, kWords, MPI_LONG, next, place(next, r, 0), kWords, MPI_LONG, window);
        MPI_Win_unlock(next, window);
        CHECK_EQUAL(memcmp(in, out, sizeof(in)), 0);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int r = 0; r < regions; ++r) {
        int wrong = 0;
        for (int i = 0; i < kWords; ++i)
            wrong += memory[r][i] != previous * 1000000L + r * 100000L + i;
        CHECK_EQUAL(wrong, 0);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* All ranks add to the same words of rank 0; nothing may get lost. */
static void accumulate(int regions, long** memory) {
    enum { kRounds = 20 };
    for (int r = 0; r < regions; ++r) memset(memory[r], 0, sizeof(long) * kWords);
    MPI_Barrier(MPI_COMM_WORLD);
    static long ones[kWords];
    for (int i = 0; i < kWords; ++i) ones[i] = 1;
    long before = 0;
    const long one = 1;
    MPI_Win_lock_all(0, window);
    for (int r = 0; r < regions; ++r) {
        for (int round = 0; round < kRounds; ++round) {
            MPI_Accumulate(ones, 100, MPI_LONG, 0, place(0, r, 0), 100, MPI_LONG, MPI_SUM, window);
            MPI_Win_flush(0, window);
            MPI_Fetch_and_op(&one, &before, MPI_LONG, 0, place(0, r, 200), MPI_SUM, window);
            MPI_Win_flush(0, window);
            CHECK(before >= round && before < (long)size * kRounds);
        }
    }
    MPI_Win_unlock_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int r = 0; r < regions && rank == 0; ++r) {
        int wrong = 0;
        for (int i = 0; i < 100; ++i) wrong += memory[r][i] != (long)size * kRounds;
        CHECK_EQUAL(wrong, 0);
        CHECK_EQUAL(memory[r][200], (long)size * kRounds);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void windows(int regions) {
    long* memory[kMostRegions];
    MPI_Aint own[kMostRegions] = {0};
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    static long block[kMostRegions][kWords];
    memset(block, 0, sizeof(block));
    for (int r = 0; r < regions; ++r) memory[r] = block[r];
    for (int r = regions - 1; r >= 0; --r) {
        MPI_Win_attach(window, memory[r], sizeof(long) * kWords);
        MPI_Get_address(memory[r], &own[r]);
    }
    MPI_Allgather(own, kMostRegions, MPI_AINT, places, kMostRegions, MPI_AINT, MPI_COMM_WORLD);
    replaces_keys = 1;
    put_and_get(regions, memory);
    accumulate(regions, memory);
    replaces_keys = 0;
    for (int r = 0; r < regions; ++r) MPI_Win_detach(window, memory[r]);
    MPI_Win_free(&window);
}

int main(int argc, char** argv) {
    begin(&argc, &argv);
    places = calloc((size_t)size * kMostRegions, sizeof(MPI_Aint));
    for (int regions = 1; regions <= kMostRegions; ++regions) windows(regions);
    CHECK(replaced > 0);
    free(places);
    return end("dynamic");
}
