// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/runtime/wakeup.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

namespace ucp {
namespace {

bool can_wake(const uct::InterfaceAttributes& attributes) {
    return (attributes.capabilities & uct::kEventFd) != 0;
}

// Was the descriptor readable? It is not any more.
bool take(int descriptor) {
    uint64_t count;
    return read(descriptor, &count, sizeof(count)) == sizeof(count);
}

}  // namespace

ucs_status_t Wakeup::watch(int descriptor) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = descriptor;
    // Transports of one device may share a descriptor.
    const bool done = epoll_ctl(poll_, EPOLL_CTL_ADD, descriptor, &event) == 0 || errno == EEXIST;
    return done ? UCS_OK : UCS_ERR_IO_ERROR;
}

ucs_status_t Wakeup::create(Source& source, Gate& gate, InterfaceSet& interfaces,
                            const External& external, std::unique_ptr<Wakeup>* wakeup) {
    std::unique_ptr<Wakeup> made(new Wakeup(source, gate, interfaces));
    made->poll_ = epoll_create1(EPOLL_CLOEXEC);
    made->signal_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    made->timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (made->poll_ < 0 || made->signal_ < 0 || made->timer_ < 0) return UCS_ERR_IO_ERROR;
    if (made->watch(made->signal_) != UCS_OK || made->watch(made->timer_) != UCS_OK) {
        return UCS_ERR_IO_ERROR;
    }
    for (const WorkerInterface& interface : interfaces.list()) {
        const auto& attributes = interface.transport->attributes();
        // Messages of a worker to itself are there when the call that sent them returns.
        if (attributes.device_type == uct::DeviceType::kSelf) continue;
        if (!can_wake(attributes)) return UCS_ERR_UNSUPPORTED;
        const ucs_status_t status = made->watch(interface.transport->event_fd());
        if (status != UCS_OK) return status;
    }
    if (external.epoll >= 0) {
        epoll_event event{};
        event.events = external.edge ? uint32_t{EPOLLIN | EPOLLET} : uint32_t{EPOLLIN};
        event.data.ptr = external.user_data;
        if (epoll_ctl(external.epoll, EPOLL_CTL_ADD, made->poll_, &event) != 0) {
            return UCS_ERR_INVALID_PARAM;
        }
        made->external_ = external.epoll;
    }
    *wakeup = std::move(made);
    return UCS_OK;
}

Wakeup::~Wakeup() {
    gate_.set_sleeper(nullptr);
    if (external_ >= 0) epoll_ctl(external_, EPOLL_CTL_DEL, poll_, nullptr);
    for (const int descriptor : {poll_, signal_, timer_}) {
        if (descriptor >= 0) close(descriptor);
    }
}

void Wakeup::set_timer() {
    deadline_ = source_.next_deadline();
    itimerspec when{};
    if (deadline_ != ucs::kNever) {
        constexpr ucs::Duration kLongest = std::chrono::hours(1);
        const ucs::Duration wait =
            std::clamp(deadline_ - source_.now(), ucs::Duration(1), kLongest);
        const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(wait);
        when.it_value.tv_sec = seconds.count();
        when.it_value.tv_nsec = std::chrono::nanoseconds(wait - seconds).count();
    }
    timerfd_settime(timer_, 0, &when, nullptr);
}

ucs_status_t Wakeup::arm() {
    gate_.set_sleeper(nullptr);
    const bool is_signalled = take(signal_);
    const bool is_due = take(timer_);
    const bool is_called = source_.has_callers();
    if (is_due || is_called) source_.look_soon();
    const bool has_progressed = source_.take_progressed();
    if (is_signalled || is_due || is_called || has_progressed || source_.has_work())
        return UCS_ERR_BUSY;
    for (const WorkerInterface& interface : interfaces_.list()) {
        if (!can_wake(interface.transport->attributes())) {
            if (interface.transport->progress() != 0) return UCS_ERR_BUSY;
            continue;
        }
        const ucs_status_t status = interface.transport->arm();
        if (status != UCS_OK) return status;
    }
    set_timer();
    gate_.set_sleeper(this);
    return UCS_OK;
}

// Once is enough: the descriptor stays readable until arm() is called again.
void Wakeup::look_at_call() {
    if (!source_.has_work() && source_.next_deadline() >= deadline_) return;
    gate_.set_sleeper(nullptr);
    (void)signal();
}

ucs_status_t Wakeup::wait() const {
    pollfd entry{poll_, POLLIN, 0};
    return poll(&entry, 1, -1) < 0 && errno != EINTR ? UCS_ERR_IO_ERROR : UCS_OK;
}

ucs_status_t Wakeup::signal() const {
    const uint64_t one = 1;
    return write(signal_, &one, sizeof(one)) == sizeof(one) || errno == EAGAIN ? UCS_OK
                                                                               : UCS_ERR_IO_ERROR;
}

}  // namespace ucp
