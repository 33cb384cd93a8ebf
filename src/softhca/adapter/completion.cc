// SPDX-License-Identifier: BSD-3-Clause
#include <cstring>

#include "softhca/adapter/responder.h"

namespace softhca {
namespace {

// A dead producer may have advanced the payload ring for an entry that it never published.
void repair_cq(Fabric& fabric, CqRecord& cq) {
    const uint32_t tail = cq.tail.load(std::memory_order_relaxed);
    if (tail == cq.head.load(std::memory_order_relaxed)) {
        cq.payload_tail = cq.payload_head;
    } else {
        cq.payload_tail = fabric.segment.at<Cqe>(cq.ring)[(tail - 1) & cq.ring_mask].payload_end;
    }
}

// A dead consumer pushes its completion before it moves the head: if that completion is there, the
// entry at the head is used up.
void repair_rq(Fabric& fabric, RqRecord& rq) {
    CqRecord* cq = fabric.segment.find_cq(rq.pop_cq);
    if (cq == nullptr) return;
    const uint32_t head = rq.head.load(std::memory_order_relaxed);
    if (head == rq.tail.load(std::memory_order_relaxed)) return;
    lock_cq(fabric, *cq);
    const Cqe* ring = fabric.segment.at<Cqe>(cq->ring);
    const uint32_t tail = cq->tail.load(std::memory_order_relaxed);
    const uint32_t number = rq.number.load(std::memory_order_relaxed);
    // Others may have appended behind it since, but not a whole ring.
    for (uint32_t back = 1; back <= cq->ring_mask + 1 && back <= tail; ++back) {
        const Cqe& cqe = ring[(tail - back) & cq->ring_mask];
        if (cqe.is_recv && cqe.rq == number && cqe.rq_index == head) {
            rq.head.store(head + 1, std::memory_order_release);
            break;
        }
    }
    cq->lock.unlock();
}

// Room in the payload ring for `bytes` in one piece. @return false if there is none.
bool place_payload(CqRecord& cq, uint32_t bytes, uint32_t* offset, uint32_t* end) {
    const uint32_t size = cq.payload_mask + 1;
    uint32_t start = cq.payload_tail;
    if ((start & cq.payload_mask) + bytes > size) start = (start | cq.payload_mask) + 1;
    if (start + bytes - cq.payload_head > size) return false;
    *offset = start & cq.payload_mask;
    *end = start + bytes;
    return true;
}

void write_payload(char* to, const Carried& carried) {
    std::memcpy(to, carried.sges, carried.num_sge * sizeof(RecvSge));
    to += carried.num_sge * sizeof(RecvSge);
    for (int i = 0; i < carried.num_data; ++i) {
        std::memcpy(to, carried.data[i].iov_base, carried.data[i].iov_len);
        to += carried.data[i].iov_len;
    }
}

}  // namespace

void lock_cq(Fabric& fabric, CqRecord& cq) {
    if (fabric.segment.lock(cq.lock)) repair_cq(fabric, cq);
}

void lock_rq(Fabric& fabric, RqRecord& rq) {
    if (fabric.segment.lock(rq.lock)) repair_rq(fabric, rq);
}

Push push_completion(Fabric& fabric, uint32_t number, const Cqe& completion, bool solicited,
                     const Carried* carried) {
    CqRecord* cq = fabric.segment.find_cq(number);
    if (cq == nullptr) return Push::kFailed;
    lock_cq(fabric, *cq);
    const uint32_t tail = cq->tail.load(std::memory_order_relaxed);
    if (cq->number.load(std::memory_order_relaxed) != number ||
        cq->overrun.load(std::memory_order_relaxed)) {
        cq->lock.unlock();
        return Push::kFailed;
    }
    if (tail - cq->head.load(std::memory_order_acquire) >= cq->capacity) {
        const bool error = !cq->ignore_overrun;
        if (error) {
            cq->overrun.store(true, std::memory_order_release);
            cq->events.fetch_or(1u << IBV_EVENT_CQ_ERR);
        }
        const Owner owner = cq->owner;
        const uint16_t lid = cq->lid;
        cq->lock.unlock();
        if (error) fabric.raised_events(owner, lid);
        return Push::kFailed;
    }
    Cqe cqe = completion;
    cqe.payload_end = cq->payload_tail;
    if (carried != nullptr) {
        const uint32_t bytes =
            (carried->num_sge * uint32_t(sizeof(RecvSge)) + carried->bytes + 15) & ~15u;
        if (!place_payload(*cq, bytes, &cqe.payload, &cqe.payload_end)) {
            cq->lock.unlock();
            return Push::kNoRoom;
        }
        write_payload(fabric.segment.at<char>(cq->payload_ring) + cqe.payload, *carried);
        cqe.num_sge = uint8_t(carried->num_sge);
        cqe.payload_bytes = carried->bytes;
        cq->payload_tail = cqe.payload_end;
    }
    fabric.segment.at<Cqe>(cq->ring)[tail & cq->ring_mask] = cqe;
    cq->tail.store(tail + 1, std::memory_order_release);
    bool event = false;
    const Armed armed = cq->armed.load(std::memory_order_relaxed);
    if (armed == Armed::kAny ||
        (armed == Armed::kSolicited && (solicited || completion.status != IBV_WC_SUCCESS))) {
        cq->armed.store(Armed::kNo, std::memory_order_relaxed);
        cq->notifications.fetch_add(1, std::memory_order_release);
        event = true;
    }
    cq->lock.unlock();
    fabric.cq_activity(*cq, event);
    return Push::kDone;
}

}  // namespace softhca
