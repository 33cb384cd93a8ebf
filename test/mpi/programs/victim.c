/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One rank kills itself at a moment of MPI_Init, in the midst of traffic, or of MPI_Finalize. Every
 * call of the others into the library must return, and after a death in the midst of traffic their
 * messages to each other must arrive. In MPI_Init and MPI_Finalize the runtime may wait for the
 * dead for ever: that is its affair, and is seen after three seconds from a timer. Whether an
 * operation to the dead fails, or never ends, is the runtime's affair as well.
 *
 *   victim run|init|finalize MICROSECONDS RANK      when after the stage begins which rank dies
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { kSlots = 16, kMost = 200000, kFrames = 64 };
static const double kLongestStep = 0.5; /* seconds from one look at the clock to the next */
enum { kLooksPerSecond = 10, kWaitLooks = 30, kStuckLooks = 200 };

static volatile sig_atomic_t progress_calls; /* that have returned */
static volatile sig_atomic_t runtime_waits;  /* in MPI_Init or MPI_Finalize */

/* The runtime's calls come here, as programs are searched for names before libraries. */
__attribute__((visibility("default"))) unsigned ucp_worker_progress(void* worker);
unsigned ucp_worker_progress(void* worker) {
    static unsigned (*own)(void*);
    if (own == NULL) {
        void* library = dlopen("libucp.so.0", RTLD_LAZY | RTLD_NOLOAD);
        *(void**)&own = dlsym(library, "ucp_worker_progress");
    }
    const unsigned count = own(worker);
    ++progress_calls;
    return count;
}

static int runs_in_library(void) {
    void* frames[kFrames];
    const int count = backtrace(frames, kFrames);
    for (int i = 0; i < count; ++i) {
        Dl_info info;
        if (dladdr(frames[i], &info) != 0 && info.dli_fname != NULL &&
            strstr(info.dli_fname, "libucp.so") != NULL)
            return 1;
    }
    return 0;
}

static void say(const char* text) {
    if (write(STDOUT_FILENO, text, strlen(text)) < 0) _exit(3);
}

/* A call into the library in which looks come and no progress ends is stuck. */
static void look(int signal) {
    (void)signal;
    static sig_atomic_t before;
    static int waited, inside;
    inside = progress_calls == before && runs_in_library() ? inside + 1 : 0;
    before = progress_calls;
    if (inside == kStuckLooks) {
        say("victim STUCK: a call does not return\n");
        _exit(2);
    }
    if (runtime_waits && ++waited > kWaitLooks && inside == 0) {
        say("victim SURVIVED: the runtime waits for the dead\n");
        _exit(0);
    }
}

static void die(int signal) {
    (void)signal;
    kill(getpid(), SIGKILL);
}

static void start_timer(void (*handler)(int), long microseconds, int repeats) {
    const struct timeval time = {microseconds / 1000000, microseconds % 1000000 + 1};
    const struct timeval never = {0, 0};
    const struct itimerval timer = {repeats ? time : never, time};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Seconds that this process has been running: while it is stopped nobody can write to it. */
static double time_run(void) {
    static double last, sum;
    const double time = now(), passed = time - last;
    if (last != 0) sum += passed < kLongestStep ? passed : kLongestStep;
    last = time;
    return sum;
}

/* Messages to and from all others, until two seconds after the death. */
static void exchange(int dead, double seconds, int someone_lives) {
    static const int lengths[] = {8, 3000, kMost, 100};
    MPI_Request receives[kSlots], sends[kSlots];
    char* memory = calloc(2 * kSlots, kMost);
    for (int i = 0; i < kSlots; ++i) {
        receives[i] = sends[i] = MPI_REQUEST_NULL;
        fill(memory + (size_t)(kSlots + i) * kMost, kMost, (unsigned)rank);
    }
    const double death = time_run() + seconds;
    long with_living = 0, with_dead = 0, refused = 0;
    while (time_run() < death + 2) {
        const long refused_before = refused;
        for (int i = 0; i < kSlots; ++i) {
            const int peer = (rank + 1 + i % (size - 1)) % size;
            int received = 0, sent = 0, length = 0;
            MPI_Status status;
            if (receives[i] == MPI_REQUEST_NULL)
                refused += MPI_Irecv(memory + (size_t)i * kMost, kMost, MPI_BYTE, peer, 1,
                                     MPI_COMM_WORLD, &receives[i]) != MPI_SUCCESS;
            if (sends[i] == MPI_REQUEST_NULL)
                refused += MPI_Isend(memory + (size_t)(kSlots + i) * kMost, lengths[i % 4],
                                     MPI_BYTE, peer, 1, MPI_COMM_WORLD, &sends[i]) != MPI_SUCCESS;
            if (receives[i] != MPI_REQUEST_NULL) {
                const int result = MPI_Test(&receives[i], &received, &status);
                refused += result != MPI_SUCCESS;
                received = received && result == MPI_SUCCESS;
            }
            if (received) {
                MPI_Get_count(&status, MPI_BYTE, &length);
                CHECK(matches(memory + (size_t)i * kMost, (size_t)length, (unsigned)peer));
            }
            if (sends[i] != MPI_REQUEST_NULL)
                refused += MPI_Test(&sends[i], &sent, MPI_STATUS_IGNORE) != MPI_SUCCESS;
            if (time_run() > death + 0.3) *(peer == dead ? &with_dead : &with_living) += received;
        }
        if (refused != refused_before) usleep(10000); /* the runtime prints each refusal */
    }
    const char* verdict = failures > 0                        ? "MISLED"
                          : someone_lives && with_living == 0 ? "ALONE"
                                                              : "SURVIVED";
    printf(
        "victim %s rank=%d: after the death %ld messages of the living, %ld of the dead, %ld "
        "refusals\n",
        verdict, rank, with_living, with_dead, refused);
    fflush(stdout);
}

/* Launchers tell ranks their number before MPI does. */
static int rank_told_by_launcher(void) {
    const char* told = getenv("OMPI_COMM_WORLD_RANK");
    if (told == NULL) told = getenv("PMI_RANK");
    return told == NULL ? -1 : atoi(told);
}

int main(int argc, char** argv) {
    const char* stage = argc > 1 ? argv[1] : "run";
    const long moment = argc > 2 ? atol(argv[2]) : 100000;
    const int dead = argc > 3 ? atoi(argv[3]) : 1;
    const int is_dead = rank_told_by_launcher() == dead;
    runs_in_library(); /* the first backtrace loads what later ones need */
    if (!is_dead) start_timer(look, 1000000 / kLooksPerSecond, 1);

    runtime_waits = strcmp(stage, "init") == 0;
    if (is_dead && runtime_waits) start_timer(die, moment, 0);
    begin(&argc, &argv);
    runtime_waits = 0;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);

    int sum = 0;
    if (strcmp(stage, "init") != 0) MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (is_dead && strcmp(stage, "run") == 0) start_timer(die, moment, 0);
    if (strcmp(stage, "finalize") != 0) {
        /* Of those whose MPI_Init did not end well nobody may be left. */
        const int in_traffic = strcmp(stage, "run") == 0;
        exchange(dead, in_traffic ? 1e-6 * (double)moment : 0, in_traffic && size > 2);
        exit(0); /* without MPI_Finalize, which would wait for the dead */
    }
    runtime_waits = 1;
    if (is_dead) start_timer(die, moment, 0);
    MPI_Finalize();
    say("victim SURVIVED: MPI_Finalize has ended\n");
    return 0;
}
