// SPDX-License-Identifier: BSD-3-Clause

// Memory runs out: of all that a step allocates, the k-th allocation fails, for each k until the
// step gets by without. In start-up, connecting and transfers the same is done to system calls. No
// exception may leave the C interface, and nothing may hang: what is lost ends its operation or its
// endpoint. A system call that is interrupted loses nothing.

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/locked_memory.h"
#include "common/short_packets.h"
#include "system/soft_wire.h"
#include "ucs/log/log.h"
#include "ucs/net/key_pair.h"
#include "uct/self/self_interface.h"
#include "uct/sm/component.h"
#include "uct/tcp/component.h"
#include "unit/ucp/cluster.h"
#include "unit/ucs/log/log_capture.h"

// --- allocations of this thread that are to fail ---

namespace {

enum class Resource { kMemory, kSystem, kNoInterruption };

// Not within calls of the test's own.
struct Injection {
    bool is_armed = false;
    Resource resource = Resource::kMemory;
    uint64_t countdown = 0;  // allocations, or system calls, up to the one that fails
    uint64_t failures = 0;   // how many fail from there on
    uint64_t failed = 0;
};
thread_local constinit Injection injection;

// What no call of progress is to do with peers that it knows: open files, wait for threads.
struct Watch {
    bool is_in_progress = false;
    unsigned openings = 0;
    unsigned waits = 0;
};
thread_local constinit Watch watch;

bool fails(Resource resource = Resource::kMemory, int error = ENOMEM) {
    if (!injection.is_armed || injection.resource != resource || injection.failures == 0)
        return false;
    if (injection.countdown > 1) {
        --injection.countdown;
        return false;
    }
    --injection.failures;
    ++injection.failed;
    errno = error;
    return true;
}

}  // namespace

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
constexpr bool kCanInject = false;
#else
constexpr bool kCanInject = true;

namespace {

template <typename Function>
Function* next(const char* name) {
    return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}
bool call_fails(int error) {
    return fails(Resource::kSystem, error);
}
// By a signal, before anything was done.
bool is_interrupted() {
    return fails(Resource::kNoInterruption, EINTR);
}
void note_opening() {
    watch.openings += watch.is_in_progress;
}
void note_wait() {
    watch.waits += watch.is_in_progress;
}
bool is_nothing(const timespec* timeout) {
    return timeout != nullptr && timeout->tv_sec == 0 && timeout->tv_nsec == 0;
}

}  // namespace

// Shared libraries, as that of C++, are to find these as well.
#pragma GCC visibility push(default)
extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier)
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
// NOLINTEND(bugprone-reserved-identifier)

void* malloc(size_t size) {
    return fails() ? nullptr : __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
    return fails() ? nullptr : __libc_calloc(count, size);
}
void* realloc(void* memory, size_t size) {
    return fails() ? nullptr : __libc_realloc(memory, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
    return fails() ? nullptr : __libc_memalign(alignment, size);
}
void* memalign(size_t alignment, size_t size) {
    return fails() ? nullptr : __libc_memalign(alignment, size);
}
int posix_memalign(void** memory, size_t alignment, size_t size) {
    void* const made = fails() ? nullptr : __libc_memalign(alignment, size);
    if (made == nullptr) return ENOMEM;
    *memory = made;
    return 0;
}

// System calls that take something of the kernel's.

int socket(int domain, int type, int protocol) noexcept {
    static auto* const real = next<int(int, int, int)>("socket");
    return call_fails(EMFILE) ? -1 : real(domain, type, protocol);
}
int bind(int socket, const sockaddr* address, socklen_t length) noexcept {
    static auto* const real = next<int(int, const sockaddr*, socklen_t)>("bind");
    return call_fails(EADDRINUSE) ? -1 : real(socket, address, length);
}
int listen(int socket, int backlog) noexcept {
    static auto* const real = next<int(int, int)>("listen");
    return call_fails(EADDRINUSE) ? -1 : real(socket, backlog);
}
int connect(int socket, const sockaddr* address, socklen_t length) {
    static auto* const real = next<int(int, const sockaddr*, socklen_t)>("connect");
    if (call_fails(ENOBUFS)) return -1;
    const int result = real(socket, address, length);
    // It goes on, as POSIX says.
    return is_interrupted() ? -1 : result;
}
int accept4(int socket, sockaddr* address, socklen_t* length, int flags) {
    static auto* const real = next<int(int, sockaddr*, socklen_t*, int)>("accept4");
    return call_fails(EMFILE) || is_interrupted() ? -1 : real(socket, address, length, flags);
}
int setsockopt(int socket, int level, int name, const void* value, socklen_t length) noexcept {
    static auto* const real = next<int(int, int, int, const void*, socklen_t)>("setsockopt");
    return call_fails(ENOMEM) ? -1 : real(socket, level, name, value, length);
}
ssize_t send(int socket, const void* bytes, size_t length, int flags) {
    static auto* const real = next<ssize_t(int, const void*, size_t, int)>("send");
    return call_fails(ENOBUFS) || is_interrupted() ? -1 : real(socket, bytes, length, flags);
}
ssize_t sendmsg(int socket, const msghdr* message, int flags) {
    static auto* const real = next<ssize_t(int, const msghdr*, int)>("sendmsg");
    return call_fails(ENOBUFS) || is_interrupted() ? -1 : real(socket, message, flags);
}
ssize_t recv(int socket, void* bytes, size_t room, int flags) {
    static auto* const real = next<ssize_t(int, void*, size_t, int)>("recv");
    return call_fails(ENOMEM) || is_interrupted() ? -1 : real(socket, bytes, room, flags);
}
ssize_t recvmsg(int socket, msghdr* message, int flags) {
    static auto* const real = next<ssize_t(int, msghdr*, int)>("recvmsg");
    return call_fails(ENOMEM) || is_interrupted() ? -1 : real(socket, message, flags);
}
ssize_t process_vm_readv(pid_t process, const iovec* here, unsigned long here_count,
                         const iovec* there, unsigned long there_count,
                         unsigned long flags) noexcept {
    static auto* const real = next<decltype(process_vm_readv)>("process_vm_readv");
    return call_fails(ENOMEM) || is_interrupted()
               ? -1
               : real(process, here, here_count, there, there_count, flags);
}
ssize_t process_vm_writev(pid_t process, const iovec* here, unsigned long here_count,
                          const iovec* there, unsigned long there_count,
                          unsigned long flags) noexcept {
    static auto* const real = next<decltype(process_vm_writev)>("process_vm_writev");
    return call_fails(ENOMEM) || is_interrupted()
               ? -1
               : real(process, here, here_count, there, there_count, flags);
}
int epoll_create1(int flags) noexcept {
    static auto* const real = next<int(int)>("epoll_create1");
    return call_fails(EMFILE) ? -1 : real(flags);
}
int epoll_ctl(int epoll, int operation, int descriptor, epoll_event* event) noexcept {
    static auto* const real = next<int(int, int, int, epoll_event*)>("epoll_ctl");
    // To stop watching takes nothing.
    const bool takes = operation != EPOLL_CTL_DEL;
    return takes && call_fails(ENOSPC) ? -1 : real(epoll, operation, descriptor, event);
}
int pipe2(int* ends, int flags) noexcept {
    static auto* const real = next<int(int*, int)>("pipe2");
    return call_fails(EMFILE) ? -1 : real(ends, flags);
}
int eventfd(unsigned initial, int flags) noexcept {
    static auto* const real = next<int(unsigned, int)>("eventfd");
    return call_fails(EMFILE) ? -1 : real(initial, flags);
}
int timerfd_create(int clock, int flags) noexcept {
    static auto* const real = next<int(int, int)>("timerfd_create");
    return call_fails(EMFILE) ? -1 : real(clock, flags);
}
int memfd_create(const char* name, unsigned flags) noexcept {
    static auto* const real = next<int(const char*, unsigned)>("memfd_create");
    return call_fails(EMFILE) ? -1 : real(name, flags);
}
int ftruncate(int descriptor, off_t length) noexcept {
    static auto* const real = next<int(int, off_t)>("ftruncate");
    return call_fails(ENOSPC) ? -1 : real(descriptor, length);
}
int posix_fallocate(int descriptor, off_t offset, off_t length) {
    static auto* const real = next<int(int, off_t, off_t)>("posix_fallocate");
    return call_fails(ENOSPC) ? ENOSPC : real(descriptor, offset, length);
}
int open(const char* path, int flags, ...) {
    static auto* const real = next<int(const char*, int, ...)>("open");
    note_opening();
    va_list rest;
    va_start(rest, flags);
    const auto mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : mode_t{0};
    va_end(rest);
    return call_fails(EMFILE) ? -1 : real(path, flags, mode);
}
// As streams of files do.
FILE* fopen(const char* path, const char* mode) {
    static auto* const real = next<FILE*(const char*, const char*)>("fopen");
    note_opening();
    return real(path, mode);
}
FILE* fopen64(const char* path, const char* mode) {
    static auto* const real = next<FILE*(const char*, const char*)>("fopen64");
    note_opening();
    return real(path, mode);
}
int pthread_join(pthread_t thread, void** result) {
    static auto* const real = next<int(pthread_t, void**)>("pthread_join");
    note_wait();
    return real(thread, result);
}
int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
    static auto* const real = next<int(pthread_cond_t*, pthread_mutex_t*)>("pthread_cond_wait");
    note_wait();
    return real(condition, mutex);
}
// What has a time-out waits as well, unless that is nothing.
int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                           const timespec* until) {
    static auto* const real =
        next<int(pthread_cond_t*, pthread_mutex_t*, const timespec*)>("pthread_cond_timedwait");
    note_wait();
    return real(condition, mutex, until);
}
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* until) {
    static auto* const real =
        next<int(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*)>(
            "pthread_cond_clockwait");
    note_wait();
    return real(condition, mutex, clock, until);
}
int sem_wait(sem_t* semaphore) {
    static auto* const real = next<int(sem_t*)>("sem_wait");
    note_wait();
    return real(semaphore);
}
int sem_timedwait(sem_t* semaphore, const timespec* until) {
    static auto* const real = next<int(sem_t*, const timespec*)>("sem_timedwait");
    note_wait();
    return real(semaphore, until);
}
int nanosleep(const timespec* length, timespec* rest) {
    static auto* const real = next<int(const timespec*, timespec*)>("nanosleep");
    note_wait();
    return real(length, rest);
}
int clock_nanosleep(clockid_t clock, int flags, const timespec* when, timespec* rest) {
    static auto* const real =
        next<int(clockid_t, int, const timespec*, timespec*)>("clock_nanosleep");
    note_wait();
    return real(clock, flags, when, rest);
}
int usleep(useconds_t length) {
    static auto* const real = next<int(useconds_t)>("usleep");
    note_wait();
    return real(length);
}
int poll(pollfd* entries, nfds_t count, int timeout) {
    static auto* const real = next<int(pollfd*, nfds_t, int)>("poll");
    if (timeout != 0) note_wait();
    return timeout != 0 && is_interrupted() ? -1 : real(entries, count, timeout);
}
int ppoll(pollfd* entries, nfds_t count, const timespec* timeout, const sigset_t* signals) {
    static auto* const real = next<int(pollfd*, nfds_t, const timespec*, const sigset_t*)>("ppoll");
    if (!is_nothing(timeout)) note_wait();
    return real(entries, count, timeout, signals);
}
int epoll_wait(int epoll, epoll_event* events, int room, int timeout) {
    static auto* const real = next<int(int, epoll_event*, int, int)>("epoll_wait");
    if (timeout != 0) note_wait();
    return real(epoll, events, room, timeout);
}
int epoll_pwait(int epoll, epoll_event* events, int room, int timeout, const sigset_t* signals) {
    static auto* const real =
        next<int(int, epoll_event*, int, int, const sigset_t*)>("epoll_pwait");
    if (timeout != 0) note_wait();
    return real(epoll, events, room, timeout, signals);
}
int select(int count, fd_set* read, fd_set* write, fd_set* others, timeval* timeout) {
    static auto* const real = next<int(int, fd_set*, fd_set*, fd_set*, timeval*)>("select");
    if (timeout == nullptr || timeout->tv_sec != 0 || timeout->tv_usec != 0) note_wait();
    return real(count, read, write, others, timeout);
}
// Futexes, as of atomics, with and without a time-out.
long syscall(long number, ...) noexcept {
    static auto* const real = next<long(long, ...)>("syscall");
    long argument[6];
    va_list rest;
    va_start(rest, number);
    for (long& next_one : argument) next_one = va_arg(rest, long);
    va_end(rest);
    const long operation = argument[1] & FUTEX_CMD_MASK;
    if (number == SYS_futex && (operation == FUTEX_WAIT || operation == FUTEX_WAIT_BITSET))
        note_wait();
    return real(number, argument[0], argument[1], argument[2], argument[3], argument[4],
                argument[5]);
}
void* mmap(void* address, size_t length, int protection, int flags, int descriptor,
           off_t offset) noexcept {
    static auto* const real = next<void*(void*, size_t, int, int, int, off_t)>("mmap");
    return call_fails(ENOMEM) ? MAP_FAILED
                              : real(address, length, protection, flags, descriptor, offset);
}
}
#pragma GCC visibility pop
#endif

