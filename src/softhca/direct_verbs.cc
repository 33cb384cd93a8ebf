// SPDX-License-Identifier: BSD-3-Clause
#include "softhca/direct_verbs.h"

#include <cerrno>

#include "softhca/verbs_ops.h"

namespace softhca {
namespace {

ibv_qp* create_qp(ibv_context* context, ibv_qp_init_attr_ex* attr, mlx5dv_qp_init_attr* dv) {
    constexpr uint64_t kMask =
        MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS | MLX5DV_QP_INIT_ATTR_MASK_DC |
        MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS | MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
    constexpr uint32_t kFlags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE |
                                MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE |
                                MLX5DV_QP_CREATE_PACKET_BASED_CREDIT_MODE;
    if (dv != nullptr) {
        const bool flags = (dv->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS) != 0;
        const bool ops = (dv->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS) != 0;
        if ((dv->comp_mask & ~kMask) != 0 || (flags && (dv->create_flags & ~kFlags) != 0) ||
            (ops && dv->send_ops_flags != 0)) {
            errno = EOPNOTSUPP;
            return nullptr;
        }
    }
    return create_any_qp(*Context::of(context), *attr, dv);
}

const softhca_direct_verbs kTable = {
    create_qp,
    create_cq_ex,
    [](ibv_qp_ex* qp) { return &Qp::of(qp)->dv; },
    [](ibv_context* context) { return Context::of(context)->fabric->now_ns(); },
};

}  // namespace
}  // namespace softhca

const softhca_direct_verbs* softhca_get_direct_verbs() {
    return &softhca::kTable;
}
