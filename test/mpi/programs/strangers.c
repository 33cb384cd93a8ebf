/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Strangers at the TCP ports of a running job: 10,000 connections to all ranks' listeners that say
 * nothing, random bytes, half a greeting, the whole greeting of a job with another key, or that of
 * another version. Each must be closed by the rank, with a word on versions at most, and meanwhile
 * the job's messages go around, every byte checked.
 *
 *   strangers [CONNECTIONS]
 *
 * The listeners are known by UCX_TCP_PORT_RANGE. The strangers are a process of their own, this
 * program started again: strangers knock CONNECTIONS.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum {
    kGreeting = 96,
    kChallenge = 48,
    kKinds = 5,
    kHeld = 500,
    kMostListeners = 64,
    kPatience = 30000
};

static struct sockaddr_in listeners[kMostListeners];
static int listener_count;

/* Who listens on a port of the range. */
static void find_listeners(void) {
    unsigned first = 1, last = 0;
    const char* range = getenv("UCX_TCP_PORT_RANGE");
    if (range == NULL || sscanf(range, "%u-%u", &first, &last) != 2) return;
    FILE* table = fopen("/proc/net/tcp", "r");
    char line[512];
    while (table != NULL && fgets(line, sizeof(line), table) != NULL) {
        unsigned address = 0, port = 0, state = 0;
        enum { kListens = 10 };
        if (sscanf(line, " %*d: %x:%x %*x:%*x %x", &address, &port, &state) != 3) continue;
        if (state != kListens || port < first || port > last || listener_count == kMostListeners)
            continue;
        struct sockaddr_in* listener = &listeners[listener_count++];
        listener->sin_family = AF_INET;
        listener->sin_addr.s_addr = address;
        listener->sin_port = htons((uint16_t)port);
    }
    if (table != NULL) fclose(table);
}

/* As of a job whose secret and key are others: magic and versions as in src/uct/tcp/wire/format.h.
 */
static void make_greeting(unsigned char* bytes, unsigned char version) {
    const unsigned char start[] = {'S', 'L', 'T', 'P', version, 0, version, 0};
    for (int i = 0; i < kGreeting; ++i) bytes[i] = (unsigned char)rand();
    memcpy(bytes, start, sizeof(start));
}

/* A connection that has said what its kind says. */
static int knock(int number) {
    const struct sockaddr_in* to = &listeners[number / kKinds % listener_count];
    const int stranger = socket(AF_INET, SOCK_STREAM, 0);
    /* Where ranks outnumber cores the kernel's queue of a listener may be full for a while. */
    if (stranger < 0 || connect(stranger, (const struct sockaddr*)to, sizeof(*to)) != 0) {
        fprintf(stderr, "stranger %d: %s\n", number, strerror(errno));
        exit(1);
    }
    unsigned char bytes[4 * kGreeting];
    make_greeting(bytes, number % kKinds == 4 ? 2 : 3);
    ssize_t sent = 0;
    switch (number % kKinds) {
        case 0:
            break;
        case 1:
            for (size_t i = 0; i < sizeof(bytes); ++i) bytes[i] = (unsigned char)rand();
            sent = send(stranger, bytes, 1 + (size_t)rand() % sizeof(bytes), MSG_NOSIGNAL);
            break;
        case 2:
            sent = send(stranger, bytes, kGreeting / 2, MSG_NOSIGNAL);
            break;
        default:
            sent = send(stranger, bytes, kGreeting, MSG_NOSIGNAL);
            break;
    }
    /* The rank may have closed it already, to make room. */
    if (sent < 0 && errno != EPIPE && errno != ECONNRESET) exit(2);
    return stranger;
}

/* Waits until the other end closes; whoever says more than a challenge has let the stranger in. */
static void await_refusal(int stranger) {
    struct pollfd event = {stranger, POLLIN, 0};
    char bytes[kChallenge + 1];
    ssize_t got = 0, all = 0;
    do {
        if (poll(&event, 1, kPatience) != 1) all = sizeof(bytes);
        got = recv(stranger, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (got > 0) all += got;
    } while (got > 0 && all <= kChallenge);
    if (all > kChallenge) {
        fprintf(stderr, "a stranger was not refused\n");
        exit(3);
    }
    close(stranger);
}

static int knock_all(int count) {
    int held[kHeld];
    find_listeners();
    if (listener_count == 0) return 4;
    for (int number = 0; number < count; ++number) {
        if (number >= kHeld) await_refusal(held[number % kHeld]);
        held[number % kHeld] = knock(number);
    }
    for (int i = 0; i < kHeld && i < count; ++i) await_refusal(held[i]);
    printf("%d strangers were refused by %d listeners\n", count, listener_count);
    return 0;
}

/* One message of each length around the ranks. */
static void pass_around(unsigned round, unsigned char* out, unsigned char* in) {
    static const int lengths[] = {8, 3000, 100000};
    const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    for (int i = 0; i < 3; ++i) {
        fill(out, (size_t)lengths[i], round + (unsigned)rank);
        MPI_Sendrecv(out, lengths[i], MPI_BYTE, next, i, in, lengths[i], MPI_BYTE, previous, i,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK(matches(in, (size_t)lengths[i], round + (unsigned)previous));
    }
}

int main(int argc, char** argv) {
    if (argc == 3 && strcmp(argv[1], "knock") == 0) return knock_all(atoi(argv[2]));
    begin(&argc, &argv);
    unsigned char *out = malloc(100000), *in = malloc(100000);
    pid_t strangers = 0;
    pass_around(0, out, in);
    if (rank == 0) {
        strangers = fork();
        if (strangers == 0) {
            execl("/proc/self/exe", argv[0], "knock", argc > 1 ? argv[1] : "10000", (char*)NULL);
            _exit(127);
        }
        CHECK(strangers > 0);
    }
    int more = 1;
    unsigned rounds = 1;
    for (; more; ++rounds) {
        pass_around(rounds, out, in);
        int status = 0;
        if (rank == 0 && (strangers <= 0 || waitpid(strangers, &status, WNOHANG) != 0)) {
            CHECK_EQUAL(status, 0);
            more = 0;
        }
        MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    if (rank == 0) printf("%u rounds meanwhile\n", rounds);
    free(out);
    free(in);
    return end("strangers");
}
