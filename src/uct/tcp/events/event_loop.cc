// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/events/event_loop.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "ucs/log/log.h"

namespace uct::tcp {

EventLoop::EventLoop(std::string name)
    : name_(std::move(name)),
      poll_(epoll_create1(EPOLL_CLOEXEC)),
      alarm_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
    epoll_event event{};
    event.events = EPOLLIN;
    is_open_ = poll_ && alarm_ && epoll_ctl(poll_.get(), EPOLL_CTL_ADD, alarm_.get(), &event) == 0;
}

bool EventLoop::watch(int descriptor, EventTarget& target, uint32_t events, bool is_new) {
    epoll_event event{};
    event.events = events;
    event.data.ptr = &target;
    const int operation = is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
    if (epoll_ctl(poll_.get(), operation, descriptor, &event) == 0) return true;
    ucs::log_error("{}: a socket cannot be watched: {}", name_, std::strerror(errno));
    return false;
}

void EventLoop::stop_watching(int descriptor) {
    epoll_ctl(poll_.get(), EPOLL_CTL_DEL, descriptor, nullptr);
}

unsigned EventLoop::poll() {
    std::array<epoll_event, 32> events;
    const int ready = epoll_wait(poll_.get(), events.data(), events.size(), 0);
    unsigned count = 0;
    for (int i = 0; i < ready; ++i) {
        auto* target = static_cast<EventTarget*>(events[static_cast<size_t>(i)].data.ptr);
        if (target != nullptr) {
            count += target->on_event(events[static_cast<size_t>(i)].events);
            continue;
        }
        uint64_t expirations;
        [[maybe_unused]] const ssize_t got = read(alarm_.get(), &expirations, sizeof(expirations));
        watch_calls_ = kWatchCalls - 1;  // it may be for those watched
    }
    return count;
}

void EventLoop::run_timers(ucs::Time now) {
    for (;;) {
        const auto due = std::ranges::find_if(
            timers_, [&](const Timer& timer) { return timer.deadline() <= now; });
        if (due == timers_.end()) return;
        due->on_deadline();
    }
}

void EventLoop::check_watched(ucs::Time now) {
    if (now < next_watch_) return;
    // They live until the end of progress(), but one may take others out of the list.
    due_.clear();
    try {
        for (Watched& watched : watched_) {
            if (watched.next_check() <= now) due_.push_back(&watched);
        }
    } catch (const std::bad_alloc&) {
        ucs::log_debug("{}: no memory to look after all connections: some wait", name_);
    }
    for (Watched* watched : due_) {
        if (watched->is_linked()) watched->check(now);
    }
    next_watch_ = ucs::kNever;
    for (const Watched& watched : watched_) {
        next_watch_ = std::min(next_watch_, watched.next_check());
    }
}

ucs::Time EventLoop::next_deadline() const {
    ucs::Time next = watched_.empty() ? ucs::kNever : next_watch_;
    for (const Timer& timer : timers_) next = std::min(next, timer.deadline());
    return next;
}

bool EventLoop::arm(ucs::Time next, ucs::Time now) {
    itimerspec when{};
    if (next != ucs::kNever) {
        const auto span = std::max(next - now, ucs::Duration(1));
        when.it_value.tv_sec = span.count() / 1000000000;
        when.it_value.tv_nsec = span.count() % 1000000000;
    }
    timerfd_settime(alarm_.get(), 0, &when, nullptr);
    epoll_event event;
    return epoll_wait(poll_.get(), &event, 1, 0) <= 0;
}

}  // namespace uct::tcp
