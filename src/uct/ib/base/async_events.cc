// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/base/async_events.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <optional>
#include <utility>

#include "ucs/log/log.h"

namespace uct::ib {

namespace {

// Null for what asks nothing of us: it is logged alone.
std::optional<AsyncEvent> meaning(const ibv_async_event& event, int port) {
    using Kind = AsyncEvent::Kind;
    switch (event.event_type) {
        case IBV_EVENT_PORT_ERR:
            if (event.element.port_num != port) return {};
            return AsyncEvent{Kind::kPortDown};
        case IBV_EVENT_PORT_ACTIVE:
            if (event.element.port_num != port) return {};
            return AsyncEvent{Kind::kPortUp};
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_QP_REQ_ERR:
        case IBV_EVENT_QP_ACCESS_ERR:
            return AsyncEvent{Kind::kQueuePair, event.element.qp->qp_num};
        case IBV_EVENT_CQ_ERR:
            return AsyncEvent{Kind::kQueue, 0, event.element.cq};
        case IBV_EVENT_SRQ_ERR:
            return AsyncEvent{Kind::kQueue, 0, event.element.srq};
        case IBV_EVENT_DEVICE_FATAL:
            return AsyncEvent{Kind::kDevice};
        default:
            return {};
    }
}

}  // namespace

EventBox::~EventBox() {
    if (fd_ >= 0) close(fd_);
}

int EventBox::fd() {
    if (fd_ < 0) fd_ = eventfd(events_.empty() ? 0 : 1, EFD_CLOEXEC | EFD_NONBLOCK);
    return fd_;
}

void EventBox::put(const AsyncEvent& event) {
    events_.push_back(event);
    const uint64_t one = 1;
    if (fd_ >= 0 && write(fd_, &one, sizeof(one)) < 0) {
        // The counter is full only after 2^64 events.
    }
}

std::vector<AsyncEvent> EventBox::take() {
    uint64_t count;
    if (fd_ >= 0 && !events_.empty() && read(fd_, &count, sizeof(count)) < 0) {
        // It was readable only if something came after it was made.
    }
    return std::exchange(events_, {});
}

AsyncEvents::AsyncEvents(ibv_context* context, uint8_t port) : context_(context), port_(port) {
    fcntl(fd(), F_SETFL, fcntl(fd(), F_GETFL) | O_NONBLOCK);
}

void AsyncEvents::subscribe(EventBox& box) {
    std::lock_guard lock(mutex_);
    boxes_.push_back(&box);
}

void AsyncEvents::unsubscribe(EventBox& box) {
    std::lock_guard lock(mutex_);
    std::erase(boxes_, &box);
}

std::vector<AsyncEvent> AsyncEvents::take(EventBox& box) {
    std::lock_guard lock(mutex_);
    read_all();
    return box.take();
}

void AsyncEvents::read_all() {
    ibv_async_event event;
    while (ibv_get_async_event(context_, &event) == 0) {
        const std::optional<AsyncEvent> known = meaning(event, port_);
        ucs::log_debug("{}: event: {}", ibv_get_device_name(context_->device),
                       ibv_event_type_str(event.event_type));
        // The number is kept, not the queue pair: it may be destroyed once this is acknowledged.
        ibv_ack_async_event(&event);
        if (!known) continue;
        for (EventBox* box : boxes_) box->put(*known);
    }
}

}  // namespace uct::ib