namespace ucp::test {
namespace {

// While it lives, allocations of this thread are counted, and may fail.
class Armed {
  public:
    Armed() { injection.is_armed = true; }
    ~Armed() { injection.is_armed = false; }
    Armed(const Armed&) = delete;
    Armed& operator=(const Armed&) = delete;
};
class Disarmed {
  public:
    Disarmed() : was_armed_(injection.is_armed) { injection.is_armed = false; }
    ~Disarmed() { injection.is_armed = was_armed_; }
    Disarmed(const Disarmed&) = delete;
    Disarmed& operator=(const Disarmed&) = delete;

  private:
    const bool was_armed_;
};

constexpr size_t kLong = 20000;       // goes in fragments
constexpr size_t kLongest = 300'000;  // is announced

// Two workers, or one that talks to itself, over one component.
class Pair {
  public:
    // @param cuts_puts  long ones go in slices that are answered, otherwise as one operation
    explicit Pair(const std::string& transport, bool cuts_puts = true)
        : is_self_(transport == "self"), is_ud_(transport == "ud"), cuts_puts_(cuts_puts) {
        if (transport == "dc" || transport == "ud") {
            softhca::Model model = softhca::Model::instant();
            wire_ =
                std::make_unique<SoftWire>(2, model, softhca::FaultPlan{}, SoftWire::Variables{});
            component_ = &wire_->component();
        } else {
            component_ = transport.starts_with("tcp") ? &uct::tcp::component()
                         : transport == "sm"          ? &uct::sm::component()
                                                      : &uct::self::component();
        }
    }
    ~Pair() {
        const Disarmed disarmed;
        close();
        for (auto& side : sides_) {
            if (side.worker != nullptr) ucp_worker_destroy(side.worker);
            side.context.reset();
        }
    }

