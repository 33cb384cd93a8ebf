/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One-way latency of a cache line between two cores, in microseconds: the floor of shared memory,
 * and the measure of how quiet the machine is. The best of a few short measurements. line [CORE
 * CORE]
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { kRounds = 100000, kTries = 5 };

static _Alignas(128) atomic_long there;
static _Alignas(128) atomic_long back;

static void pin(int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

static void* answer(void* core) {
    pin(*(int*)core);
    for (long i = 1; i <= (long)kRounds * kTries; ++i) {
        while (atomic_load_explicit(&there, memory_order_acquire) != i) continue;
        atomic_store_explicit(&back, i, memory_order_release);
    }
    return NULL;
}

int main(int argc, char** argv) {
    int cores[2] = {argc > 1 ? atoi(argv[1]) : 0, argc > 2 ? atoi(argv[2]) : 1};
    pthread_t other;
    pin(cores[0]);
    pthread_create(&other, NULL, answer, &cores[1]);
    double best = 1e9;
    for (long try = 0; try < kTries; ++try) {
        struct timespec start, end;
        clock_gettime(CLOCK_MONOTONIC, &start);
        for (long i = try * kRounds + 1; i <= (try + 1) * kRounds; ++i) {
            atomic_store_explicit(&there, i, memory_order_release);
            while (atomic_load_explicit(&back, memory_order_acquire) != i) continue;
        }
        clock_gettime(CLOCK_MONOTONIC, &end);
        const double took =
            (double)(end.tv_sec - start.tv_sec) * 1e6 + (double)(end.tv_nsec - start.tv_nsec) / 1e3;
        if (took / (2.0 * kRounds) < best) best = took / (2.0 * kRounds);
    }
    pthread_join(other, NULL);
    printf("%.4f\n", best);
    return 0;
}
