/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * OpenSHMEM's hot pair: all trickle puts to all others while one pair puts fast; half way through
 * the pair changes. With one dedicated lane a worker (UCX_MAX_HOST_LANES=1) it must follow. Each
 * put of the hot pair goes to a slot of its own and is followed, behind a fence, by its number: a
 * slot that is not there when the number is, or not right, shows a put that was lost, doubled or
 * overtaken at a switch. The counters are in the library's last line at level info.
 *
 *   shmem_hot [SECONDS of each phase]
 */
#include <sys/time.h>
#include <unistd.h>

#include "pe.h"

enum { kSlots = 32, kWords = 25 };

static long (*slots)[kSlots][kWords]; /* [from] */
static long *arrived, *taken; /* [from], [to]: bursts that came, bursts that the peer took */
static long* trickled;        /* [from] */
static long *sent, *received, *rounds;
static long* go;

static double now(void) {
    struct timeval time;
    gettimeofday(&time, NULL);
    return (double)time.tv_sec + 1e-6 * (double)time.tv_usec;
}

static long content(int from, int to, long burst, int slot, int word) {
    return burst * 1000003 + from * 10007 + to * 101 + slot * 31 + word;
}

/* A burst each way: data, fence, number; then the peer's is awaited and looked at. */
static void exchange(int peer) {
    long out[kWords];
    const long burst = ++sent[peer];
    for (int slot = 0; slot < kSlots; ++slot) {
        const int words = slot % 7 == 0 ? kWords : 1 + slot % 3;
        for (int word = 0; word < words; ++word) out[word] = content(me, peer, burst, slot, word);
        shmem_long_put(slots[me][slot], out, (size_t)words, peer);
    }
    shmem_fence();
    shmem_long_p(&arrived[me], burst, peer);
    ++received[peer];
    shmem_long_wait_until(&arrived[peer], SHMEM_CMP_GE, received[peer]);
    CHECK(arrived[peer] == received[peer]);
    for (int slot = 0; slot < kSlots; ++slot) {
        const int words = slot % 7 == 0 ? kWords : 1 + slot % 3;
        for (int word = 0; word < words; ++word)
            CHECK(slots[peer][slot][word] == content(peer, me, received[peer], slot, word));
    }
    /* The peer's slots may be written again. */
    shmem_long_p(&taken[me], received[peer], peer);
    shmem_long_wait_until(&taken[peer], SHMEM_CMP_GE, sent[peer]);
}

/* The lower of the two says, behind each burst, whether another follows. */
static void hot(int peer, double seconds) {
    const double until = now() + seconds;
    long step = *go;
    int more = 1;
    while (more) {
        exchange(peer);
        if (me < peer) {
            more = now() < until;
            shmem_quiet();
            shmem_long_p(go, 2 * ++step + more, peer);
        } else {
            ++step;
            shmem_long_wait_until(go, SHMEM_CMP_GE, 2 * step);
            more = (int)(*go & 1);
        }
    }
    shmem_quiet();
    *go = 0;
}

/* The others leave the processors to the pair, and answer what comes all the same. */
static void rest(double seconds) {
    const double until = now() + seconds;
    while (now() < until) {
        shmem_quiet();
        usleep(500);
    }
}

static void trickle(void) {
    for (int step = 1; step < count; ++step) {
        const int to = (me + step) % count;
        shmem_long_p(&trickled[me], ++rounds[to], to);
    }
    shmem_barrier_all();
    for (int from = 0; from < count; ++from) CHECK(from == me || trickled[from] == rounds[from]);
    shmem_barrier_all();
}

int main(int argc, char** argv) {
    begin();
    const double seconds = argc > 1 ? atof(argv[1]) : 1;
    const size_t all = (size_t)count;
    slots = shmem_malloc(sizeof(*slots) * all);
    arrived = shmem_calloc(all, sizeof(long));
    taken = shmem_calloc(all, sizeof(long));
    trickled = shmem_calloc(all, sizeof(long));
    go = shmem_calloc(1, sizeof(long));
    sent = calloc(all, sizeof(long));
    received = calloc(all, sizeof(long));
    rounds = calloc(all, sizeof(long));
    for (int phase = 0; phase < 2 && count > 2; ++phase) {
        const int partner = phase + 1; /* of 0 */
        for (int round = 0; round < 10; ++round) {
            trickle();
            if (me == 0)
                hot(partner, seconds / 10);
            else if (me == partner)
                hot(0, seconds / 10);
            else
                rest(seconds / 10);
        }
    }
    trickle();
    for (int i = 1; me == 0 && i < count; ++i) printf("to pe %d: %ld bursts\n", i, sent[i]);
    free(sent);
    free(received);
    free(rounds);
    return end("shmem_hot");
}
