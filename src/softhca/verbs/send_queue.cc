// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <cstring>

#include "softhca/verbs/verbs_ops.h"

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

int fill_entry(Qp& qp, Wqe& wqe, const ibv_send_wr& wr) {
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
        qp.build_error = fill_entry(qp, *wqe, *wr);
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

// --- The ibv_wr_* builders. An error in a batch is kept until wr_complete, which then posts
// nothing.

namespace {

Wqe* add(ibv_qp_ex* handle, uint8_t opcode) {
    Qp& qp = *Qp::of(handle);
    qp.build = next_slot(qp, opcode);
    if (qp.build != nullptr) {
        qp.build->wr_id = handle->wr_id;
        qp.build->flags = uint8_t(handle->wr_flags);
    }
    return qp.build;
}

void add_rdma(ibv_qp_ex* qp, uint8_t opcode, uint32_t rkey, uint64_t remote_addr, uint32_t imm) {
    Wqe* wqe = add(qp, opcode);
    if (wqe == nullptr) return;
    wqe->rkey = rkey;
    wqe->remote_addr = remote_addr;
    wqe->imm = imm;
}

void add_send(ibv_qp_ex* qp, uint8_t opcode, uint32_t imm) {
    Wqe* wqe = add(qp, opcode);
    if (wqe != nullptr) wqe->imm = imm;
}

void add_atomic(ibv_qp_ex* qp, uint8_t opcode, uint32_t rkey, uint64_t addr, uint64_t compare_add,
                uint64_t swap) {
    Wqe* wqe = add(qp, opcode);
    if (wqe == nullptr) return;
    wqe->rkey = rkey;
    wqe->remote_addr = addr;
    wqe->compare_add = compare_add;
    wqe->swap = swap;
}

void wr_unsupported(Qp& qp) {
    qp.build = nullptr;
    if (qp.build_error == 0) qp.build_error = EOPNOTSUPP;
}

void wr_set_ud_addr(ibv_qp_ex* handle, ibv_ah* ah, uint32_t qpn, uint32_t qkey) {
    Qp& qp = *Qp::of(handle);
    if (qp.build == nullptr) return;
    set_address(*qp.build, *Ah::of(ah));
    qp.build->dest_qpn = qpn;
    qp.build->qkey = (qkey >> 31) != 0 ? qp.record->qkey : qkey;
}

void wr_set_dc_addr(mlx5dv_qp_ex* handle, ibv_ah* ah, uint32_t dctn, uint64_t key) {
    Qp& qp = *Qp::of(handle);
    if (qp.build == nullptr) return;
    set_address(*qp.build, *Ah::of(ah));
    qp.build->dest_qpn = dctn;
    qp.build->dc_key = key;
}

void wr_set_inline_data_list(ibv_qp_ex* handle, size_t num, const ibv_data_buf* list) {
    Qp& qp = *Qp::of(handle);
    if (qp.build == nullptr) return;
    char* data = qp.wqe_data(qp.build_tail - 1);
    uint64_t used = 0;
    for (size_t i = 0; i < num; ++i) {
        if (used + list[i].length > qp.cap.max_inline_data) {
            qp.build_error = ENOMEM;
            return;
        }
        if (list[i].length != 0) std::memcpy(data + used, list[i].addr, list[i].length);
        used += list[i].length;
    }
    qp.build->inlined = true;
    qp.build->length = uint32_t(used);
}

void wr_set_sge_list(ibv_qp_ex* handle, size_t num, const ibv_sge* list) {
    Qp& qp = *Qp::of(handle);
    if (qp.build == nullptr) return;
    if (num > qp.cap.max_send_sge) {
        qp.build_error = EINVAL;
        return;
    }
    if (num != 0) std::memcpy(qp.wqe_data(qp.build_tail - 1), list, num * sizeof(ibv_sge));
    qp.build->num_sge = uint8_t(num);
    qp.build->length = 0;
    for (size_t i = 0; i < num; ++i) qp.build->length += list[i].length;
}

int wr_complete(ibv_qp_ex* handle) {
    Qp& qp = *Qp::of(handle);
    const int error = qp.build_error;
    if (error != 0) qp.build_tail = qp.sq_tail;
    end_batch(qp);
    return error;
}

void wr_abort(ibv_qp_ex* handle) {
    Qp& qp = *Qp::of(handle);
    qp.build_tail = qp.sq_tail;
    end_batch(qp);
}

void install_verbs(ibv_qp_ex& ex) {
    ex.wr_start = [](ibv_qp_ex* qp) { begin_batch(*Qp::of(qp)); };
    ex.wr_complete = wr_complete;
    ex.wr_abort = wr_abort;
    ex.wr_send = [](ibv_qp_ex* qp) { add_send(qp, IBV_WR_SEND, 0); };
    ex.wr_send_imm = [](ibv_qp_ex* qp, __be32 imm) { add_send(qp, IBV_WR_SEND_WITH_IMM, imm); };
    ex.wr_send_inv = [](ibv_qp_ex* qp, uint32_t key) { add_send(qp, IBV_WR_SEND_WITH_INV, key); };
    ex.wr_rdma_write = [](ibv_qp_ex* qp, uint32_t rkey, uint64_t addr) {
        add_rdma(qp, IBV_WR_RDMA_WRITE, rkey, addr, 0);
    };
    ex.wr_rdma_write_imm = [](ibv_qp_ex* qp, uint32_t rkey, uint64_t addr, __be32 imm) {
        add_rdma(qp, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, addr, imm);
    };
    ex.wr_rdma_read = [](ibv_qp_ex* qp, uint32_t rkey, uint64_t addr) {
        add_rdma(qp, IBV_WR_RDMA_READ, rkey, addr, 0);
    };
    ex.wr_atomic_cmp_swp = [](ibv_qp_ex* qp, uint32_t rkey, uint64_t addr, uint64_t compare,
                              uint64_t swap) {
        add_atomic(qp, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, addr, compare, swap);
    };
    ex.wr_atomic_fetch_add = [](ibv_qp_ex* qp, uint32_t rkey, uint64_t addr, uint64_t value) {
        add_atomic(qp, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, addr, value, 0);
    };
    ex.wr_set_ud_addr = wr_set_ud_addr;
    ex.wr_set_xrc_srqn = [](ibv_qp_ex* qp, uint32_t) { wr_unsupported(*Qp::of(qp)); };
    ex.wr_set_inline_data = [](ibv_qp_ex* qp, void* addr, size_t length) {
        const ibv_data_buf buffer{addr, length};
        wr_set_inline_data_list(qp, 1, &buffer);
    };
    ex.wr_set_inline_data_list = wr_set_inline_data_list;
    ex.wr_set_sge = [](ibv_qp_ex* qp, uint32_t lkey, uint64_t addr, uint32_t length) {
        const ibv_sge sge{addr, length, lkey};
        wr_set_sge_list(qp, 1, &sge);
    };
    ex.wr_set_sge_list = wr_set_sge_list;
    ex.wr_bind_mw = [](ibv_qp_ex* qp, ibv_mw* mw, uint32_t rkey, const ibv_mw_bind_info* info) {
        if (Wqe* wqe = add(qp, IBV_WR_BIND_MW); wqe != nullptr) set_bind(*wqe, *mw, rkey, *info);
    };
    ex.wr_local_inv = [](ibv_qp_ex* qp, uint32_t key) {
        if (Wqe* wqe = add(qp, IBV_WR_LOCAL_INV); wqe != nullptr) wqe->rkey = key;
    };
    ex.wr_send_tso = [](ibv_qp_ex* qp, void*, uint16_t, uint16_t) { wr_unsupported(*Qp::of(qp)); };
    ex.wr_atomic_write = [](ibv_qp_ex* qp, uint32_t, uint64_t, const void*) {
        wr_unsupported(*Qp::of(qp));
    };
}

}  // namespace

void install_builders(Qp& qp) {
    install_verbs(qp.ex);
    qp.dv.wr_set_dc_addr = wr_set_dc_addr;
    qp.dv.wr_set_dc_addr_stream = [](mlx5dv_qp_ex* handle, ibv_ah* ah, uint32_t dctn, uint64_t key,
                                     uint16_t stream) {
        wr_set_dc_addr(handle, ah, dctn, key);
        if (Wqe* wqe = Qp::of(handle)->build; wqe != nullptr) wqe->stream = stream;
    };
    qp.dv.wr_mr_interleaved = [](mlx5dv_qp_ex* handle, mlx5dv_mkey*, uint32_t, uint32_t, uint16_t,
                                 mlx5dv_mr_interleaved*) { wr_unsupported(*Qp::of(handle)); };
    qp.dv.wr_mr_list = [](mlx5dv_qp_ex* handle, mlx5dv_mkey*, uint32_t, uint16_t, ibv_sge*) {
        wr_unsupported(*Qp::of(handle));
    };
    qp.dv.wr_raw_wqe = [](mlx5dv_qp_ex* handle, const void*) { wr_unsupported(*Qp::of(handle)); };
    qp.dv.wr_memcpy = [](mlx5dv_qp_ex* handle, uint32_t, uint64_t, uint32_t, uint64_t, size_t) {
        wr_unsupported(*Qp::of(handle));
    };
}

}  // namespace softhca
