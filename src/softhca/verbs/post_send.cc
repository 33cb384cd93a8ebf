// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <cstring>

#include "softhca/verbs/send_queue.h"

namespace softhca {
namespace {

int fill_data(Qp& qp, Wqe& wqe, const ibv_send_wr& wr) {
    char* data = qp.wqe_data(qp.build_tail - 1);
    if ((wr.send_flags & IBV_SEND_INLINE) != 0) {
        uint64_t used = 0;
        for (int i = 0; i < wr.num_sge; ++i) {
            const ibv_sge& sge = wr.sg_list[i];
            if (used + sge.length > qp.cap.max_inline_data) return ENOMEM;
            std::memcpy(data + used, reinterpret_cast<const void*>(sge.addr), sge.length);
            used += sge.length;
        }
        wqe.inlined = true;
        wqe.length = uint32_t(used);
        return 0;
    }
    if (wr.num_sge < 0 || uint32_t(wr.num_sge) > qp.cap.max_send_sge) return EINVAL;
    if (wr.num_sge > 0) std::memcpy(data, wr.sg_list, wr.num_sge * sizeof(ibv_sge));
    wqe.num_sge = uint8_t(wr.num_sge);
    for (int i = 0; i < wr.num_sge; ++i) wqe.length += wr.sg_list[i].length;
    return 0;
}

int fill(Qp& qp, Wqe& wqe, const ibv_send_wr& wr) {
    wqe.wr_id = wr.wr_id;
    wqe.flags = uint8_t(wr.send_flags);
    wqe.imm = wr.imm_data;
    switch (wr.opcode) {
        case IBV_WR_RDMA_WRITE:
        case IBV_WR_RDMA_WRITE_WITH_IMM:
        case IBV_WR_RDMA_READ:
            wqe.remote_addr = wr.wr.rdma.remote_addr;
            wqe.rkey = wr.wr.rdma.rkey;
            break;
        case IBV_WR_ATOMIC_CMP_AND_SWP:
        case IBV_WR_ATOMIC_FETCH_AND_ADD:
            wqe.remote_addr = wr.wr.atomic.remote_addr;
            wqe.rkey = wr.wr.atomic.rkey;
            wqe.compare_add = wr.wr.atomic.compare_add;
            wqe.swap = wr.wr.atomic.swap;
            break;
        case IBV_WR_SEND:
        case IBV_WR_SEND_WITH_IMM:
        case IBV_WR_SEND_WITH_INV:
            break;
        case IBV_WR_BIND_MW:
            if (wr.bind_mw.mw->type != IBV_MW_TYPE_2) return EINVAL;
            set_bind(wqe, *wr.bind_mw.mw, wr.bind_mw.rkey, wr.bind_mw.bind_info);
            return 0;
        case IBV_WR_LOCAL_INV:
            wqe.rkey = wr.invalidate_rkey;
            return 0;
        default:
            return EINVAL;
    }
    if (qp.kind == QpKind::kUd) {
        if (wr.wr.ud.ah == nullptr) return EINVAL;
        set_address(wqe, *Ah::of(wr.wr.ud.ah));
        wqe.dest_qpn = wr.wr.ud.remote_qpn;
        // The high bit asks for the queue's own key.
        wqe.qkey = (wr.wr.ud.remote_qkey >> 31) != 0 ? qp.record->qkey : wr.wr.ud.remote_qkey;
    }
    return fill_data(qp, wqe, wr);
}

}  // namespace

void set_address(Wqe& wqe, const Ah& ah) {
    wqe.dest_lid = ah.lid;
    wqe.sl = ah.attr.sl;
    wqe.has_grh = ah.attr.is_global != 0;
}

int begin_batch(Qp& qp) {
    qp.sq_lock.lock();
    qp.build_tail = qp.sq_tail;
    qp.build = nullptr;
    qp.build_error = 0;
    const QpState state = qp.record->state.load(std::memory_order_acquire);
    if (state == QpState::kReset || state == QpState::kInit || state == QpState::kRtr ||
        qp.kind == QpKind::kDct) {
        qp.build_error = EINVAL;
    }
    return qp.build_error;
}

void end_batch(Qp& qp) {
    const uint32_t posted = qp.build_tail - qp.sq_tail;
    qp.sq_tail = qp.build_tail;
    if (posted != 0) qp.fabric->doorbell(qp, posted);
    qp.sq_lock.unlock();
}

Wqe* next_slot(Qp& qp, uint8_t opcode) {
    if (qp.build_error != 0) return nullptr;
    if (qp.build_tail - qp.sq_head.load(std::memory_order_acquire) >= qp.cap.max_send_wr ||
        qp.fabric->faults.fail_post()) {
        qp.build_error = ENOMEM;
        return nullptr;
    }
    Wqe& wqe = qp.wqe(qp.build_tail++);
    wqe = Wqe{};
    wqe.opcode = opcode;
    return &wqe;
}

int post_send(ibv_qp* handle, ibv_send_wr* wr, ibv_send_wr** bad) {
    Qp& qp = *Qp::of(handle);
    begin_batch(qp);
    for (; wr != nullptr; wr = wr->next) {
        Wqe* wqe = next_slot(qp, uint8_t(wr->opcode));
        if (wqe == nullptr) break;
        qp.build_error = fill(qp, *wqe, *wr);
        if (qp.build_error != 0) {
            --qp.build_tail;
            break;
        }
    }
    const int error = qp.build_error;
    if (error != 0 && bad != nullptr) *bad = wr;
    end_batch(qp);
    return error;
}

}  // namespace softhca
