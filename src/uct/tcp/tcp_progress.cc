// SPDX-License-Identifier: BSD-3-Clause
// The part of an interface that runs on every call of progress, and sleeps when nothing comes.
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "ucs/log/log.h"
#include "uct/base/gather.h"
#include "uct/tcp/tcp_endpoint.h"
#include "uct/tcp/tcp_interface.h"

namespace uct::tcp {

bool TcpInterface::watch(int socket, EventTarget& target, uint32_t events, bool is_new) {
    epoll_event event{};
    event.events = events;
    event.data.ptr = &target;
    if (epoll_ctl(poll_.get(), is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, socket, &event) == 0) {
        return true;
    }
    ucs::log_error("{}: a socket cannot be watched: {}", device_.name, std::strerror(errno));
    return false;
}

void TcpInterface::stop_watching(int socket) {
    epoll_ctl(poll_.get(), EPOLL_CTL_DEL, socket, nullptr);
}

unsigned TcpInterface::poll() {
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
        watch_calls_ = kWatchCalls - 1;  // it may be for the sessions
    }
    if (carrier_.take_change()) [[unlikely]] {
        for (TcpInterface* member : family_->members) {
            member->on_carrier(device_, carrier_.is_up());
        }
    }
    return count;
}

void TcpInterface::run_timers() {
    const ucs::Time time = now();
    listener_.on_deadline(time);
    for (;;) {
        const auto due = std::ranges::find_if(
            timers_, [&](const Timer& timer) { return timer.deadline() <= time; });
        if (due == timers_.end()) return;
        due->on_deadline();
    }
}

bool TcpInterface::rests() {
    if (!pending_.empty() || !timers_.empty() || listener_.has_timers()) return false;
    if (++rest_calls_ % kRestCalls != 0) return true;
    const ucs::Time time = now();
    if (time < next_poll_ && rest_calls_ % kMostRestCalls != 0) return true;
    next_poll_ = time + (links_.empty() ? kLongRest : kRest);
    return false;
}

unsigned TcpInterface::progress() {
    if (empty_polls_ >= kRestless && rests()) return 0;
    unsigned count = 0;
    if (hot_ != nullptr && is_answer_due_ && hot_polls_ > 0) {
        --hot_polls_;
        count = hot_->receive();
    } else {
        hot_polls_ = kHotPolls;
        count = poll();
    }
    if (count > 0) {
        be_alert();
    } else if (empty_polls_ < kRestless) {
        ++empty_polls_;
    }
    if (!timers_.empty() || listener_.has_timers()) [[unlikely]]
        run_timers();
    if (!watched_.empty() && ++watch_calls_ % kWatchCalls == 0) [[unlikely]]
        check_sessions();
    if (!pending_.empty()) [[unlikely]] {
        const auto endpoint = [](PendingQueue::Group& group) -> TcpEndpoint& {
            return static_cast<TcpEndpoint&>(group);
        };
        pending_.dispatch(
            [&](PendingQueue::Group& group) { return endpoint(group).has_some_room(); },
            [](PendingQueue::Group&) { return false; }, [] { return true; });
    }
    reap();
    return count;
}

ucs_status_t TcpInterface::flush(Completion* completion) {
    Gather* all = Gather::start(completion);
    for (Link& link : links_) {
        if (link.is_failed()) continue;
        Completion* one = all->add();
        const ucs_status_t status = link.flush(nullptr, one);
        if (status == UCS_INPROGRESS) continue;
        all->cancel();
        if (status == UCS_OK) continue;
        all->abandon();
        return status;
    }
    return all->finish();
}

ucs::Time TcpInterface::next_deadline() const {
    ucs::Time next = listener_.next_deadline();
    for (const Timer& timer : timers_) next = std::min(next, timer.deadline());
    if (!watched_.empty()) next = std::min(next, next_watch_);
    return next;
}

ucs_status_t TcpInterface::arm() {
    const ucs::Time next = next_deadline();
    itimerspec when{};
    if (next != ucs::kNever) {
        const auto span = std::max(next - now(), ucs::Duration(1));
        when.it_value.tv_sec = span.count() / 1000000000;
        when.it_value.tv_nsec = span.count() % 1000000000;
    }
    timerfd_settime(alarm_.get(), 0, &when, nullptr);
    epoll_event event;
    return epoll_wait(poll_.get(), &event, 1, 0) > 0 ? UCS_ERR_BUSY : UCS_OK;
}

}  // namespace uct::tcp