    ucs_status_t open_context(size_t index) {
        if (wire_ != nullptr) wire_->enter(index);
        Config config;
        {
            const Disarmed disarmed;
            config = quiet_config();
            config.rndv_threshold.emplace().bytes = 65536;
            config.keepalive_interval = ucs::kForever;  // what hangs is not to be woken by it
            if (!cuts_puts_) config.bulk_threshold.emplace().bytes = SIZE_MAX;
            if (is_ud_) config.transports = {false, {"ud_verbs", "rc_verbs"}};
        }
        ContextSeams seams;
        if (wire_ != nullptr) {
            seams.clock = &clock_;
            seams.virtual_time = true;
            seams.seed = index;
        }
        seams.components = std::span<uct::Component* const>(&component_, 1);
        ucp_params_t params{};
        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features = kAllFeatures | UCP_FEATURE_STREAM;
        try {
            return Context::create(params, config, seams, &sides_[index].context);
        } catch (const std::bad_alloc&) {
            return UCS_ERR_NO_MEMORY;  // as ucp_init()
        }
    }
    ucs_status_t open_worker(size_t index) {
        if (wire_ != nullptr) wire_->enter(index);
        const ucp_worker_params_t params{};
        return ucp_worker_create(wrap(sides_[index].context.get()), &params, &sides_[index].worker);
    }
    ucs_status_t connect(size_t from) {
        return connect(sides_[from].worker, peer(from).worker, &errors_, &sides_[from].endpoint);
    }
    static ucs_status_t connect(ucp_worker_h from, ucp_worker_h to, int* errors,
                                ucp_ep_h* endpoint) {
        ucp_address_t* address = nullptr;
        size_t length = 0;
        ucs_status_t status = ucp_worker_get_address(to, &address, &length);
        if (status != UCS_OK) return status;
        ucp_ep_params_t params{};
        params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                            UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
        params.address = address;
        params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
        params.err_handler = {[](void* arg, ucp_ep_h, ucs_status_t) { ++*static_cast<int*>(arg); },
                              errors};
        status = ucp_ep_create(from, &params, endpoint);
        ucp_worker_release_address(from, address);
        return status;
    }
    void open() {
        for (size_t index = 0; index < size(); ++index) {
            ASSERT_EQ(open_context(index), UCS_OK);
            ASSERT_EQ(open_worker(index), UCS_OK);
        }
    }
    void open_and_connect() {
        open();
        for (size_t index = 0; index < size(); ++index) ASSERT_EQ(connect(index), UCS_OK);
        for (size_t from = 0; from < size(); ++from)
            ASSERT_TRUE(brings_word(sides_[from].endpoint, peer(from).worker));
        if (!is_self_) connect_bystander();
    }
    void open_with_bystander() {
        open();
        connect_bystander();
    }
    void connect_bystander() {
        const ucp_worker_h receiver = worker(target());
        ASSERT_EQ(connect(receiver, receiver, &bystander_errors_, &bystander_), UCS_OK);
        ASSERT_TRUE(brings_word(bystander_, receiver));
    }
    bool brings_word(ucp_ep_h endpoint, ucp_worker_h to) {
        uint64_t sent = 7, received = 0;
        void* receive =
            ucp_tag_recv_nbx(to, &received, sizeof(received), 99, UINT64_MAX, &kNothing);
        return finish(ucp_tag_send_nbx(endpoint, &sent, sizeof(sent), 99, &kNothing)) == UCS_OK &&
               finish(receive) == UCS_OK && received == sent;
    }
    // Another endpoint of the receiver, to itself, goes on whatever becomes of the others.
    void check_bystander() {
        if (bystander_ == nullptr || worker(target()) == nullptr) return;
        EXPECT_EQ(bystander_errors_, 0) << "an endpoint that had no part in it has failed";
        EXPECT_TRUE(brings_word(bystander_, worker(target())));
    }
    // Endpoints by force; so that what they hold ends.
    void close() {
        ucp_request_param_t force{};
        force.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        force.flags = UCP_EP_CLOSE_FLAG_FORCE;
        for (ucp_ep_h* endpoint : {&sides_[0].endpoint, &sides_[1].endpoint, &bystander_}) {
            if (*endpoint == nullptr) continue;
            void* const closing = ucp_ep_close_nbx(std::exchange(*endpoint, nullptr), &force);
            if (UCS_PTR_IS_PTR(closing)) ucp_request_free(closing);
        }
        for (int round = 0; round < 10; ++round) step();
    }

    // An endpoint in peace, or by force where that finds no memory.
    void leave(size_t index) {
        const ucp_ep_h endpoint = sides_[index].endpoint;
        void* const closing = ucp_ep_close_nbx(endpoint, &kNothing);
        if (UCS_PTR_IS_ERR(closing)) return;
        sides_[index].endpoint = nullptr;
        finish(closing);
    }
    void destroy(size_t index) { ucp_worker_destroy(std::exchange(sides_[index].worker, nullptr)); }

    size_t size() const { return is_self_ ? 1 : 2; }
    ucp_worker_h worker(size_t index) const { return sides_[index].worker; }
    ucp_context_h context(size_t index) const { return wrap(sides_[index].context.get()); }
    ucp_ep_h endpoint(size_t index) const { return sides_[index].endpoint; }
    size_t target() const { return is_self_ ? 0 : 1; }
    int errors() const { return errors_; }

    void step() {
        if (wire_ != nullptr) {
            const Disarmed disarmed;  // the adapter is the other end of the wire
            clock_.advance(std::chrono::microseconds(1));
            wire_->advance_to(clock_.now());
        }
        for (size_t index = 0; index < size(); ++index) {
            watch.is_in_progress = true;
            if (sides_[index].worker != nullptr) ucp_worker_progress(sides_[index].worker);
            watch.is_in_progress = false;
            if (wire_ != nullptr) wire_->leave(index);
        }
    }
    template <typename Condition>
    bool until(Condition condition) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        for (unsigned count = 0; !condition(); ++count) {
            if (wire_ != nullptr ? count > 400000 : std::chrono::steady_clock::now() > end)
                return false;
            step();
        }
        return true;
    }
    // To the end of an operation, or until an endpoint has failed and it did not end soon.
    ucs_status_t finish(ucs_status_ptr_t operation, bool is_receive = false,
                        ucs_status_ptr_t sending = nullptr) {
        return finish_at(target(), operation, is_receive, sending);
    }
    ucs_status_t finish_at(size_t index, ucs_status_ptr_t operation, bool is_receive = false,
                           ucs_status_ptr_t sending = nullptr) {
        if (!UCS_PTR_IS_PTR(operation)) return UCS_PTR_RAW_STATUS(operation);
        const auto is_over = [&] { return ucp_request_check_status(operation) != UCS_INPROGRESS; };
        const auto is_refused = [&] {
            if (!UCS_PTR_IS_PTR(sending)) return false;
            const ucs_status_t status = ucp_request_check_status(sending);
            return status != UCS_OK && status != UCS_INPROGRESS;
        };
        until([&] {
            return is_over() || (is_receive && (errors_ != 0 || has_failed_ || is_refused()));
        });
        if (!is_over() && is_receive) {
            EXPECT_TRUE(errors_ != 0 || has_failed_ || is_refused())
                << "a message is lost silently";
            for (int count = 0; count < 200 && !is_over(); ++count) step();
            // One that has found its message ends with that; one that waits for it, here.
            if (!is_over()) ucp_request_cancel(sides_[index].worker, operation);
            until(is_over);
        }
        EXPECT_TRUE(is_over()) << (is_receive ? "a receive hangs" : "an operation hangs");
        const ucs_status_t status =
            is_over() ? ucp_request_check_status(operation) : UCS_INPROGRESS;
        ucp_request_free(operation);
        if (status != UCS_OK) has_failed_ = true;
        return status;
    }
    void note(ucs_status_t status) {
        if (status != UCS_OK) has_failed_ = true;
    }
    bool has_failed() const { return has_failed_ || errors_ != 0; }

  private:
    struct Side {
        std::unique_ptr<Context> context;
        ucp_worker_h worker = nullptr;
        ucp_ep_h endpoint = nullptr;
    };
    Side& peer(size_t index) { return sides_[is_self_ ? 0 : 1 - index]; }

    const bool is_self_, is_ud_, cuts_puts_;
    ucs::VirtualClock clock_;
    std::unique_ptr<SoftWire> wire_;
    uct::Component* component_ = nullptr;
    ucp_ep_h bystander_ = nullptr;
    int bystander_errors_ = 0;
    int errors_ = 0;
    bool has_failed_ = false;
    Side sides_[2];
};

class NoMemory : public ::testing::TestWithParam<const char*> {
  protected:
    // OpenSSL 3.0 does without what it did not get when it started for the life of the process, or
    // crashes: contexts start it, before anything here fails.
    static void SetUpTestSuite() { ASSERT_TRUE(ucs::net::can_authenticate()); }
    void SetUp() override {
        if (!kCanInject) GTEST_SKIP() << "a sanitizer has the allocator";
    }
    // Runs `step` on a new pair, prepared by `prepare`, with the k-th allocation failing and
    // `burst` in all, for each k.
    void each(const std::function<void(Pair&)>& prepare, const std::function<void(Pair&)>& step,
              uint64_t burst = 1, Resource resource = Resource::kMemory) {
        const ucs::LogCapture quiet(ucs::LogLevel::kError);
        uint64_t k = 1;
        for (bool was_hit = true; was_hit; ++k) {
            SCOPED_TRACE(testing::Message()
                         << (resource == Resource::kMemory ? "allocation " : "system call ") << k);
            injection = {false, resource, k, burst, 0};
            Pair pair(GetParam());
            prepare(pair);
            if (HasFatalFailure()) return;
            {
                const Armed armed;
                step(pair);
            }
            was_hit = injection.failed != 0;
            injection.failures = 0;
            pair.check_bystander();
            if (HasFailure()) return;
        }
        positions_ += static_cast<int>(k - 2);
        RecordProperty("positions", positions_);
    }

    // Each system call that a signal may interrupt is, in turn.
    void interrupt_all();

    // Is there a dedicated transport beside the scalable one?
    static bool has_lanes() {
        const std::string transport = GetParam();
        return transport == "sm" || transport == "dc";
    }

