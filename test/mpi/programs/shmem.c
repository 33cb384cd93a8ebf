/* SPDX-License-Identifier: BSD-3-Clause */
/* OpenSHMEM: put, get, atomics, waiting, locks and collectives on the symmetric heap and static
 * data. */
#include "pe.h"

enum { kWords = 100000 };
static long static_words[1000];
static long reduce_source[4], reduce_target[4];
static long work[SHMEM_REDUCE_MIN_WRKDATA_SIZE + 8];
static long broadcast_sync[SHMEM_BCAST_SYNC_SIZE], collect_sync[SHMEM_COLLECT_SYNC_SIZE];
static long alltoall_sync[SHMEM_ALLTOALL_SYNC_SIZE];
static long lock;

static void put_and_get(void) {
    long* heap = shmem_malloc(sizeof(long) * kWords);
    long* local = malloc(sizeof(long) * kWords);
    const int next = (me + 1) % count, previous = (me + count - 1) % count;
    static const int sizes[] = {1, 7, 500, 20000, kWords};
    for (int s = 0; s < 5; ++s) {
        for (int i = 0; i < sizes[s]; ++i) local[i] = me * 1000000L + i + s;
        shmem_barrier_all();
        shmem_long_put(heap, local, (size_t)sizes[s], next);
        shmem_barrier_all();
        int wrong = 0;
        for (int i = 0; i < sizes[s]; ++i) wrong += heap[i] != previous * 1000000L + i + s;
        CHECK(wrong == 0);
        memset(local, 0, sizeof(long) * kWords);
        shmem_long_get(local, heap, (size_t)sizes[s], next);
        wrong = 0;
        for (int i = 0; i < sizes[s]; ++i) wrong += local[i] != me * 1000000L + i + s;
        CHECK(wrong == 0);
        memset(local, 0, sizeof(long) * kWords);
        shmem_long_get_nbi(local, heap, (size_t)sizes[s], next);
        shmem_quiet();
        wrong = 0;
        for (int i = 0; i < sizes[s]; ++i) wrong += local[i] != me * 1000000L + i + s;
        CHECK(wrong == 0);
    }
    for (int i = 0; i < 1000; ++i) local[i] = me + i;
    shmem_barrier_all();
    shmem_long_iput(static_words, local, 2, 1, 500, next);
    shmem_barrier_all();
    for (int i = 0; i < 500; ++i) CHECK(static_words[2 * i] == previous + i);
    shmem_long_p(&static_words[1], me + 77, next);
    shmem_barrier_all();
    CHECK(static_words[1] == previous + 77);
    CHECK(shmem_long_g(&static_words[1], previous) == (previous + count - 1) % count + 77);
    shmem_barrier_all();
    shmem_free(heap);
    free(local);
}

static void atomics(void) {
    enum { kRounds = 200 };
    long* words = shmem_malloc(sizeof(long) * 4);
    int* small = shmem_malloc(sizeof(int) * 4);
    memset(words, 0, sizeof(long) * 4);
    memset(small, 0, sizeof(int) * 4);
    shmem_barrier_all();
    long last = -1;
    for (int i = 0; i < kRounds; ++i) {
        const long old = shmem_long_atomic_fetch_inc(&words[0], 0);
        CHECK(old > last && old < kRounds * count);
        last = old;
        shmem_long_atomic_add(&words[1], 3, count - 1);
        shmem_int_atomic_inc(&small[0], 0);
        CHECK(shmem_int_atomic_fetch_add(&small[1], 1, count - 1) >= 0);
    }
    shmem_ulong_atomic_or((unsigned long*)&words[3], 1ul << me, 0);
    shmem_quiet();
    shmem_barrier_all();
    if (me == 0) CHECK(words[0] == kRounds * count && small[0] == kRounds * count);
    if (me == 0) CHECK(words[3] == (1L << count) - 1);
    if (me == count - 1) CHECK(words[1] == 3L * kRounds * count && small[1] == kRounds * count);
    /* Exactly one takes the place. */
    const long found = shmem_long_atomic_compare_swap(&words[2], 0, me + 1, 0);
    const int won = found == 0;
    CHECK(won || (found >= 1 && found <= count));
    reduce_source[0] = won;
    shmem_barrier_all();
    shmem_long_sum_to_all(reduce_target, reduce_source, 1, 0, 0, count, work, sync_area);
    CHECK(reduce_target[0] == 1);
    shmem_barrier_all();
    CHECK(shmem_long_atomic_swap(&words[2], 0, me) == 0 || me == 0);
    shmem_barrier_all();
    shmem_free(words);
    shmem_free(small);
}

