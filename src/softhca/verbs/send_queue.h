// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "softhca/adapter/fabric.h"

/// Posting of send requests, by both interfaces: ibv_post_send and ibv_wr_*.
namespace softhca {

/// Fills the function pointers of ibv_qp_ex and mlx5dv_qp_ex.
void install_builders(Qp& qp);
int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad);

/// Opens and closes a batch; between them sq_lock is held.
int begin_batch(Qp& qp);
void end_batch(Qp& qp);
/// The next free slot, cleared, at build_tail; nullptr and build_error if there is none.
Wqe* next_slot(Qp& qp, uint8_t opcode);
void set_address(Wqe& wqe, const Ah& ah);
void set_bind(Wqe& wqe, const ibv_mw& mw, uint32_t rkey, const ibv_mw_bind_info& info);

}  // namespace softhca
