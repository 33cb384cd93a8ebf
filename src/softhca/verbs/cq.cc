// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "softhca/adapter/responder.h"
#include "softhca/verbs/verbs_ops.h"

namespace softhca {
namespace {

constexpr uint32_t kCarriedBytesPerEntry = 256;
constexpr uint32_t kMinPayloadRing = 64 * 1024;
constexpr uint32_t kMaxPayloadRing = 4 * 1024 * 1024;

// The slot of a polled completion is the program's again.
void retire(Fabric& fabric, const Cqe& cqe) {
    Qp* qp = fabric.qps.get(fabric.segment.index_of(cqe.qpn));
    if (qp == nullptr) return;
    if (!cqe.is_recv) {
        qp->sq_head.store(cqe.wqe_index + 1, std::memory_order_release);
    } else if (qp->base.srq != nullptr) {
        Srq::of(qp->base.srq)->outstanding.fetch_sub(1, std::memory_order_relaxed);
    } else {
        qp->rq_outstanding.fetch_sub(1, std::memory_order_relaxed);
    }
}

// Puts carried payload where the receive wanted it. With the CQ's lock held.
void scatter(Fabric& fabric, const CqRecord& cq, const Cqe& cqe) {
    const char* payload = fabric.segment.at<char>(cq.payload_ring) + cqe.payload;
    const auto* sges = reinterpret_cast<const RecvSge*>(payload);
    const char* data = payload + cqe.num_sge * sizeof(RecvSge);
    for (int i = 0; i < cqe.num_sge; ++i) {
        std::memcpy(reinterpret_cast<void*>(sges[i].addr), data, sges[i].length);
        data += sges[i].length;
    }
}

// @return how many entries were taken.
template <class Consume>
int take(Cq& cq, int num, Consume&& consume) {
    CqRecord& record = *cq.record;
    Fabric& fabric = *cq.fabric;
    if (record.head.load(std::memory_order_relaxed) ==
        record.tail.load(std::memory_order_acquire)) {
        return 0;
    }
    lock_cq(fabric, record);
    const Cqe* ring = fabric.segment.at<Cqe>(record.ring);
    uint32_t head = record.head.load(std::memory_order_relaxed);
    const uint32_t tail = record.tail.load(std::memory_order_relaxed);
    int taken = 0;
    for (; taken < num && head != tail; ++taken, ++head) {
        const Cqe& cqe = ring[head & record.ring_mask];
        if (cqe.num_sge != 0) scatter(fabric, record, cqe);
        record.payload_head = cqe.payload_end;
        retire(fabric, cqe);
        consume(cqe);
        record.head.store(head + 1, std::memory_order_release);
    }
    record.lock.unlock();
    return taken;
}

ibv_wc_opcode wc_opcode(const Cqe& cqe) {
    return ibv_wc_opcode(cqe.is_recv ? IBV_WC_RECV + cqe.opcode : cqe.opcode);
}

void fill(ibv_wc& wc, const Cqe& cqe) {
    wc.wr_id = cqe.wr_id;
    wc.status = ibv_wc_status(cqe.status);
    wc.opcode = wc_opcode(cqe);
    wc.vendor_err = cqe.vendor_err;
    wc.byte_len = cqe.byte_len;
    wc.imm_data = cqe.imm;
    wc.qp_num = cqe.qpn;
    wc.src_qp = cqe.src_qp;
    wc.wc_flags = cqe.wc_flags;
    wc.pkey_index = 0;
    wc.slid = cqe.slid;
    wc.sl = cqe.sl;
    wc.dlid_path_bits = 0;
}

uint64_t clock_ns(clockid_t clock) {
    timespec t{};
    clock_gettime(clock, &t);
    return uint64_t(t.tv_sec) * 1000000000 + uint64_t(t.tv_nsec);
}

int next_poll(ibv_cq_ex* handle) {
    Cq& cq = *Cq::of(handle);
    if (take(cq, 1, [&](const Cqe& cqe) { cq.current = cqe; }) == 0) return ENOENT;
    handle->status = ibv_wc_status(cq.current.status);
    handle->wr_id = cq.current.wr_id;
    return 0;
}

int start_poll(ibv_cq_ex* handle, ibv_poll_cq_attr* attr) {
    if (attr != nullptr && attr->comp_mask != 0) return EINVAL;
    Cq& cq = *Cq::of(handle);
    cq.fabric->before_poll(cq);
    const int result = next_poll(handle);
    if (result != 0) cq.fabric->after_poll(cq, 0);
    return result;
}

void install_readers(ibv_cq_ex& ex) {
    ex.start_poll = start_poll;
    ex.next_poll = next_poll;
    ex.end_poll = [](ibv_cq_ex* cq) { Cq::of(cq)->fabric->after_poll(*Cq::of(cq), 1); };
    ex.read_opcode = [](ibv_cq_ex* cq) { return wc_opcode(Cq::of(cq)->current); };
    ex.read_vendor_err = [](ibv_cq_ex* cq) { return Cq::of(cq)->current.vendor_err; };
    ex.read_byte_len = [](ibv_cq_ex* cq) { return Cq::of(cq)->current.byte_len; };
    ex.read_imm_data = [](ibv_cq_ex* cq) -> __be32 { return Cq::of(cq)->current.imm; };
    ex.read_qp_num = [](ibv_cq_ex* cq) { return Cq::of(cq)->current.qpn; };
    ex.read_src_qp = [](ibv_cq_ex* cq) { return Cq::of(cq)->current.src_qp; };
    ex.read_wc_flags = [](ibv_cq_ex* cq) -> unsigned { return Cq::of(cq)->current.wc_flags; };
    ex.read_slid = [](ibv_cq_ex* cq) -> uint32_t { return Cq::of(cq)->current.slid; };
    ex.read_sl = [](ibv_cq_ex* cq) { return Cq::of(cq)->current.sl; };
    ex.read_dlid_path_bits = [](ibv_cq_ex*) -> uint8_t { return 0; };
    ex.read_completion_ts = [](ibv_cq_ex* cq) { return Cq::of(cq)->fabric->now_ns(); };
    ex.read_completion_wallclock_ns = [](ibv_cq_ex*) { return clock_ns(CLOCK_REALTIME); };
    ex.read_cvlan = [](ibv_cq_ex*) -> uint16_t { return 0; };
    ex.read_flow_tag = [](ibv_cq_ex*) -> uint32_t { return 0; };
    ex.read_tm_info = [](ibv_cq_ex*, ibv_wc_tm_info* info) { *info = {}; };
}

bool make_rings(Cq& cq, uint32_t cqe) {
    Fabric& fabric = *cq.fabric;
    CqRecord& record = *cq.record;
    record.ring_mask = std::bit_ceil(cqe + 1) - 1;
    record.capacity = record.ring_mask;
    record.ring_bytes = (uint64_t{record.ring_mask} + 1) * sizeof(Cqe);
    record.ring = fabric.segment.allocate_block(record.ring_bytes);
    if (record.ring == 0) return false;
    if (fabric.carries_payload()) {
        const uint32_t bytes = std::clamp(std::bit_ceil(record.capacity) * kCarriedBytesPerEntry,
                                          kMinPayloadRing, kMaxPayloadRing);
        record.payload_ring = fabric.segment.allocate_block(bytes);
        if (record.payload_ring == 0) return false;
        record.payload_mask = bytes - 1;
    }
    return true;
}

void reset(CqRecord& record, uint16_t lid, bool ignore_overrun) {
    record.lid = lid;
    record.ring = record.payload_ring = 0;
    record.payload_mask = 0;
    record.overrun = false;
    record.ignore_overrun = ignore_overrun;
    record.armed = Armed::kNo;
    record.notifications = 0;
    record.events = 0;
    record.head = record.tail = 0;
    record.payload_head = record.payload_tail = 0;
}

void release(Cq& cq) {
    Fabric& fabric = *cq.fabric;
    CqRecord& record = *cq.record;
    fabric.segment.lock(record.lock);
    const uint64_t ring = record.ring;
    const uint64_t payload = record.payload_ring;
    record.ring = record.payload_ring = 0;
    Segment::release(record);
    record.lock.unlock();
    fabric.segment.free_block(ring, record.ring_bytes);
    fabric.segment.free_block(payload, uint64_t{record.payload_mask} + 1);
}

Cq* create(Context& context, uint32_t cqe, void* cq_context, ibv_comp_channel* channel,
           int comp_vector, uint32_t flags) {
    Fabric& fabric = *context.fabric;
    if (cqe == 0 || cqe > fabric.limits.max_cqe || comp_vector < 0 ||
        comp_vector >= context.v.context.num_comp_vectors) {
        return refuse(EINVAL);
    }
    if (const int error = check_queue_memory("MLX_CQ_ALLOC_TYPE"); error != 0) return refuse(error);
    auto cq = std::make_unique<Cq>();
    cq->fabric = &fabric;
    std::lock_guard guard(fabric.objects_mutex);
    if (fabric.all_cqs.size() >= fabric.limits.max_cq || fabric.faults.fail_create() ||
        (cq->record = fabric.segment.allocate_cq()) == nullptr) {
        return refuse(ENOMEM);
    }
    reset(*cq->record, context.device.lid, (flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN) != 0);
    if (!make_rings(*cq, cqe)) {
        release(*cq);
        return refuse(ENOMEM);
    }
    ibv_cq_ex& ex = cq->verbs;
    ex.context = context.verbs();
    ex.channel = channel;
    ex.cq_context = cq_context;
    ex.handle = cq->record->number;
    ex.cqe = int(cq->record->capacity);
    pthread_mutex_init(&ex.mutex, nullptr);
    pthread_cond_init(&ex.cond, nullptr);
    install_readers(ex);
    if (channel != nullptr) ++channel->refcnt;
    fabric.cqs.set(fabric.segment.index_of(cq->record->number), cq.get());
    fabric.all_cqs.push_back(cq.get());
    return cq.release();
}

}  // namespace

int poll_cq(ibv_cq* handle, int num, ibv_wc* wc) {
    Cq& cq = *Cq::of(handle);
    cq.fabric->before_poll(cq);
    const int taken = take(cq, num, [&](const Cqe& cqe) { fill(*wc++, cqe); });
    cq.fabric->after_poll(cq, taken);
    if (taken == 0 && cq.record->overrun.load(std::memory_order_relaxed)) return -1;
    return taken;
}

int req_notify_cq(ibv_cq* handle, int solicited_only) {
    Cq& cq = *Cq::of(handle);
    cq.record->armed.store(solicited_only != 0 ? Armed::kSolicited : Armed::kAny,
                           std::memory_order_release);
    return 0;
}

void clean_cq(Cq& cq, uint32_t qpn) {
    CqRecord& record = *cq.record;
    lock_cq(*cq.fabric, record);
    Cqe* ring = cq.fabric->segment.at<Cqe>(record.ring);
    const uint32_t tail = record.tail.load(std::memory_order_relaxed);
    uint32_t kept = record.head.load(std::memory_order_relaxed);
    for (uint32_t i = kept; i != tail; ++i) {
        const Cqe& cqe = ring[i & record.ring_mask];
        if (cqe.qpn == qpn) {
            retire(*cq.fabric, cqe);
        } else {
            ring[kept++ & record.ring_mask] = cqe;
        }
    }
    record.tail.store(kept, std::memory_order_release);
    record.lock.unlock();
}

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr) {
    constexpr uint32_t kMask = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
    constexpr uint64_t kFlags = uint64_t{IBV_WC_STANDARD_FLAGS} |
                                IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                                IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK |
                                IBV_WC_EX_WITH_CVLAN | IBV_WC_EX_WITH_FLOW_TAG;
    if ((attr->comp_mask & ~kMask) != 0 || (attr->wc_flags & ~kFlags) != 0)
        return refuse(EOPNOTSUPP);
    const uint32_t flags = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 ? attr->flags : 0;
    Cq* cq = create(*Context::of(context), attr->cqe, attr->cq_context, attr->channel,
                    int(attr->comp_vector), flags);
    return cq != nullptr ? &cq->verbs : nullptr;
}

