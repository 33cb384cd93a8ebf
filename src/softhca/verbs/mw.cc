// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>

#include "softhca/adapter/requester.h"
#include "softhca/verbs/verbs_ops.h"

// Memory windows. A window is a record among those of regions; bound, it has a key, and leads to a
// part of a region. Type 1 belongs to a protection domain, type 2 (2B) to the QP that bound it.
namespace softhca {
namespace {

constexpr uint32_t kRemote =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr uint32_t kChange = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

bool unbind(Fabric& fabric, MrRecord& window, uint32_t key) {
    if (key == 0 || !window.key.compare_exchange_strong(key, 0)) return false;
    fabric.drain_region(key);
    fabric.segment.mr_at(window.parent)->windows.fetch_sub(1);
    return true;
}

// Whether the range and the rights that `wqe` asks for are the region's to give.
bool may_bind(const Qp& qp, const MrRecord& region, const Wqe& wqe) {
    const uint64_t length = wqe.compare_add;
    const uint64_t from = wqe.remote_addr - region.iova;
    return !region.window && region.key == wqe.qkey && region.owner == qp.record->owner &&
           region.pd == qp.pd && (region.access & IBV_ACCESS_MW_BIND) != 0 &&
           ((wqe.swap & kChange) == 0 || (region.access & IBV_ACCESS_LOCAL_WRITE) != 0) &&
           wqe.remote_addr >= region.iova && length <= region.length &&
           from <= region.length - length;
}

bool bind(Qp& qp, const Wqe& wqe) {
    Fabric& fabric = *qp.fabric;
    MrRecord* window = fabric.segment.mr_of_key(wqe.rkey);
    if (window == nullptr || !window->window || window->owner != qp.record->owner ||
        window->pd != qp.pd) {
        return false;
    }
    const bool type_2 = wqe.dest_qpn == IBV_MW_TYPE_2;
    const uint32_t old = window->key;
    if (type_2 && old != 0) return false;
    if (wqe.compare_add == 0) {
        unbind(fabric, *window, old);
        return true;
    }
    MrRecord* region = fabric.segment.mr_of_key(wqe.qkey);
    if (region == nullptr || !may_bind(qp, *region, wqe)) return false;
    unbind(fabric, *window, old);
    region->windows.fetch_add(1);
    window->parent = fabric.segment.mr_index(*region);
    window->window_qpn = type_2 ? qp.record->number.load() : 0;
    window->access = uint32_t(wqe.swap) & kRemote;
    window->addr = region->addr + (wqe.remote_addr - region->iova);
    window->iova = (wqe.swap & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : wqe.remote_addr;
    window->length = wqe.compare_add;
    window->key.store(wqe.rkey, std::memory_order_release);
    return true;
}

}  // namespace

bool is_local(uint8_t opcode) {
    return opcode == IBV_WR_BIND_MW || opcode == IBV_WR_LOCAL_INV;
}

ibv_wc_status execute_local(Qp& qp, const Wqe& wqe) {
    if (qp.kind != QpKind::kRc && qp.kind != QpKind::kUc) return IBV_WC_LOC_QP_OP_ERR;
    const bool done =
        wqe.opcode == IBV_WR_BIND_MW
            ? bind(qp, wqe)
            : invalidate(*qp.fabric, wqe.rkey, qp.record->number, qp.pd, qp.record->owner);
    return done ? IBV_WC_SUCCESS : IBV_WC_MW_BIND_ERR;
}

bool invalidate(Fabric& fabric, uint32_t key, uint32_t qpn, uint32_t pd, Owner owner) {
    MrRecord* window = fabric.segment.mr_of_key(key);
    return window != nullptr && window->window && window->window_qpn == qpn && window->pd == pd &&
           window->owner == owner && unbind(fabric, *window, key);
}

void set_bind(Wqe& wqe, const ibv_mw& mw, uint32_t rkey, const ibv_mw_bind_info& info) {
    wqe.rkey = rkey;
    wqe.dest_qpn = mw.type;
    wqe.qkey = info.mr != nullptr ? info.mr->lkey : 0;
    wqe.remote_addr = info.addr;
    wqe.compare_add = info.length;
    wqe.swap = info.mw_access_flags;
}

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) {
    Fabric& fabric = *Context::of(pd->context)->fabric;
    if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) return refuse(EINVAL);
    MrRecord* record = nullptr;
    if (fabric.mr_count.fetch_add(1) >= fabric.limits.max_mr || fabric.faults.fail_create() ||
        (record = fabric.segment.allocate_mr()) == nullptr) {
        --fabric.mr_count;
        return refuse(ENOMEM);
    }
    record->pd = Pd::of(pd)->real()->number;
    record->window = true;
    record->window_qpn = 0;
    record->windows = 0;
    record->key_byte = uint8_t(record->key_byte + 1);
    const uint32_t index = fabric.segment.mr_index(*record);
    ++Pd::of(pd)->users;
    return new ibv_mw{pd->context, pd, (index << 8) | record->key_byte, index, type};
}

int dealloc_mw(ibv_mw* mw) {
    Fabric& fabric = *Context::of(mw->context)->fabric;
    MrRecord& record = *fabric.segment.mr_at(mw->handle);
    const uint32_t key = record.key;
    unbind(fabric, record, key);
    // The next user of the record starts behind the keys that were given out.
    record.key_byte = uint8_t(key != 0 ? key : mw->rkey);
    Segment::release(record);
    --fabric.mr_count;
    --Pd::of(mw->pd)->users;
    delete mw;
    return 0;
}

int bind_mw(ibv_qp* handle, ibv_mw* mw, ibv_mw_bind* bind) {
    Qp& qp = *Qp::of(handle);
    const uint32_t rkey = ibv_inc_rkey(mw->rkey);
    begin_batch(qp);
    if (Wqe* wqe = next_slot(qp, IBV_WR_BIND_MW); wqe != nullptr) {
        wqe->wr_id = bind->wr_id;
        wqe->flags = uint8_t(bind->send_flags);
        set_bind(*wqe, *mw, rkey, bind->bind_info);
    }
    const int error = qp.build_error;
    if (error == 0) mw->rkey = rkey;
    end_batch(qp);
    return error;
}

}  // namespace softhca