/* A token goes around by waiting on memory, data before flag. */
static void waiting(void) {
    long* flag = shmem_malloc(sizeof(long));
    long* data = shmem_malloc(sizeof(long) * 100);
    *flag = 0;
    shmem_barrier_all();
    long local[100];
    const int next = (me + 1) % count;
    for (int round = 1; round <= 50; ++round) {
        if (me != 0) {
            shmem_long_wait_until(flag, SHMEM_CMP_GE, round);
            int wrong = 0;
            for (int i = 0; i < 100; ++i) wrong += data[i] != round * 1000 + i;
            CHECK(wrong == 0);
        }
        for (int i = 0; i < 100; ++i) local[i] = round * 1000 + i;
        shmem_long_put(data, local, 100, next);
        shmem_fence();
        shmem_long_p(flag, round, next);
        if (me == 0) shmem_long_wait_until(flag, SHMEM_CMP_GE, round);
    }
    shmem_barrier_all();
    shmem_free(flag);
    shmem_free(data);
}

static void locks(void) {
    enum { kRounds = 30 };
    long* counter = shmem_malloc(sizeof(long));
    *counter = 0;
    shmem_barrier_all();
    for (int i = 0; i < kRounds; ++i) {
        shmem_set_lock(&lock);
        const long value = shmem_long_g(counter, 0);
        shmem_long_p(counter, value + 1, 0);
        shmem_quiet();
        shmem_clear_lock(&lock);
    }
    shmem_barrier_all();
    if (me == 0) CHECK(*counter == kRounds * count);
    shmem_barrier_all();
    shmem_free(counter);
}

static void collectives(void) {
    enum { kLength = 300 };
    long* source = shmem_malloc(sizeof(long) * (size_t)(kLength * count));
    long* target = shmem_malloc(sizeof(long) * (size_t)(kLength * count));
    for (int i = 0; i < kLength * count; ++i) source[i] = me * 100000L + i;
    memset(target, 0, sizeof(long) * (size_t)(kLength * count));
    shmem_barrier_all();
    shmem_broadcast64(target, source, kLength, 0, 0, 0, count, broadcast_sync);
    shmem_barrier_all();
    for (int i = 0; i < kLength && me != 0; ++i) CHECK(target[i] == i);
    shmem_barrier_all();
    shmem_fcollect64(target, source, kLength, 0, 0, count, collect_sync);
    shmem_barrier_all();
    for (int i = 0; i < kLength * count; ++i)
        CHECK(target[i] == (i / kLength) * 100000L + i % kLength);
    shmem_barrier_all();
    shmem_alltoall64(target, source, kLength, 0, 0, count, alltoall_sync);
    shmem_barrier_all();
    for (int i = 0; i < kLength * count; ++i)
        CHECK(target[i] == (i / kLength) * 100000L + me * kLength + i % kLength);
    shmem_barrier_all();
    for (int i = 0; i < 4; ++i) reduce_source[i] = me + i;
    shmem_barrier_all();
    shmem_long_max_to_all(reduce_target, reduce_source, 4, 0, 0, count, work, sync_area);
    for (int i = 0; i < 4; ++i) CHECK(reduce_target[i] == count - 1 + i);
    shmem_barrier_all();
    shmem_free(source);
    shmem_free(target);
}

int main(void) {
    begin();
    for (int i = 0; i < SHMEM_BCAST_SYNC_SIZE; ++i) broadcast_sync[i] = SHMEM_SYNC_VALUE;
    for (int i = 0; i < SHMEM_COLLECT_SYNC_SIZE; ++i) collect_sync[i] = SHMEM_SYNC_VALUE;
    for (int i = 0; i < SHMEM_ALLTOALL_SYNC_SIZE; ++i) alltoall_sync[i] = SHMEM_SYNC_VALUE;
    shmem_barrier_all();
    put_and_get();
    atomics();
    waiting();
    locks();
    collectives();
    return end("shmem");
}
