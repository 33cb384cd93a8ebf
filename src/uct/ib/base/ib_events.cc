// SPDX-License-Identifier: BSD-3-Clause

// How an interface sleeps, and what it does about events of its adapter.

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>

#include "ucs/log/log.h"
#include "uct/ib/base/ib_interface.h"

namespace uct::ib {

int IbInterface::event_fd() const {
    if (event_fd_ < 0) event_fd_ = open_event_fd();
    return event_fd_;
}

int IbInterface::open_event_fd() const {
    const int descriptor = epoll_create1(EPOLL_CLOEXEC);
    if (descriptor < 0) return -1;
    // Completions; events that nobody has read; events that another interface has read for us.
    for (const int source : {channel_->fd, device().events().fd(), events_.fd()}) {
        epoll_event interest{.events = EPOLLIN, .data = {.fd = source}};
        if (epoll_ctl(descriptor, EPOLL_CTL_ADD, source, &interest) != 0) {
            close(descriptor);
            return -1;
        }
    }
    return descriptor;
}

void IbInterface::look_for_events() {
    until_events_ = kEventInterval;
    std::vector<AsyncEvent> events = device().events().take(events_);
    events.insert(events.begin(), kept_events_.begin(), kept_events_.end());
    kept_events_.clear();
    for (const AsyncEvent& event : events) handle(event);
}

void IbInterface::handle(const AsyncEvent& event) {
    switch (event.kind) {
        case AsyncEvent::Kind::kPortDown:
            is_link_up_ = false;
            ucs::log_warn("{}: the port of {} is down; what is sent waits as long as retries last",
                          device().name(), attributes_.transport);
            break;
        case AsyncEvent::Kind::kPortUp:
            is_link_up_ = true;
            ucs::log_info("{}: the port of {} is up", device().name(), attributes_.transport);
            break;
        case AsyncEvent::Kind::kQueuePair:
            queue_pair_failed(event.queue_pair);
            break;
        case AsyncEvent::Kind::kQueue:
            if (event.queue == send_cq() || event.queue == receive_cq() || event.queue == srq()) {
                ucs::log_error("{}: a queue of {} has failed; all its connections end",
                               device().name(), attributes_.transport);
                device_gone();
            }
            break;
        case AsyncEvent::Kind::kDevice:
            ucs::log_error("{}: the adapter is gone; all connections of {} end", device().name(),
                           attributes_.transport);
            device_gone();
            break;
    }
}

// Its completions tell more of the cause; they are looked at first.
void IbInterface::queue_pair_failed(uint32_t number) {
    while (poll_sends() > 0) {
    }
    const auto found = std::ranges::find_if(queues_, [&](const SendQueue* queue) {
        return queue != nullptr && queue->qp() != nullptr && queue->qp()->qp_num == number;
    });
    if (found == queues_.end()) return;
    SendQueue& queue = **found;
    // One that only sends and has nothing under way is mended when it is next used.
    if (sends_only_ && queue.is_idle()) return;
    ibv_qp_attr attributes{};
    ibv_qp_init_attr initial{};
    const bool known = ibv_query_qp(queue.qp(), &attributes, IBV_QP_STATE, &initial) == 0;
    // The event may be of an earlier queue pair of this number, or one that has been mended.
    if (known && attributes.qp_state != IBV_QPS_ERR) return;
    queue.fail(UCS_ERR_CONNECTION_RESET);
}

void IbInterface::device_gone() {
    // Handlers may destroy endpoints, and their queues with them.
    for (size_t slot = 0; slot < queues_.size(); ++slot) {
        SendQueue* queue = queues_[slot];
        if (queue != nullptr && !(sends_only_ && queue->is_idle())) queue->fail(UCS_ERR_IO_ERROR);
    }
}

}  // namespace uct::ib