    int positions_ = 0;  // at which something has failed, in all steps of the test
};

TEST_P(NoMemory, Context) {
    each([](Pair&) {}, [](Pair& pair) { pair.open_context(0); });
}

TEST_P(NoMemory, Worker) {
    each([](Pair& pair) { ASSERT_EQ(pair.open_context(0), UCS_OK); },
         [](Pair& pair) { pair.open_worker(0); });
}

TEST_P(NoMemory, DestroyWorker) {
    each([](Pair& pair) { pair.open_and_connect(); },
         [](Pair& pair) {
             pair.close();
             for (size_t index = 0; index < pair.size(); ++index) pair.destroy(index);
         });
}

TEST_P(NoMemory, SystemCallsOfStart) {
    each([](Pair&) {},
         [](Pair& pair) {
             if (pair.open_context(0) == UCS_OK) pair.open_worker(0);
         },
         1, Resource::kSystem);
}

void exchange_words(Pair& pair) {
    for (const bool is_expected : {true, false}) {
        uint64_t sent = 7, received = 0;
        void* receive = nullptr;
        const auto post = [&] {
            receive = ucp_tag_recv_nbx(pair.worker(pair.target()), &received, sizeof(received), 5,
                                       UINT64_MAX, &kNothing);
        };
        if (is_expected) post();
        const ucs_status_t status =
            pair.finish(ucp_tag_send_nbx(pair.endpoint(0), &sent, sizeof(sent), 5, &kNothing));
        pair.note(status);
        for (int count = 0; count < 100; ++count) pair.step();
        if (!is_expected) post();
        pair.note(pair.finish(receive, true));
        if (pair.has_failed()) return;
        EXPECT_EQ(received, sent);
    }
}

void connect_and_exchange_words(Pair& pair) {
    for (size_t index = 0; index < pair.size(); ++index) {
        if (pair.connect(index) != UCS_OK) return;
    }
    exchange_words(pair);
}

TEST_P(NoMemory, Connect) {
    each([](Pair& pair) { pair.open(); }, connect_and_exchange_words);
}

TEST_P(NoMemory, SystemCallsOfConnecting) {
    each([](Pair& pair) { pair.open(); }, connect_and_exchange_words, 1, Resource::kSystem);
}

// A message by tag, received before or after it has come.
void send_tagged(Pair& pair, size_t length, bool is_expected, bool is_sync) {
    std::vector<uint8_t> sent, received;
    {
        const Disarmed disarmed;
        sent = pattern(length, length);
        received.resize(length);
    }
    void* receive = nullptr;
    const auto post = [&] {
        receive = ucp_tag_recv_nbx(pair.worker(pair.target()), received.data(), length, 5,
                                   UINT64_MAX, &kNothing);
    };
    if (is_expected) post();
    void* const sending =
        is_sync ? ucp_tag_send_sync_nbx(pair.endpoint(0), sent.data(), length, 5, &kNothing)
                : ucp_tag_send_nbx(pair.endpoint(0), sent.data(), length, 5, &kNothing);
    if (UCS_PTR_IS_ERR(sending)) pair.note(UCS_PTR_STATUS(sending));
    for (int count = 0; count < 200; ++count) pair.step();
    if (!is_expected) post();
    const ucs_status_t taken = pair.finish(receive, true, sending);
    pair.note(pair.finish(sending));
    {
        const Disarmed disarmed;
        if (taken == UCS_OK) {
            EXPECT_EQ(received, sent);
        }
    }
}

TEST_P(NoMemory, Eager) {
    for (const size_t length : {size_t{8}, size_t{1000}, kLong}) {
        for (const bool is_expected : {true, false}) {
            SCOPED_TRACE(testing::Message() << length << " bytes, expected: " << is_expected);
            each([](Pair& pair) { pair.open_and_connect(); },
                 [&](Pair& pair) { send_tagged(pair, length, is_expected, false); });
            if (HasFailure()) return;
        }
    }
}

TEST_P(NoMemory, Synchronous) {
    for (const bool is_expected : {true, false}) {
        each([](Pair& pair) { pair.open_and_connect(); },
             [&](Pair& pair) { send_tagged(pair, 100, is_expected, true); });
    }
}

TEST_P(NoMemory, Rendezvous) {
    for (const bool is_expected : {true, false}) {
        each([](Pair& pair) { pair.open_and_connect(); },
             [&](Pair& pair) { send_tagged(pair, kLongest, is_expected, false); });
    }
}

TEST_P(NoMemory, ForAWhile) {
    each([](Pair& pair) { pair.open_and_connect(); },
         [&](Pair& pair) { send_tagged(pair, kLong, false, false); }, 20);
    each([](Pair& pair) { pair.open_and_connect(); },
         [&](Pair& pair) { send_tagged(pair, kLongest, true, false); }, 20);
}

// What the handler of an active message saw.
struct Handled {
    ucp_worker_h worker = nullptr;
    std::vector<uint8_t> room;
    size_t length = 0;
    bool is_here = false;
    void* fetching = nullptr;
};

ucs_status_t handle(void* arg, const void*, size_t, void* data, size_t length,
                    const ucp_am_recv_param_t* param) {
    auto& handled = *static_cast<Handled*>(arg);
    handled.is_here = true;
    handled.length = length;
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
        handled.fetching =
            ucp_am_recv_data_nbx(handled.worker, data, handled.room.data(), length, &kNothing);
    } else {
        std::memcpy(handled.room.data(), data, length);
    }
    return UCS_OK;
}

void send_active(Pair& pair, size_t length, bool is_early) {
    Handled handled;
    std::vector<uint8_t> sent;
    {
        const Disarmed disarmed;
        handled.worker = pair.worker(pair.target());
        handled.room.resize(length);
        sent = pattern(length, length);
    }
    ucs_status_t status = UCS_OK;
    const auto listen = [&] {
        ucp_am_handler_param_t param{};
        param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                           UCP_AM_HANDLER_PARAM_FIELD_ARG;
        param.id = 300;
        param.cb = handle;
        param.arg = &handled;
        status = ucp_worker_set_am_recv_handler(handled.worker, &param);
    };
    if (!is_early) listen();
    if (status != UCS_OK) return;
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = UCP_AM_SEND_FLAG_REPLY | UCP_AM_SEND_FLAG_COPY_HEADER;
    void* const sending =
        ucp_am_send_nbx(pair.endpoint(0), 300, "abc", 3, sent.data(), length, &params);
    if (UCS_PTR_IS_ERR(sending)) pair.note(UCS_PTR_STATUS(sending));
    for (int count = 0; count < 200; ++count) pair.step();
    if (is_early) {
        for (int attempt = 0; attempt < 2 && !handled.is_here; ++attempt) {
            listen();
            if (status == UCS_OK) break;
        }
    }
    const auto is_refused = [&] {
        const ucs_status_t status = ucp_request_check_status(sending);
        return status != UCS_OK && status != UCS_INPROGRESS;
    };
    const bool is_told = pair.until([&] {
        return handled.is_here || pair.has_failed() || (UCS_PTR_IS_PTR(sending) && is_refused());
    });
    {
        const Disarmed disarmed;
        EXPECT_TRUE(is_told) << "a message is lost, and nobody is told";
    }
    const ucs_status_t fetched =
        handled.fetching == nullptr ? UCS_OK : pair.finish(handled.fetching, true);
    pair.note(pair.finish(sending));
    ucp_am_handler_param_t none{};
    none.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB;
    none.id = 300;
    EXPECT_EQ(ucp_worker_set_am_recv_handler(handled.worker, &none), UCS_OK);
    {
        const Disarmed disarmed;
        if (handled.is_here && fetched == UCS_OK) {
            EXPECT_EQ(handled.room, sent);
        }
    }
}

TEST_P(NoMemory, ActiveMessages) {
    for (const size_t length : {size_t{8}, kLong, kLongest}) {
        for (const bool is_early : {false, true}) {
            SCOPED_TRACE(testing::Message() << length << " bytes, early: " << is_early);
            each([](Pair& pair) { pair.open_and_connect(); },
                 [&](Pair& pair) { send_active(pair, length, is_early); });
            if (HasFailure()) return;
        }
    }
}

