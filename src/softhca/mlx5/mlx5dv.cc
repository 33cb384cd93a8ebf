// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "softhca/verbs/direct_verbs.h"

// The part of mlx5dv that the emulation has. The rest is in unsupported.cc.

SOFTHCA_API bool mlx5dv_is_supported(ibv_device*) {
    return true;
}

SOFTHCA_API ibv_context* mlx5dv_open_device(ibv_device* device, mlx5dv_context_attr* attr) {
    if (attr != nullptr && (attr->flags != 0 || attr->comp_mask != 0)) return refuse(EOPNOTSUPP);
    return ibv_open_device(device);
}

SOFTHCA_API int mlx5dv_query_device(ibv_context*, mlx5dv_context* out) {
    const uint64_t asked = out->comp_mask;
    uint64_t given = 0;
    out->version = 0;
    out->flags = MLX5DV_CONTEXT_FLAGS_CQE_V1 | MLX5DV_CONTEXT_FLAGS_CQE_128B_COMP |
                 MLX5DV_CONTEXT_FLAGS_CQE_128B_PAD | MLX5DV_CONTEXT_FLAGS_PACKET_BASED_CREDIT_MODE;
    if ((asked & MLX5DV_CONTEXT_MASK_CQE_COMPRESION) != 0) {
        out->cqe_comp_caps = {64, MLX5DV_CQE_RES_FORMAT_HASH | MLX5DV_CQE_RES_FORMAT_CSUM |
                                      MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX};
        given |= MLX5DV_CONTEXT_MASK_CQE_COMPRESION;
    }
    if ((asked & MLX5DV_CONTEXT_MASK_DC_ODP_CAPS) != 0) {
        out->dc_odp_caps = 0;
        given |= MLX5DV_CONTEXT_MASK_DC_ODP_CAPS;
    }
    if ((asked & MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS) != 0) {
        out->num_lag_ports = 1;
        given |= MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS;
    }
    if ((asked & MLX5DV_CONTEXT_MASK_DCI_STREAMS) != 0) {
        out->dci_streams_caps = {kMaxLogDciStreams, kMaxLogDciStreams};
        given |= MLX5DV_CONTEXT_MASK_DCI_STREAMS;
    }
    out->comp_mask = given;
    return 0;
}

SOFTHCA_API ibv_cq_ex* mlx5dv_create_cq(ibv_context* context, ibv_cq_init_attr_ex* attr,
                                        mlx5dv_cq_init_attr* dv) {
    return softhca_get_direct_verbs()->create_cq(context, attr, dv);
}

SOFTHCA_API ibv_qp* mlx5dv_create_qp(ibv_context* context, ibv_qp_init_attr_ex* attr,
                                     mlx5dv_qp_init_attr* dv) {
    return softhca_get_direct_verbs()->create_qp(context, attr, dv);
}

SOFTHCA_API mlx5dv_qp_ex* mlx5dv_qp_ex_from_ibv_qp_ex(ibv_qp_ex* qp) {
    return softhca_get_direct_verbs()->qp_ex(qp);
}

SOFTHCA_API int mlx5dv_dci_stream_id_reset(ibv_qp* qp, uint16_t stream) {
    return softhca_get_direct_verbs()->reset_dci_stream(qp, stream);
}

SOFTHCA_API int mlx5dv_map_ah_to_qp(ibv_ah*, uint32_t) {
    return 0;
}

SOFTHCA_API int mlx5dv_get_clock_info(ibv_context* context, mlx5dv_clock_info* info) {
    // Time stamps are nanoseconds already.
    *info = {};
    info->nsec = info->last_cycles = softhca_get_direct_verbs()->now_ns(context);
    info->mult = 1;
    info->mask = ~uint64_t{0};
    return 0;
}

SOFTHCA_API int _mlx5dv_query_port(ibv_context* context, uint32_t port, mlx5dv_port* info,
                                   size_t size) {
    ibv_device_attr attr;
    if (ibv_query_device(context, &attr) != 0 || port == 0 || port > attr.phys_port_cnt)
        return EINVAL;
    std::memset(info, 0, std::min(size, sizeof(*info)));
    return 0;
}
