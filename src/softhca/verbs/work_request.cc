// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <cstring>

#include "softhca/verbs/send_queue.h"

/// The ibv_wr_* builders. An error in a batch is kept until wr_complete, which then posts nothing.
namespace softhca {
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