// So many bytes with a batch of none: told with them, or not and somebody knows.
void notify(Pair& pair, size_t length, bool is_early) {
    struct Told {
        std::vector<uint8_t> payload;
        bool is_told = false;
    } told;
    std::vector<uint8_t> sent;
    {
        const Disarmed disarmed;
        told.payload.resize(length);
        sent = pattern(length, length);
    }
    const auto listen = [&] {
        const auto tell = [](void* arg, const ucpx_notification_t* notification) {
            auto& told = *static_cast<Told*>(arg);
            ASSERT_EQ(notification->payload_length, told.payload.size());
            std::memcpy(told.payload.data(), notification->payload, told.payload.size());
            told.is_told = true;
        };
        return ucpx_worker_set_notification_handler(pair.worker(pair.target()), tell, &told);
    };
    ucs_status_t status = UCS_OK;
    if (!is_early) status = listen();
    ucpx_batch_t batch{};
    batch.field_mask = UCPX_BATCH_FIELD_PAYLOAD;
    batch.entry_size = sizeof(ucpx_piece_t);
    batch.payload = sent.data();
    batch.payload_length = length;
    void* const sending = ucpx_put_batch_nbx(pair.endpoint(0), &batch, &kNothing);
    if (UCS_PTR_IS_ERR(sending)) pair.note(UCS_PTR_STATUS(sending));
    for (int count = 0; count < 200; ++count) pair.step();
    if (is_early) status = listen();
    EXPECT_EQ(status, UCS_OK);
    const bool is_told = pair.until([&] { return told.is_told || pair.has_failed(); });
    pair.note(pair.finish(sending));
    EXPECT_EQ(ucpx_worker_set_notification_handler(pair.worker(pair.target()), nullptr, nullptr),
              UCS_OK);
    const Disarmed disarmed;
    EXPECT_TRUE(is_told) << "a notification is lost, and nobody is told";
    if (told.is_told) {
        EXPECT_EQ(told.payload, sent);
    }
}

TEST_P(NoMemory, Notifications) {
    for (const size_t length : {size_t{100}, kLong}) {
        for (const bool is_early : {false, true}) {
            SCOPED_TRACE(testing::Message() << length << " bytes, early: " << is_early);
            each([](Pair& pair) { pair.open_and_connect(); },
                 [&](Pair& pair) { notify(pair, length, is_early); });
            if (HasFailure()) return;
        }
    }
}

TEST_P(NoMemory, Streams) {
    each([](Pair& pair) { pair.open_and_connect(); },
         [](Pair& pair) {
             std::vector<uint8_t> sent, received;
             {
                 const Disarmed disarmed;
                 sent = pattern(kLong, 3);
                 received.resize(kLong);
             }
             void* const sending =
                 ucp_stream_send_nbx(pair.endpoint(0), sent.data(), kLong, &kNothing);
             if (UCS_PTR_IS_ERR(sending)) pair.note(UCS_PTR_STATUS(sending));
             for (int count = 0; count < 100; ++count) pair.step();
             ucp_request_param_t all{};
             all.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
             all.flags = UCP_STREAM_RECV_FLAG_WAITALL;
             size_t length = 0;
             const ucs_status_t taken =
                 pair.finish(ucp_stream_recv_nbx(pair.endpoint(pair.target()), received.data(),
                                                 kLong, &length, &all),
                             true);
             pair.note(pair.finish(sending));
             const Disarmed disarmed;
             if (taken == UCS_OK) {
                 EXPECT_EQ(received, sent);
             }
         });
}

void access_remote_memory(Pair& pair) {
    std::vector<uint8_t> here, there, back;
    {
        const Disarmed disarmed;
        here = pattern(kLongest, 4);
        there.resize(kLongest);
        back.resize(kLongest);
    }
    ucp_mem_map_params_t map{};
    map.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    map.address = there.data();
    map.length = there.size();
    ucp_mem_h memory = nullptr;
    if (ucp_mem_map(pair.context(pair.target()), &map, &memory) != UCS_OK) return;
    void* packed = nullptr;
    size_t size = 0;
    ucp_rkey_h key = nullptr;
    ucs_status_t status = ucp_rkey_pack(pair.context(pair.target()), memory, &packed, &size);
    if (status == UCS_OK) status = ucp_ep_rkey_unpack(pair.endpoint(0), packed, &key);
    const auto address = reinterpret_cast<uintptr_t>(there.data());
    if (status == UCS_OK) {
        status = pair.finish(
            ucp_put_nbx(pair.endpoint(0), here.data(), kLongest, address, key, &kNothing));
    }
    if (status == UCS_OK) {
        status = pair.finish(ucp_ep_flush_nbx(pair.endpoint(0), &kNothing));
    }
    if (status == UCS_OK) {
        status = pair.finish(
            ucp_get_nbx(pair.endpoint(0), back.data(), kLongest, address, key, &kNothing));
    }
    if (status == UCS_OK) {
        const Disarmed disarmed;
        EXPECT_EQ(back, here);
    }
    uint64_t added = 1;
    ucp_request_param_t word{};
    word.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
    word.datatype = ucp_dt_make_contig(8);
    if (status == UCS_OK) {
        status = pair.finish(
            ucp_atomic_op_nbx(pair.endpoint(0), UCP_ATOMIC_OP_ADD, &added, 1, address, key, &word));
    }
    if (status == UCS_OK) pair.finish(ucp_worker_flush_nbx(pair.worker(0), &kNothing));
    if (key != nullptr) ucp_rkey_destroy(key);
    if (packed != nullptr) ucp_rkey_buffer_release(packed);
    {
        const Disarmed disarmed;
        pair.close();
    }
    EXPECT_EQ(ucp_mem_unmap(pair.context(pair.target()), memory), UCS_OK);
}

TEST_P(NoMemory, RemoteMemory) {
    each([](Pair& pair) { pair.open_and_connect(); }, access_remote_memory);
}

// Memory of the receiver's, with its key at the sender, and bytes for it.
class Shared {
  public:
    Shared(Pair& pair, size_t length)
        : content(pattern(length, 5)), bytes(length), context_(pair.context(pair.target())) {
        ucp_mem_map_params_t map{};
        map.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
        map.address = bytes.data();
        map.length = length;
        EXPECT_EQ(ucp_mem_map(context_, &map, &memory_), UCS_OK);
        void* packed = nullptr;
        size_t size = 0;
        EXPECT_EQ(ucp_rkey_pack(context_, memory_, &packed, &size), UCS_OK);
        EXPECT_EQ(ucp_ep_rkey_unpack(pair.endpoint(0), packed, &key_), UCS_OK);
        ucp_rkey_buffer_release(packed);
    }
    ~Shared() {
        ucp_rkey_destroy(key_);
        ucp_mem_unmap(context_, memory_);
    }
    Shared(const Shared&) = delete;
    uint64_t address() const { return reinterpret_cast<uintptr_t>(bytes.data()); }
    ucp_rkey_h key() const { return key_; }

    const std::vector<uint8_t> content;
    std::vector<uint8_t> bytes;

  private:
    ucp_context_h context_;
    ucp_mem_h memory_ = nullptr;
    ucp_rkey_h key_ = nullptr;
};

void close_in_peace(Pair& pair) {
    uint64_t word = 1;
    pair.finish(ucp_tag_send_nbx(pair.endpoint(0), &word, sizeof(word), 5, &kNothing));
    pair.finish(ucp_ep_flush_nbx(pair.endpoint(0), &kNothing));
    pair.leave(0);
}

constexpr void (*kTransfers[])(Pair&) = {
    [](Pair& pair) { send_tagged(pair, 8, true, false); },
    [](Pair& pair) { send_tagged(pair, kLong, false, false); },
    [](Pair& pair) { send_tagged(pair, kLongest, true, false); },
    access_remote_memory,
    close_in_peace,
};

TEST_P(NoMemory, Close) {
    each([](Pair& pair) { pair.open_and_connect(); }, close_in_peace);
}

TEST_P(NoMemory, SystemCallsOfTransfers) {
    const std::string transport = GetParam();
    if (transport != "tcp" && transport != "sm") GTEST_SKIP() << "transfers ask no system";
    for (const auto& transfer : kTransfers) {
        SCOPED_TRACE(testing::Message() << "transfer " << &transfer - kTransfers);
        each([](Pair& pair) { pair.open_and_connect(); }, transfer, 1, Resource::kSystem);
        if (HasFailure()) return;
    }
    EXPECT_GT(positions_, 0);
}

// How far two workers get where not all memory that they want can be registered.
enum class Reach : uint8_t {
    kRefused,  // they do not start: there is none for queues
    kFailed,   // what they do fails, and is told: there is none for buffers to send from
    kCopied,   // messages go, since what finds none is copied
    kAll,
};
constexpr size_t kReaches = 4;

