// SPDX-License-Identifier: BSD-3-Clause

// Programs that do not leave the library in peace: signals at any point, threads that are cancelled
// within a callback, processes that end without closing anything, descriptors beyond exec(), clocks
// that are set, and hosts where /dev/shm is of no use.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/dev_shm.h"
#include "ucp/api/ucp.h"
#include "unit/ucp/no_options.h"

namespace {

// While a test has connections broken: sends that found them so.
std::atomic<bool> are_connections_broken{false};
std::atomic<unsigned> broken_sends{0};

// As the kernel does it.
ssize_t send_to_nobody(int socket, int flags) {
    ++broken_sends;
    shutdown(socket, SHUT_RDWR);
    if ((flags & MSG_NOSIGNAL) == 0) (void)raise(SIGPIPE);
    errno = EPIPE;
    return -1;
}

// While a test sets the calendar: how often, and how many timers were asked to go by it.
std::atomic<bool> is_calendar_set{false};
std::atomic<unsigned> calendar_reads{0}, calendar_timers{0};

bool is_monotonic(clockid_t clock) {
    return clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_RAW ||
           clock == CLOCK_MONOTONIC_COARSE || clock == CLOCK_BOOTTIME;
}

}  // namespace

// In place of the C library's. Of the calendar, each second answer is an hour early, the others
// late.
extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
    const auto result = static_cast<int>(syscall(SYS_clock_gettime, clock, time));
    if (is_calendar_set && result == 0 &&
        (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        time->tv_sec += calendar_reads.fetch_add(1) % 2 == 0 ? 3600 : -3600;
    return result;
}
extern "C" ssize_t send(int socket, const void* bytes, size_t length, int flags) {
    if (are_connections_broken) return send_to_nobody(socket, flags);
    return syscall(SYS_sendto, socket, bytes, length, flags, nullptr, 0);
}
extern "C" ssize_t sendmsg(int socket, const msghdr* message, int flags) {
    if (are_connections_broken) return send_to_nobody(socket, flags);
    return syscall(SYS_sendmsg, socket, message, flags);
}
extern "C" int timerfd_create(int clock, int flags) noexcept {
    if (is_calendar_set && !is_monotonic(clock)) ++calendar_timers;
    return static_cast<int>(syscall(SYS_timerfd_create, clock, flags));
}

namespace ucp::test {
namespace {

// A worker of this process over one transport.
class Node {
  public:
    explicit Node(const std::string& transports,
                  ucs_thread_mode_t threads = UCS_THREAD_MODE_SINGLE) {
        setenv("UCX_TLS", transports.c_str(), 1);
        if (transports == "tcp") setenv("UCX_NET_DEVICES", "lo", 1);
        ucp_params_t params{};
        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
        EXPECT_EQ(ucp_init(&params, nullptr, &context_), UCS_OK);
        unsetenv("UCX_TLS");
        unsetenv("UCX_NET_DEVICES");
        ucp_worker_params_t worker_params{};
        worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
        worker_params.thread_mode = threads;
        EXPECT_EQ(ucp_worker_create(context_, &worker_params, &worker), UCS_OK);
    }
    ~Node() {
        ucp_worker_destroy(worker);
        ucp_cleanup(context_);
    }
    Node(const Node&) = delete;

    std::string address() const {
        ucp_address_t* address = nullptr;
        size_t length = 0;
        EXPECT_EQ(ucp_worker_get_address(worker, &address, &length), UCS_OK);
        std::string bytes(reinterpret_cast<const char*>(address), length);
        ucp_worker_release_address(worker, address);
        return bytes;
    }
    ucp_ep_h connect(const std::string& address) {
        ucp_ep_params_t params{};
        params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                            UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
        params.address = reinterpret_cast<const ucp_address_t*>(address.data());
        params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
        params.err_handler = {[](void* arg, ucp_ep_h, ucs_status_t) { ++*static_cast<int*>(arg); },
                              &errors};
        ucp_ep_h endpoint = nullptr;
        EXPECT_EQ(ucp_ep_create(worker, &params, &endpoint), UCS_OK);
        return endpoint;
    }

    ucp_worker_h worker = nullptr;
    int errors = 0;

  private:
    ucp_context_h context_ = nullptr;
};

// Until the condition holds, for a minute at most.
template <typename Condition>
bool until(std::initializer_list<ucp_worker_h> workers, Condition condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!condition()) {
        if (std::chrono::steady_clock::now() > end) return false;
        for (const ucp_worker_h worker : workers) ucp_worker_progress(worker);
    }
    return true;
}

ucs_status_t finish(std::initializer_list<ucp_worker_h> workers, ucs_status_ptr_t operation) {
    if (!UCS_PTR_IS_PTR(operation)) return UCS_PTR_RAW_STATUS(operation);
    EXPECT_TRUE(
        until(workers, [&] { return ucp_request_check_status(operation) != UCS_INPROGRESS; }));
    const ucs_status_t status = ucp_request_check_status(operation);
    ucp_request_free(operation);
    return status;
}

// A message of that length from one to the other, whole and unchanged.
void expect_message(Node& from, ucp_ep_h endpoint, Node& to, size_t length, uint8_t fill) {
    const std::vector<uint8_t> sent(length, fill);
    std::vector<uint8_t> received(length);
    const ucs_status_ptr_t receiving =
        ucp_tag_recv_nbx(to.worker, received.data(), length, 1, ~uint64_t{0}, &kNothing);
    const ucs_status_ptr_t sending = ucp_tag_send_nbx(endpoint, sent.data(), length, 1, &kNothing);
    EXPECT_EQ(finish({from.worker, to.worker}, sending), UCS_OK);
    EXPECT_EQ(finish({from.worker, to.worker}, receiving), UCS_OK);
    EXPECT_EQ(received, sent);
}

class Disturbed : public ::testing::TestWithParam<const char*> {};

// A signal every so often, whose handler lets system calls return early.
class Signals {
  public:
    explicit Signals(suseconds_t interval) {
        struct sigaction action {};
        action.sa_handler = [](int) { count_.fetch_add(1, std::memory_order_relaxed); };
        EXPECT_EQ(sigaction(SIGALRM, &action, &before_), 0);
        const itimerval timer{{0, interval}, {0, interval}};
        EXPECT_EQ(setitimer(ITIMER_REAL, &timer, nullptr), 0);
    }
    ~Signals() {
        const itimerval none{};
        setitimer(ITIMER_REAL, &none, nullptr);
        sigaction(SIGALRM, &before_, nullptr);
    }
    Signals(const Signals&) = delete;
    static unsigned count() { return count_; }

  private:
    static inline std::atomic<unsigned> count_{0};
    struct sigaction before_ {};
};

TEST_P(Disturbed, SignalsAtAnyPointLoseNothing) {
    const Signals signals(200);
    const unsigned before = Signals::count();
    for (uint8_t round = 1; round <= 5; ++round) {
        Node here(GetParam()), there(GetParam());
        const ucp_ep_h endpoint = here.connect(there.address());
        for (const size_t length : {size_t{8}, size_t{20'000}, size_t{4'000'000}}) {
            for (uint8_t count = 0; count < 10; ++count)
                expect_message(here, endpoint, there, length, static_cast<uint8_t>(round + count));
        }
        EXPECT_EQ(finish({here.worker, there.worker}, ucp_ep_close_nbx(endpoint, &kNothing)),
                  UCS_OK);
        EXPECT_EQ(here.errors, 0);
    }
    EXPECT_GT(Signals::count(), before);
}

// The thread is gone while the worker runs its handler; the next thread goes on.
TEST_P(Disturbed, AThreadThatIsCancelledInACallbackLeavesTheWorkerUsable) {
    Node here(GetParam(), UCS_THREAD_MODE_MULTI), there(GetParam(), UCS_THREAD_MODE_MULTI);
    const ucp_ep_h endpoint = here.connect(there.address());
    expect_message(here, endpoint, there, 8, 1);
    static std::atomic<unsigned> calls;
    calls = 0;
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB;
    handler.id = 7;
    handler.cb = [](void*, const void*, size_t, void*, size_t,
                    const ucp_am_recv_param_t*) -> ucs_status_t {
        if (calls.fetch_add(1) == 0) {
            pthread_cancel(pthread_self());
            pthread_testcancel();
        }
        return UCS_OK;
    };
    ASSERT_EQ(ucp_worker_set_am_recv_handler(there.worker, &handler), UCS_OK);
    const auto send = [&] {
        const uint64_t word = 1;
        EXPECT_EQ(finish({here.worker},
                         ucp_am_send_nbx(endpoint, 7, nullptr, 0, &word, sizeof(word), &kNothing)),
                  UCS_OK);
    };
    send();
    pthread_t thread{};
    ASSERT_EQ(pthread_create(
                  &thread, nullptr,
                  [](void* worker) -> void* {
                      for (;;) ucp_worker_progress(static_cast<ucp_worker_h>(worker));
                  },
                  there.worker),
              0);
    void* result = nullptr;
    ASSERT_EQ(pthread_join(thread, &result), 0);
    EXPECT_EQ(result, PTHREAD_CANCELED);
    EXPECT_EQ(calls, 1u);
    send();
    EXPECT_TRUE(until({there.worker}, [] { return calls >= 2; }));
    expect_message(here, endpoint, there, 20'000, 2);
    EXPECT_EQ(calls, 2u);
    EXPECT_EQ(finish({here.worker, there.worker}, ucp_ep_close_nbx(endpoint, &kNothing)), UCS_OK);
}

// It is gone in the middle of its traffic, with all its objects; its peer learns of it, and what
// the peer has with others goes on.
TEST_P(Disturbed, AProcessThatExitsWithoutClosingHurtsNobody) {
    Node here(GetParam());
    const ucp_ep_h own = here.connect(here.address());
    int address[2];
    ASSERT_EQ(pipe(address), 0);
    const std::string mine = here.address();
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        // Never destroyed: exit() runs what the library has registered, and no more.
        auto& node = *new Node(GetParam());
        const std::string bytes = node.address();
        if (write(address[1], bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
            _exit(2);
        const ucp_ep_h endpoint = node.connect(mine);
        const uint64_t word = 5;
        const ucs_status_t status =
            finish({node.worker}, ucp_tag_send_nbx(endpoint, &word, 8, 1, &kNothing));
        const auto& rest = *new std::vector<uint8_t>(4'000'000);
        ucp_tag_send_nbx(endpoint, rest.data(), rest.size(), 2, &kNothing);
        exit(status == UCS_OK ? 0 : 1);
    }
    std::string theirs(4096, 0);
    const ssize_t length = read(address[0], theirs.data(), theirs.size());
    ASSERT_GT(length, 0);
    theirs.resize(static_cast<size_t>(length));
    const ucp_ep_h endpoint = here.connect(theirs);
    uint64_t word = 0;
    EXPECT_EQ(
        finish({here.worker}, ucp_tag_recv_nbx(here.worker, &word, 8, 1, ~uint64_t{0}, &kNothing)),
        UCS_OK);
    EXPECT_EQ(word, 5u);
    int status = 0;
    ASSERT_TRUE(until({here.worker}, [&] { return waitpid(child, &status, WNOHANG) == child; }));
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    // Whoever goes on talking to it is told.
    EXPECT_TRUE(until({here.worker}, [&] {
        finish({here.worker}, ucp_tag_send_nbx(endpoint, &word, 8, 3, &kNothing));
        return here.errors == 1;
    }));
    expect_message(here, own, here, 100, 4);
    ucp_request_param_t force{};
    force.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    force.flags = UCP_EP_CLOSE_FLAG_FORCE;
    for (const ucp_ep_h each : {endpoint, own}) {
        EXPECT_EQ(finish({here.worker}, ucp_ep_close_nbx(each, &force)), UCS_OK);
    }
    close(address[0]);
    close(address[1]);
}

std::set<int> open_descriptors() {
    std::set<int> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
        found.insert(std::stoi(entry.path().filename()));
    return found;
}

// A program that another one is started in gets no socket, no queue and no memory of the library.
TEST_P(Disturbed, NoDescriptorOutlivesExec) {
    const std::set<int> before = open_descriptors();
    Node here(GetParam()), there(GetParam());
    const ucp_ep_h endpoint = here.connect(there.address());
    expect_message(here, endpoint, there, 4'000'000, 1);
    for (const int descriptor : open_descriptors()) {
        const int flags = fcntl(descriptor, F_GETFD);
        if (before.contains(descriptor) || flags < 0) continue;
        EXPECT_NE(flags & FD_CLOEXEC, 0)
            << std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor));
    }
    EXPECT_EQ(finish({here.worker, there.worker}, ucp_ep_close_nbx(endpoint, &kNothing)), UCS_OK);
}

// Nothing goes by the calendar: not how long a peer may take to answer, nor when somebody wakes up.
TEST_P(Disturbed, ACalendarThatIsSetHurtsNobody) {
    calendar_reads = calendar_timers = 0;
    is_calendar_set = true;
    {
        Node here(GetParam()), there(GetParam());
        const ucp_ep_h endpoint = here.connect(there.address());
        const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
        do {
            for (const size_t length : {size_t{8}, size_t{20'000}, size_t{4'000'000}})
                expect_message(here, endpoint, there, length, 1);
        } while (std::chrono::steady_clock::now() < end);
        // The receiver sleeps until something comes.
        int descriptor = -1;
        ASSERT_EQ(ucp_worker_get_efd(there.worker, &descriptor), UCS_OK);
        uint64_t word = 0;
        const ucs_status_ptr_t receiving =
            ucp_tag_recv_nbx(there.worker, &word, sizeof(word), 1, ~uint64_t{0}, &kNothing);
        std::thread sender([&] {
            const uint64_t sent = 7;
            EXPECT_EQ(finish({here.worker}, ucp_tag_send_nbx(endpoint, &sent, 8, 1, &kNothing)),
                      UCS_OK);
            EXPECT_EQ(finish({here.worker}, ucp_ep_flush_nbx(endpoint, &kNothing)), UCS_OK);
        });
        while (ucp_request_check_status(receiving) == UCS_INPROGRESS) {
            while (ucp_worker_progress(there.worker) != 0) {
            }
            if (ucp_request_check_status(receiving) != UCS_INPROGRESS) break;
            if (ucp_worker_arm(there.worker) != UCS_OK) continue;
            pollfd event{descriptor, POLLIN, 0};
            ASSERT_EQ(poll(&event, 1, 60'000), 1);
        }
        ucp_request_free(receiving);
        sender.join();
        EXPECT_EQ(word, 7u);
        EXPECT_EQ(finish({here.worker, there.worker}, ucp_ep_close_nbx(endpoint, &kNothing)),
                  UCS_OK);
        EXPECT_EQ(here.errors, 0);
        EXPECT_EQ(there.errors, 0);
    }
    is_calendar_set = false;
    EXPECT_EQ(calendar_timers, 0u);
    // Lines of the log say when, and a file of costs has an age.
    EXPECT_LE(calendar_reads, 10u);
}

// Nothing of the library lies in /dev/shm: one that is full, or may not be written, stops nobody.
TEST_P(Disturbed, NothingOfDevShmIsNeeded) {
    for (const bool is_full : {false, true}) {
        const pid_t child = fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            if (!ucs::test::mount_dev_shm(is_full ? 4 : 0)) _exit(77);
            if (is_full) {
                const int file = open("/dev/shm/all", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
                const std::vector<char> bytes(1 << 16);
                EXPECT_LT(write(file, bytes.data(), bytes.size()),
                          static_cast<ssize_t>(bytes.size()));
            }
            Node here(GetParam()), there(GetParam());
            const ucp_ep_h endpoint = here.connect(there.address());
            for (const size_t length : {size_t{8}, size_t{20'000}, size_t{4'000'000}})
                expect_message(here, endpoint, there, length, 1);
            EXPECT_EQ(finish({here.worker, there.worker}, ucp_ep_close_nbx(endpoint, &kNothing)),
                      UCS_OK);
            _exit(HasFailure() ? 1 : 0);
        }
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
            GTEST_SKIP() << "needs the right to mount";
        EXPECT_EQ(status, 0);
    }
}

// A peer that is gone is told by what a send returns.
class BrokenPipes : public ::testing::TestWithParam<bool> {};

TEST_P(BrokenPipes, RaiseNoSignal) {
    static std::atomic<unsigned> signals;
    signals = 0;
    struct sigaction action {
    }, before{};
    action.sa_handler = [](int) { ++signals; };
    ASSERT_EQ(sigaction(SIGPIPE, &action, &before), 0);
    if (GetParam()) {
        setenv("UCX_TCP_ENCRYPT", "y", 1);
        setenv("UCX_TCP_JOB_KEY", "our common word", 1);
    }
    broken_sends = 0;
    {
        Node here("tcp"), there("tcp");
        const ucp_ep_h endpoint = here.connect(there.address());
        expect_message(here, endpoint, there, 20'000, 1);
        are_connections_broken = true;
        const std::vector<uint8_t> bytes(20'000);
        const ucs_status_ptr_t sending =
            ucp_tag_send_nbx(endpoint, bytes.data(), bytes.size(), 2, &kNothing);
        EXPECT_TRUE(until({here.worker, there.worker}, [] { return broken_sends != 0; }));
        for (int round = 0; round < 100; ++round) {
            ucp_worker_progress(here.worker);
            ucp_worker_progress(there.worker);
        }
        are_connections_broken = false;
        finish({here.worker, there.worker}, sending);
        ucp_request_param_t force{};
        force.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        force.flags = UCP_EP_CLOSE_FLAG_FORCE;
        EXPECT_EQ(finish({here.worker, there.worker}, ucp_ep_close_nbx(endpoint, &force)), UCS_OK);
    }
    unsetenv("UCX_TCP_ENCRYPT");
    unsetenv("UCX_TCP_JOB_KEY");
    EXPECT_EQ(signals, 0u);
    EXPECT_EQ(sigaction(SIGPIPE, &before, nullptr), 0);
}

INSTANTIATE_TEST_SUITE_P(Encrypted, BrokenPipes, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "yes" : "no"; });

INSTANTIATE_TEST_SUITE_P(Over, Disturbed, ::testing::Values("tcp", "sm"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace ucp::test
