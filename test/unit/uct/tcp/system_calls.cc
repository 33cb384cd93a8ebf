// SPDX-License-Identifier: BSD-3-Clause
#include "unit/uct/tcp/system_calls.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cstdarg>

namespace uct::test {

SystemCalls system_calls;

namespace {

void count_call(std::atomic<unsigned>& calls) {
    if (system_calls.is_counting) ++calls;
}

ssize_t note_bytes(ssize_t bytes) {
    if (bytes > 0) system_calls.moved += static_cast<size_t>(bytes);
    return bytes;
}

}  // namespace
}  // namespace uct::test

using uct::test::count_call;
using uct::test::note_bytes;
using uct::test::system_calls;

extern "C" ssize_t recv(int socket, void* buffer, size_t length, int flags) {
    count_call(system_calls.reads);
    return note_bytes(syscall(SYS_recvfrom, socket, buffer, length, flags, nullptr, nullptr));
}

extern "C" ssize_t recvmsg(int socket, msghdr* message, int flags) {
    count_call(system_calls.reads);
    return note_bytes(syscall(SYS_recvmsg, socket, message, flags));
}

extern "C" ssize_t send(int socket, const void* buffer, size_t length, int flags) {
    count_call(system_calls.sends);
    return note_bytes(syscall(SYS_sendto, socket, buffer, length, flags, nullptr, 0));
}

extern "C" ssize_t sendmsg(int socket, const msghdr* message, int flags) {
    count_call(system_calls.sends);
    return note_bytes(syscall(SYS_sendmsg, socket, message, flags));
}

extern "C" int epoll_wait(int set, epoll_event* events, int most, int milliseconds) {
    count_call(system_calls.looks);
    return static_cast<int>(syscall(SYS_epoll_pwait, set, events, most, milliseconds, nullptr, 8));
}

extern "C" int epoll_ctl(int set, int operation, int descriptor, epoll_event* event) noexcept {
    count_call(system_calls.others);
    return static_cast<int>(syscall(SYS_epoll_ctl, set, operation, descriptor, event));
}

extern "C" int timerfd_settime(int timer, int flags, const itimerspec* time,
                               itimerspec* before) noexcept {
    count_call(system_calls.others);
    return static_cast<int>(syscall(SYS_timerfd_settime, timer, flags, time, before));
}

extern "C" int getsockopt(int descriptor, int level, int name, void* value,
                          socklen_t* length) noexcept {
    const long result = syscall(SYS_getsockopt, descriptor, level, name, value, length);
    if (level != IPPROTO_TCP || name != TCP_INFO) {
        count_call(system_calls.others);
        return static_cast<int>(result);
    }
    count_call(system_calls.questions);
    auto& info = *static_cast<tcp_info*>(value);
    if (system_calls.is_answered)
        info.tcpi_last_ack_recv = info.tcpi_retransmits = info.tcpi_probes = 0;
    return static_cast<int>(result);
}

extern "C" int setsockopt(int socket, int level, int name, const void* value,
                          socklen_t length) noexcept {
    count_call(system_calls.others);
    if (level == IPPROTO_TCP && length == sizeof(int)) {
        const int number = *static_cast<const int*>(value);
        uct::test::SystemCalls::Told& told = system_calls.told;
        told.to_gather += name == TCP_NODELAY && number == 0;
        told.to_push += name == TCP_NODELAY && number != 0;
        told.to_acknowledge += name == TCP_QUICKACK && number != 0;
    }
    return static_cast<int>(syscall(SYS_setsockopt, socket, level, name, value, length));
}

extern "C" int ioctl(int descriptor, unsigned long request, ...) noexcept {
    count_call(request == SIOCOUTQ ? system_calls.questions : system_calls.others);
    va_list list;
    va_start(list, request);
    void* const argument = va_arg(list, void*);
    va_end(list);
    return static_cast<int>(syscall(SYS_ioctl, descriptor, request, argument));
}