Reach reach(const std::string& transport) {
    Pair pair(transport);
    for (size_t index = 0; index < pair.size(); ++index) {
        if (pair.open_context(index) != UCS_OK || pair.open_worker(index) != UCS_OK)
            return Reach::kRefused;
    }
    for (size_t index = 0; index < pair.size(); ++index) EXPECT_EQ(pair.connect(index), UCS_OK);
    for (const size_t length : {size_t{8}, kLong, kLongest})
        if (!pair.has_failed()) send_tagged(pair, length, true, false);
    if (pair.has_failed()) return Reach::kFailed;
    std::vector<char> bytes(4096);
    ucp_mem_map_params_t map{};
    map.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    map.address = bytes.data();
    map.length = bytes.size();
    ucp_mem_h memory = nullptr;
    if (ucp_mem_map(pair.context(0), &map, &memory) != UCS_OK) return Reach::kCopied;
    EXPECT_EQ(ucp_mem_unmap(pair.context(0), memory), UCS_OK);
    return Reach::kAll;
}

class Variable {
  public:
    Variable(const char* name, const std::string& value) : name_(name) {
        setenv(name, value.c_str(), 1);
    }
    ~Variable() { unsetenv(name_); }
    Variable(const Variable&) = delete;

  private:
    const char* const name_;
};

// Of an adapter that registers no more than so many regions.
TEST_P(NoMemory, RegistrationsAreFew) {
    const std::string transport = GetParam();
    if (transport != "dc" && transport != "ud") GTEST_SKIP() << "nothing is registered";
    const ucs::LogCapture quiet(ucs::LogLevel::kError);
    unsigned counts[kReaches] = {};
    const auto count = [&](Reach found) -> unsigned& { return counts[static_cast<size_t>(found)]; };
    Reach last = Reach::kRefused;
    for (unsigned regions = 1; last != Reach::kAll && count(Reach::kCopied) < 100; ++regions) {
        SCOPED_TRACE(testing::Message() << regions << " regions");
        const Variable limit("SOFTHCA_MAX_MR", std::to_string(regions));
        const Reach found = reach(transport);
        EXPECT_GE(found, last) << "with less they got further";
        ++count(found);
        ASSERT_LT(std::max(count(Reach::kRefused), count(Reach::kFailed)), 100u);
        last = found;
        if (HasFailure()) return;
    }
    EXPECT_GT(count(Reach::kRefused), 0u);
    EXPECT_GT(count(Reach::kFailed) + count(Reach::kCopied), 0u);
}

// No more than so much memory may be locked, by a process without the right to lock more. Only what
// adapters register is.
TEST_P(NoMemory, LittleMemoryMayBeLocked) {
    const ucs::LogCapture quiet(ucs::LogLevel::kError);
    const std::string transport = GetParam();
    const bool is_limited = transport == "dc" || transport == "ud";
    ucs::test::with_little_locked_memory([&](rlim_t most) {
        const Variable obeys("SOFTHCA_MEMLOCK", "1");
        constexpr rlim_t kEnough = rlim_t{1} << 32;
        Reach last = Reach::kRefused;
        unsigned refused = 0;
        for (rlim_t bytes = 0; bytes <= std::min(most, kEnough) && last != Reach::kAll;
             bytes = bytes == 0 ? 4096 : 2 * bytes) {
            SCOPED_TRACE(testing::Message() << bytes << " bytes may be locked");
            ucs::test::lock_at_most(bytes);
            const Reach found = reach(transport);
            EXPECT_GE(found, last) << "with less they got further";
            last = found;
            refused += found == Reach::kRefused;
        }
        EXPECT_EQ(refused > 0, is_limited);
        if (most >= kEnough || !is_limited) {
            EXPECT_EQ(last, Reach::kAll);
        }
    });
}

// Eight messages each way, short and long in turn. @return whether all came, in their order
bool exchange_numbers(Pair& pair, uint64_t first) {
    constexpr size_t kMany = 8, kWords = 300;
    struct Message {
        std::array<uint64_t, kWords> sent, received;
        void* sending = nullptr;
        void* receiving = nullptr;
    };
    Message messages[2][kMany];
    for (size_t index = 0; index < kMany; ++index) {
        const size_t length = sizeof(uint64_t) * (index % 2 == 0 ? 1 : kWords);
        for (size_t from = 0; from < 2; ++from) {
            Message& message = messages[from][index];
            message.sent.fill(first + index);
            message.received.fill(0);
            message.receiving = ucp_tag_recv_nbx(pair.worker(1 - from), message.received.data(),
                                                 length, 5, UINT64_MAX, &kNothing);
            message.sending =
                ucp_tag_send_nbx(pair.endpoint(from), message.sent.data(), length, 5, &kNothing);
        }
        pair.step();
    }
    for (size_t from = 0; from < 2; ++from) {
        for (Message& message : messages[from]) {
            pair.note(pair.finish(message.sending));
            pair.note(pair.finish_at(1 - from, message.receiving, true));
        }
    }
    if (pair.has_failed()) return false;
    for (const auto& way : messages) {
        for (size_t index = 0; index < kMany; ++index) {
            const size_t words = index % 2 == 0 ? 1 : kWords;
            EXPECT_TRUE(std::equal(way[index].sent.begin(), way[index].sent.begin() + words,
                                   way[index].received.begin()));
        }
    }
    return true;
}

// Whoever opens a file or waits is seen; who only looks does not wait.
void check_watch() {
    const auto are_seen = [](const auto& act) {
        watch = {.is_in_progress = true};
        act();
        watch.is_in_progress = false;
        return watch.openings + watch.waits;
    };
    using std::chrono::microseconds;
    std::mutex mutex;
    std::condition_variable condition;
    const auto with_lock = [&](const auto& wait) {
        return [&mutex, wait] {
            std::unique_lock lock(mutex);
            wait(lock);
        };
    };
    std::atomic<int> changes = 0;
    sem_t free_semaphore, taken_semaphore;
    sem_init(&free_semaphore, 0, 1);
    sem_init(&taken_semaphore, 0, 0);
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    const int epoll = epoll_create1(EPOLL_CLOEXEC);
    epoll_event event{};
    const timespec moment{0, 1000}, nothing{};
    timeval short_time{0, 1};
    const std::pair<const char*, std::function<void()>> waits[] = {
        {"file", [] { const std::ifstream file("/dev/null"); }},
        {"join", [] { std::thread([] {}).join(); }},
        {"wait_for", with_lock([&](auto& lock) { condition.wait_for(lock, microseconds(1)); })},
        {"wait_until", with_lock([&](auto& lock) {
             condition.wait_until(lock, std::chrono::system_clock::now() + microseconds(1));
         })},
        {"sem_wait", [&] { sem_wait(&free_semaphore); }},
        {"sem_timedwait", [&] { sem_timedwait(&taken_semaphore, &now); }},
        {"sleep_for", [] { std::this_thread::sleep_for(microseconds(1)); }},
        {"usleep", [] { usleep(1); }},
        {"nanosleep", [&] { nanosleep(&moment, nullptr); }},
        {"clock_nanosleep", [&] { clock_nanosleep(CLOCK_MONOTONIC, 0, &moment, nullptr); }},
        {"poll", [] { poll(nullptr, 0, 1); }},
        {"ppoll", [&] { ppoll(nullptr, 0, &moment, nullptr); }},
        {"epoll_wait", [&] { epoll_wait(epoll, &event, 1, 1); }},
        {"epoll_pwait", [&] { epoll_pwait(epoll, &event, 1, 1, nullptr); }},
        {"select", [&] { ::select(0, nullptr, nullptr, nullptr, &short_time); }},
        {"futex",
         [&] { syscall(SYS_futex, &changes, FUTEX_WAIT_PRIVATE, 0, &moment, nullptr, 0); }},
    };
    for (const auto& [name, wait] : waits) ASSERT_EQ(are_seen(wait), 1u) << name;
    const std::function<void()> looks[] = {
        [] { poll(nullptr, 0, 0); },
        [&] { ppoll(nullptr, 0, &nothing, nullptr); },
        [&] { epoll_wait(epoll, &event, 1, 0); },
        [&] { syscall(SYS_futex, &changes, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0); },
    };
    for (const auto& look : looks) EXPECT_EQ(are_seen(look), 0u) << &look - looks;
    close(epoll);
    sem_destroy(&free_semaphore);
    sem_destroy(&taken_semaphore);
    watch = {};
}

// Peers that have met: how they reach each other's memory is known from the first round.
TEST_P(NoMemory, ProgressOpensNoFilesAndWaitsForNoThreads) {
    check_watch();
    Pair pair(GetParam());
    pair.open_and_connect();
    for (const bool is_watched : {false, true}) {
        if (is_watched) watch = {};
        for (const bool is_expected : {false, true}) {
            for (const size_t length : {size_t{8}, kLong, kLongest}) {
                send_tagged(pair, length, is_expected, false);
                send_tagged(pair, length, is_expected, true);
                send_active(pair, length, is_expected);
            }
        }
        Shared memory(pair, kLongest);
        EXPECT_EQ(pair.finish(ucp_put_nbx(pair.endpoint(0), memory.content.data(), kLongest,
                                          memory.address(), memory.key(), &kNothing)),
                  UCS_OK);
        EXPECT_EQ(pair.finish(ucp_ep_flush_nbx(pair.endpoint(0), &kNothing)), UCS_OK);
        EXPECT_FALSE(pair.has_failed());
    }
    EXPECT_EQ(watch.openings, 0u);
    EXPECT_EQ(watch.waits, 0u);
}