int modify_cq(ibv_cq*, ibv_modify_cq_attr* attr) {
    // Moderation is a hint; every event may come at once.
    return (attr->attr_mask & ~uint32_t(IBV_CQ_ATTR_MODERATE)) != 0 ? EINVAL : 0;
}

}  // namespace softhca

using namespace softhca;

SOFTHCA_API ibv_cq* ibv_create_cq(ibv_context* context, int cqe, void* cq_context,
                                  ibv_comp_channel* channel, int comp_vector) {
    if (const int error = check_cqe_size_variable(); error != 0) return refuse(error);
    Cq* cq = create(*Context::of(context), cqe < 0 ? 0 : uint32_t(cqe), cq_context, channel,
                    comp_vector, 0);
    return cq != nullptr ? ibv_cq_ex_to_cq(&cq->verbs) : nullptr;
}

SOFTHCA_API int ibv_resize_cq(ibv_cq* handle, int cqe) {
    Cq& cq = *Cq::of(handle);
    Fabric& fabric = *cq.fabric;
    CqRecord& record = *cq.record;
    if (cqe <= 0 || uint32_t(cqe) > fabric.limits.max_cqe) return EINVAL;
    const uint32_t mask = std::bit_ceil(uint32_t(cqe) + 1) - 1;
    const uint64_t bytes = (uint64_t{mask} + 1) * sizeof(Cqe);
    const uint64_t block = fabric.segment.allocate_block(bytes);
    if (block == 0) return ENOMEM;
    lock_cq(fabric, record);
    const uint32_t head = record.head.load(std::memory_order_relaxed);
    const uint32_t tail = record.tail.load(std::memory_order_relaxed);
    if (tail - head > uint32_t(cqe)) {
        record.lock.unlock();
        fabric.segment.free_block(block, bytes);
        return EINVAL;
    }
    const Cqe* from = fabric.segment.at<Cqe>(record.ring);
    Cqe* to = fabric.segment.at<Cqe>(block);
    for (uint32_t i = head; i != tail; ++i) to[i & mask] = from[i & record.ring_mask];
    const uint64_t old = record.ring;
    const uint64_t old_bytes = record.ring_bytes;
    record.ring = block;
    record.ring_bytes = bytes;
    record.ring_mask = record.capacity = mask;
    record.lock.unlock();
    fabric.segment.free_block(old, old_bytes);
    cq.verbs.cqe = int(mask);
    return 0;
}

SOFTHCA_API int ibv_destroy_cq(ibv_cq* handle) {
    std::unique_ptr<Cq> cq(Cq::of(handle));
    Fabric& fabric = *cq->fabric;
    {
        std::lock_guard guard(fabric.objects_mutex);
        if (cq->users.load() != 0) {
            static_cast<void>(cq.release());
            return EBUSY;
        }
        fabric.cqs.set(fabric.segment.index_of(cq->record->number), nullptr);
        std::erase(fabric.all_cqs, cq.get());
    }
    drop_comp_events(*cq);
    drop_async_events(*Context::of(handle->context), cq.get());
    await_acks(cq->verbs.mutex, cq->verbs.cond, cq->verbs.comp_events_completed, cq->comp_events);
    await_acks(cq->verbs.mutex, cq->verbs.cond, cq->verbs.async_events_completed, cq->async_events);
    if (cq->verbs.channel != nullptr) --cq->verbs.channel->refcnt;
    release(*cq);
    pthread_mutex_destroy(&cq->verbs.mutex);
    pthread_cond_destroy(&cq->verbs.cond);
    return 0;
}
