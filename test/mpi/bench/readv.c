/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bare reads of a megabyte from another process, in millions a second: what a copy by the kernel
 * can reach, to set beside the rate of messages of that size. The other process lies still on the
 * second core, in whose caches it has written what is read. The best of a few short measurements.
 *   readv [CORE CORE]
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kLength = 1 << 20, kReads = 640, kTries = 5 };

static void pin(int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    sched_setaffinity(0, sizeof(set), &set);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int main(int argc, char** argv) {
    const int cores[2] = {argc > 1 ? atoi(argv[1]) : 0, argc > 2 ? atoi(argv[2]) : 1};
    char *there = NULL, *here = NULL;
    int ready[2];
    if (posix_memalign((void**)&there, 4096, kLength) != 0 ||
        posix_memalign((void**)&here, 4096, kLength) != 0 || pipe(ready) != 0)
        return 1;
    memset(here, 1, kLength);
    const pid_t parent = getpid(), child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_PTRACER, parent);
        pin(cores[1]);
        memset(there, 2, kLength);
        if (write(ready[1], "", 1) == 1) pause();
        _exit(1);
    }
    char byte;
    if (child < 0 || read(ready[0], &byte, 1) != 1) return 1;
    pin(cores[0]);
    const struct iovec from = {there, kLength}, to = {here, kLength};
    double best = 0;
    int wrong = 0;
    for (int try = 0; try < kTries && !wrong; ++try) {
        const double start = now();
        for (int i = 0; i < kReads && !wrong; ++i)
            wrong = process_vm_readv(child, &to, 1, &from, 1, 0) != kLength;
        const double rate = kReads / (now() - start) / 1e6;
        if (rate > best) best = rate;
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    for (int i = 0; i < kLength; ++i) wrong |= here[i] != 2;
    if (wrong) {
        fprintf(stderr, "readv: the system does not let it, or the bytes are not right\n");
        return 1;
    }
    printf("%.6f\n", best);
    return 0;
}