// To a dedicated lane and back, under traffic both ways. @return whether it had one
bool change_lanes(Pair& pair) {
    const auto has_lane = [&] {
        ucpx_ep_attr_t attr{};
        attr.field_mask = UCPX_EP_ATTR_FIELD_STATE;
        return ucpx_ep_query(pair.endpoint(0), &attr) == UCS_OK &&
               attr.state == UCPX_LANE_STATE_ESTABLISHED;
    };
    uint64_t number = 1;
    const auto go_on = [&](const auto& is_over) {
        for (int round = 0; round < 100 && !is_over(); ++round, number += 8) {
            if (!exchange_numbers(pair, number)) return;
        }
    };
    if (ucpx_ep_lanes_request(pair.endpoint(0), UCPX_LANE_POLICY_DEDICATED) != UCS_OK) return false;
    go_on(has_lane);
    const bool had_lane = has_lane();
    if (pair.has_failed()) return had_lane;
    if (ucpx_ep_lanes_request(pair.endpoint(0), UCPX_LANE_POLICY_SCALABLE) != UCS_OK) return false;
    go_on([&] { return !has_lane(); });
    if (!pair.has_failed()) exchange_numbers(pair, number);
    return had_lane;
}

TEST_P(NoMemory, Promotions) {
    if (!has_lanes()) GTEST_SKIP() << "one kind of lane";
    for (const uint64_t burst : {1, 20}) {
        bool had_lane = false;
        int failures = 0;
        each([](Pair& pair) { pair.open_and_connect(); },
             [&](Pair& pair) {
                 std::optional<ucs::LogCapture> log;
                 {
                     const Disarmed disarmed;
                     log.emplace(ucs::LogLevel::kError);
                 }
                 had_lane = change_lanes(pair);
                 const Disarmed disarmed;
                 // The program's own messages, which nobody would send again.
                 const bool has_lost = log->contains("came before their turn");
                 failures += pair.errors() != 0 && !has_lost;
                 log.reset();
             },
             burst);
        EXPECT_TRUE(had_lane) << "with all memory";
        RecordProperty(burst == 1 ? "endpoints_of_one" : "endpoints_of_many", failures);
        if (burst == 1) {
            EXPECT_EQ(failures, 0) << "endpoints that failed, though only lanes were lost";
        }
        if (HasFailure()) return;
    }
}

TEST_P(NoMemory, SystemCallsOfPromotions) {
    if (!has_lanes()) GTEST_SKIP() << "one kind of lane";
    bool had_lane = false;
    each([](Pair& pair) { pair.open_and_connect(); },
         [&](Pair& pair) { had_lane = change_lanes(pair); }, 1, Resource::kSystem);
    EXPECT_TRUE(had_lane) << "with all system calls";
}

// A client calls a listener, and both exchange a word over the endpoints of that call.
// @return whether it came
bool call_listener(Pair& pair) {
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ucp_conn_request_h request = nullptr;
    ucp_listener_params_t listening{};
    listening.field_mask =
        UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
    listening.sockaddr = {reinterpret_cast<const sockaddr*>(&where), sizeof(where)};
    listening.conn_handler = {[](ucp_conn_request_h called, void* arg) {
                                  *static_cast<ucp_conn_request_h*>(arg) = called;
                              },
                              &request};
    ucp_listener_h listener = nullptr;
    if (ucp_listener_create(pair.worker(1), &listening, &listener) != UCS_OK) return false;
    bool has_come = false;
    ucp_listener_attr_t attr{};
    attr.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
    EXPECT_EQ(ucp_listener_query(listener, &attr), UCS_OK);

    const auto end_of = [](ucp_ep_h endpoint) {
        ucp_request_param_t force{};
        force.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        force.flags = UCP_EP_CLOSE_FLAG_FORCE;
        void* const closing = endpoint == nullptr ? nullptr : ucp_ep_close_nbx(endpoint, &force);
        if (UCS_PTR_IS_PTR(closing)) ucp_request_free(closing);
    };
    int errors = 0;
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                        UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR;
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler = {[](void* arg, ucp_ep_h, ucs_status_t) { ++*static_cast<int*>(arg); },
                          &errors};
    params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
    params.sockaddr = {reinterpret_cast<const sockaddr*>(&attr.sockaddr), sizeof(sockaddr_in)};
    ucp_ep_h client = nullptr, server = nullptr;
    if (ucp_ep_create(pair.worker(0), &params, &client) == UCS_OK) {
        EXPECT_TRUE(pair.until([&] { return request != nullptr || errors != 0; }))
            << "a call hangs";
        if (request != nullptr) {
            params.field_mask =
                UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_CONN_REQUEST;
            params.conn_request = request;
            const ucs_status_t accepted = ucp_ep_create(pair.worker(1), &params, &server);
            uint64_t sent = 7, received = 0;
            void* const receiving = ucp_tag_recv_nbx(pair.worker(1), &received, sizeof(received), 6,
                                                     UINT64_MAX, &kNothing);
            void* const sending = ucp_tag_send_nbx(client, &sent, sizeof(sent), 6, &kNothing);
            const auto is_over = [&] {
                return !UCS_PTR_IS_PTR(receiving) ||
                       ucp_request_check_status(receiving) != UCS_INPROGRESS;
            };
            const auto is_told = [&] {
                const ucs_status_t status = UCS_PTR_IS_PTR(sending)
                                                ? ucp_request_check_status(sending)
                                                : UCS_PTR_RAW_STATUS(sending);
                return errors != 0 || (status != UCS_OK && status != UCS_INPROGRESS);
            };
            EXPECT_TRUE(pair.until([&] { return is_over() || is_told(); }))
                << "a word is lost silently; accepted: " << ucs_status_string(accepted);
            if (!is_over()) ucp_request_cancel(pair.worker(1), receiving);
            end_of(std::exchange(client, nullptr));
            pair.finish(sending);
            if (pair.finish(receiving) == UCS_OK) {
                EXPECT_EQ(received, sent);
                has_come = true;
            }
        }
        end_of(client);
        end_of(server);
    }
    for (int round = 0; round < 10; ++round) pair.step();
    ucp_listener_destroy(listener);
    return has_come;
}

TEST_P(NoMemory, ClientsOfListeners) {
    if (std::string(GetParam()) != "tcp") GTEST_SKIP() << "they meet over sockets";
    for (const Resource resource : {Resource::kMemory, Resource::kSystem}) {
        bool has_come = false;
        each([](Pair& pair) { pair.open_with_bystander(); },
             [&](Pair& pair) { has_come = call_listener(pair); }, 1, resource);
        EXPECT_TRUE(has_come) << "with all of it";
        if (HasFailure()) return;
    }
}

void NoMemory::interrupt_all() {
    const auto all = [this](const auto& prepare, const std::function<void(Pair&)>& step) {
        each(
            prepare,
            [&](Pair& pair) {
                step(pair);
                EXPECT_FALSE(pair.has_failed());
            },
            1, Resource::kNoInterruption);
    };
    all([](Pair&) {}, [](Pair& pair) { pair.open(); });
    all([](Pair& pair) { pair.open(); }, connect_and_exchange_words);
    for (const auto& transfer : kTransfers) {
        SCOPED_TRACE(testing::Message() << "transfer " << &transfer - kTransfers);
        all([](Pair& pair) { pair.open_and_connect(); }, transfer);
        if (HasFailure()) return;
    }
    if (!std::string(GetParam()).starts_with("tcp")) return;
    all([](Pair& pair) { pair.open_with_bystander(); },
        [](Pair& pair) { EXPECT_TRUE(call_listener(pair)); });
}

// Whichever call a signal interrupts, nothing comes of it.
TEST_P(NoMemory, InterruptedSystemCallsChangeNothing) {
    interrupt_all();
    if (std::string(GetParam()) == "tcp") {
        EXPECT_GT(positions_, 0);
    }
}

