// SPDX-License-Identifier: BSD-3-Clause
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "softhca/verbs/verbs_ops.h"

// Completion channels and asynchronous events: a queue in the process and a semaphore eventfd that
// counts it, so that poll() and non-blocking reads work as on a kernel's event file.
namespace softhca {
namespace {

void signal_fd(int fd) {
    const uint64_t one = 1;
    if (fd >= 0 && write(fd, &one, sizeof(one)) < 0) {
        // The counter is full only after 2^64 unread events.
    }
}

// @return false with errno if the descriptor is non-blocking and nothing is there.
bool consume_fd(int fd) {
    uint64_t one = 0;
    return read(fd, &one, sizeof(one)) == sizeof(one);
}

void consume_without_waiting(int fd, size_t count) {
    // Each queued event was signalled before: these reads do not block.
    while (count-- > 0 && fd >= 0) consume_fd(fd);
}

void count_ack(pthread_mutex_t& mutex, pthread_cond_t& cond, uint32_t& completed, uint32_t count) {
    pthread_mutex_lock(&mutex);
    completed += count;
    pthread_cond_broadcast(&cond);
    pthread_mutex_unlock(&mutex);
}

bool is_cq_event(ibv_event_type type) {
    return type == IBV_EVENT_CQ_ERR;
}
bool is_srq_event(ibv_event_type type) {
    return type == IBV_EVENT_SRQ_ERR || type == IBV_EVENT_SRQ_LIMIT_REACHED;
}
bool is_qp_event(ibv_event_type type) {
    return (type >= IBV_EVENT_QP_FATAL && type <= IBV_EVENT_PATH_MIG_ERR) ||
           type == IBV_EVENT_QP_LAST_WQE_REACHED;
}

}  // namespace

void await_acks(pthread_mutex_t& mutex, pthread_cond_t& cond, const uint32_t& completed,
                const std::atomic<uint32_t>& delivered) {
    pthread_mutex_lock(&mutex);
    while (completed != delivered.load()) pthread_cond_wait(&cond, &mutex);
    pthread_mutex_unlock(&mutex);
}

void drop_async_events(Context& context, void* object) {
    std::lock_guard guard(context.events_mutex);
    consume_without_waiting(
        context.v.context.async_fd,
        std::erase_if(context.events, [&](const AsyncEvent& e) { return e.object == object; }));
}

void drop_comp_events(Cq& cq) {
    if (cq.verbs.channel == nullptr) return;
    CompletionChannel& channel = *CompletionChannel::of(cq.verbs.channel);
    std::lock_guard guard(channel.mutex);
    consume_without_waiting(channel.verbs.fd, std::erase(channel.events, &cq));
}

void Fabric::deliver_cq_event(Cq& cq) {
    if (cq.verbs.channel == nullptr) return;
    CompletionChannel& channel = *CompletionChannel::of(cq.verbs.channel);
    std::lock_guard guard(channel.mutex);
    channel.events.push_back(&cq);
    signal_fd(channel.verbs.fd);
}

void Fabric::deliver_async(Context& context, ibv_event_type type, void* object, uint8_t port) {
    std::lock_guard guard(context.events_mutex);
    context.events.push_back({type, object, port});
    signal_fd(context.v.context.async_fd);
}

void Fabric::collect_events() {
    std::lock_guard guard(objects_mutex);
    auto deliver_bits = [this](ibv_context* context, std::atomic<uint32_t>& bits, void* object) {
        uint32_t events = bits.load(std::memory_order_relaxed) != 0 ? bits.exchange(0) : 0;
        for (int type = 0; events != 0; ++type, events >>= 1) {
            if ((events & 1) != 0) {
                deliver_async(*Context::of(context), ibv_event_type(type), object);
            }
        }
    };
    for (Cq* cq : all_cqs) {
        deliver_bits(cq->verbs.context, cq->record->events, cq);
        uint32_t notifications = cq->record->notifications.exchange(0);
        while (notifications-- > 0) deliver_cq_event(*cq);
    }
    for (Qp* qp : all_qps) deliver_bits(qp->base.context, qp->record->events, qp);
    for (Srq* srq : all_srqs) deliver_bits(srq->verbs.context, srq->record->events, srq);
}

}  // namespace softhca

using namespace softhca;

SOFTHCA_API ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
    const int fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
    if (fd < 0) return nullptr;
    auto* channel = new CompletionChannel;
    channel->verbs.context = context;
    channel->verbs.fd = fd;
    return &channel->verbs;
}

SOFTHCA_API int ibv_destroy_comp_channel(ibv_comp_channel* handle) {
    if (handle->refcnt != 0) return EBUSY;
    close(handle->fd);
    delete CompletionChannel::of(handle);
    return 0;
}

SOFTHCA_API int ibv_get_cq_event(ibv_comp_channel* handle, ibv_cq** cq, void** cq_context) {
    CompletionChannel& channel = *CompletionChannel::of(handle);
    for (;;) {
        if (!consume_fd(handle->fd)) return -1;
        std::lock_guard guard(channel.mutex);
        if (channel.events.empty()) continue;
        Cq* source = channel.events.front();
        channel.events.pop_front();
        ++source->comp_events;
        *cq = ibv_cq_ex_to_cq(&source->verbs);
        *cq_context = source->verbs.cq_context;
        return 0;
    }
}

SOFTHCA_API void ibv_ack_cq_events(ibv_cq* cq, unsigned count) {
    count_ack(cq->mutex, cq->cond, cq->comp_events_completed, count);
}

SOFTHCA_API int ibv_get_async_event(ibv_context* handle, ibv_async_event* event) {
    Context& context = *Context::of(handle);
    for (;;) {
        if (!consume_fd(handle->async_fd)) return -1;
        std::lock_guard guard(context.events_mutex);
        if (context.events.empty()) continue;
        const AsyncEvent next = context.events.front();
        context.events.pop_front();
        event->event_type = next.type;
        if (is_cq_event(next.type)) {
            Cq* cq = static_cast<Cq*>(next.object);
            ++cq->async_events;
            event->element.cq = ibv_cq_ex_to_cq(&cq->verbs);
        } else if (is_srq_event(next.type)) {
            Srq* srq = static_cast<Srq*>(next.object);
            ++srq->async_events;
            event->element.srq = &srq->verbs;
        } else if (is_qp_event(next.type)) {
            Qp* qp = static_cast<Qp*>(next.object);
            ++qp->async_events;
            event->element.qp = &qp->base;
        } else {
            event->element.port_num = next.port;
        }
        return 0;
    }
}

SOFTHCA_API void ibv_ack_async_event(ibv_async_event* event) {
    if (is_cq_event(event->event_type)) {
        ibv_cq* cq = event->element.cq;
        count_ack(cq->mutex, cq->cond, cq->async_events_completed, 1);
    } else if (is_srq_event(event->event_type)) {
        ibv_srq* srq = event->element.srq;
        count_ack(srq->mutex, srq->cond, srq->events_completed, 1);
    } else if (is_qp_event(event->event_type)) {
        ibv_qp* qp = event->element.qp;
        count_ack(qp->mutex, qp->cond, qp->events_completed, 1);
    }
}