// A read of a peer that has no memory for a while: nothing else fails. @param status  of the read
void read_without_memory(const char* transport, ucs_status_t status) {
    const ucs::LogCapture quiet(ucs::LogLevel::kError);
    Pair pair(transport);
    pair.open_and_connect();
    constexpr size_t kSize = 20000;
    Shared memory(pair, kSize);
    std::vector<uint8_t> back(kSize);
    const auto get = [&] {
        return ucp_get_nbx(pair.endpoint(0), back.data(), kSize, memory.address(), memory.key(),
                           &kNothing);
    };
    // What comes before and behind it finds its buffers there.
    ASSERT_EQ(pair.finish(ucp_put_nbx(pair.endpoint(0), memory.content.data(), kSize,
                                      memory.address(), memory.key(), &kNothing)),
              UCS_OK);
    ASSERT_EQ(pair.finish(ucp_ep_flush_nbx(pair.endpoint(0), &kNothing)), UCS_OK);
    void* const reading = get();
    ASSERT_TRUE(UCS_PTR_IS_PTR(reading));
    injection = {false, Resource::kMemory, 1, UINT64_MAX, 0};
    for (int count = 0; count < 1000; ++count) {
        {
            const Armed armed;
            ucp_worker_progress(pair.worker(1));
        }
        ucp_worker_progress(pair.worker(0));
        if (ucp_request_check_status(reading) != UCS_INPROGRESS) break;
    }
    EXPECT_GT(injection.failed, 0u);
    injection.failures = 0;
    EXPECT_EQ(pair.finish(reading), status);
    EXPECT_EQ(pair.errors(), 0);
    EXPECT_TRUE(pair.brings_word(pair.endpoint(0), pair.worker(1)));
    EXPECT_TRUE(pair.brings_word(pair.endpoint(1), pair.worker(0)));
    ASSERT_EQ(pair.finish(get()), UCS_OK);
    EXPECT_EQ(back, memory.content);
}

// The peer refuses it, since it has no memory for its answer.
TEST_P(NoMemory, AReadWithoutMemoryForItsAnswerFailsAlone) {
    if (std::string(GetParam()) != "tcp") GTEST_SKIP() << "the processor of the target answers";
    read_without_memory(GetParam(), UCS_ERR_NO_MEMORY);
}

// What comes behind a fence that finds no memory fails, and does not wait for ever.
void fence_without_memory(const std::string& transport) {
    const ucs::LogCapture quiet(ucs::LogLevel::kError);
    Pair pair(transport, false);
    pair.open_and_connect();
    constexpr size_t kSize = 300'000;
    Shared memory(pair, kSize);
    ASSERT_EQ(pair.finish(ucp_put_nbx(pair.endpoint(0), memory.content.data(), kSize,
                                      memory.address(), memory.key(), &kNothing)),
              UCS_OK);
    ASSERT_EQ(ucp_worker_fence(pair.worker(0)), UCS_OK);
    const uint64_t word = 7;
    const auto put = [&] {
        return ucp_put_nbx(pair.endpoint(0), &word, sizeof(word), memory.address(), memory.key(),
                           &kNothing);
    };
    injection = {false, Resource::kMemory, 1, UINT64_MAX, 0};
    ucs_status_t status = UCS_OK;
    {
        const Armed armed;
        status = pair.finish(put());
    }
    // Over TCP the long put goes over another connection, and the fence has to ask for its end.
    if (transport.starts_with("tcp")) {
        EXPECT_EQ(status, UCS_ERR_NO_MEMORY);
    } else {
        EXPECT_TRUE(status == UCS_OK || status == UCS_ERR_NO_MEMORY) << ucs_status_string(status);
    }
    injection.failures = 0;
    EXPECT_EQ(pair.errors(), 0);
    EXPECT_EQ(pair.finish(put()), UCS_OK);
    EXPECT_EQ(pair.finish(ucp_ep_flush_nbx(pair.endpoint(0), &kNothing)), UCS_OK);
    EXPECT_EQ(std::memcmp(memory.bytes.data(), &word, sizeof(word)), 0);
    EXPECT_TRUE(std::equal(memory.bytes.begin() + sizeof(word), memory.bytes.end(),
                           memory.content.begin() + sizeof(word)));
}

TEST_P(NoMemory, AFenceWithoutMemoryFailsWhatIsBehindIt) {
    fence_without_memory(GetParam());
}

// The peer of an endpoint that failed is told when there is memory to do so; nobody looks for it
// meanwhile, but from time to time.
TEST(NoMemoryOfReset, IsTriedAgainFromTimeToTime) {
    if (!kCanInject) GTEST_SKIP() << "a sanitizer has the allocator";
    const ucs::LogCapture quiet(ucs::LogLevel::kError);
    Cluster cluster(2);
    int errors = 0;
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler = {[](void* arg, ucp_ep_h, ucs_status_t) { ++*static_cast<int*>(arg); },
                          &errors};
    const ucp_ep_h here = cluster.connect(0, 1);
    cluster.connect(1, 0, params);
    cluster.steps(100);
    injection = {false, Resource::kMemory, 1, UINT64_MAX, 0};
    {
        const Armed armed;
        unwrap(here).reset(UCS_ERR_NO_MEMORY);
        cluster.steps(100);
    }
    injection.failures = 0;
    EXPECT_TRUE(unwrap(here).is_untold());
    EXPECT_FALSE(cluster.inner(0).has_work()) << "it is tried again and again";
    EXPECT_TRUE(cluster.until([&] { return errors == 1; }));
}

// The same over connections that OpenSSL encrypts, which asks for memory of its own.
class NoMemoryEncrypted : public NoMemory {
  protected:
    void SetUp() override {
        setenv("UCX_TCP_ENCRYPT", "y", 1);
        setenv("UCX_TCP_JOB_KEY", "our common word", 1);
        NoMemory::SetUp();
    }
    void TearDown() override {
        unsetenv("UCX_TCP_ENCRYPT");
        unsetenv("UCX_TCP_JOB_KEY");
    }
};

TEST_P(NoMemoryEncrypted, SystemCallsOfConnecting) {
    each([](Pair& pair) { pair.open(); }, connect_and_exchange_words, 1, Resource::kSystem);
}

TEST_P(NoMemoryEncrypted, Eager) {
    for (const Resource resource : {Resource::kMemory, Resource::kSystem}) {
        each([](Pair& pair) { pair.open_and_connect(); },
             [](Pair& pair) { send_tagged(pair, kLong, false, false); }, 1, resource);
    }
}

TEST_P(NoMemoryEncrypted, InterruptedSystemCallsChangeNothing) {
    interrupt_all();
    EXPECT_GT(positions_, 0);
}

TEST_P(NoMemoryEncrypted, SystemCallsOfARendezvous) {
    each([](Pair& pair) { pair.open_and_connect(); },
         [](Pair& pair) { send_tagged(pair, kLongest, true, false); }, 1, Resource::kSystem);
}

// What has left the kernel but is not decrypted is read later, though nothing tells of it. A
// connection that brought a packet's length or less would be looked at in any case: the loopback's
// packets are to be short.
TEST_P(NoMemoryEncrypted, RecordsThatCameTogetherAreReadWhenThereIsMemory) {
    const bool is_there = ucs::test::with_short_packets([&] {
        each([](Pair& pair) { pair.open_and_connect(); },
             [](Pair& pair) { send_tagged(pair, kLong, true, false); }, 2);
    });
    if (!is_there) GTEST_SKIP() << "needs the right to make a network namespace, and the tool ip";
}

// It cannot be decrypted without memory, and waits.
TEST_P(NoMemoryEncrypted, AReadWaitsForMemory) {
    read_without_memory(GetParam(), UCS_OK);
}

TEST_P(NoMemoryEncrypted, AFenceWithoutMemoryFailsWhatIsBehindIt) {
    fence_without_memory(GetParam());
}

// At some points of thousands: all of them take ten seconds.
TEST_P(NoMemoryEncrypted, ConnectingFails) {
    for (const uint64_t first : {1, 10, 100, 1000, 2000}) {
        const ucs::LogCapture quiet(ucs::LogLevel::kError);
        injection = {false, Resource::kMemory, first, 3, 0};
        Pair pair(GetParam());
        pair.open();
        {
            const Armed armed;
            connect_and_exchange_words(pair);
        }
        EXPECT_GT(injection.failed, 0u);
        injection.failures = 0;
    }
}

INSTANTIATE_TEST_SUITE_P(Over, NoMemoryEncrypted, ::testing::Values("tcp_encrypted"),
                         [](const auto& info) { return std::string(info.param); });
INSTANTIATE_TEST_SUITE_P(Over, NoMemory, ::testing::Values("self", "sm", "tcp", "dc", "ud"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace ucp::test
