// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "softhca/adapter/abi.h"

// What libmlx5 needs of libibverbs. The two are separate shared libraries, and all objects live in
// the latter: it exports this one table under a version name of its own.
// Logarithms of the most streams of a DCI, and of those of them that may be in error.
constexpr uint8_t kMaxLogDciStreams = 7;

extern "C" {

struct softhca_direct_verbs {
    ibv_qp* (*create_qp)(ibv_context*, ibv_qp_init_attr_ex*, mlx5dv_qp_init_attr*);
    ibv_cq_ex* (*create_cq)(ibv_context*, ibv_cq_init_attr_ex*, mlx5dv_cq_init_attr*);
    int (*reset_dci_stream)(ibv_qp*, uint16_t);
    mlx5dv_qp_ex* (*qp_ex)(ibv_qp_ex*);
    uint64_t (*now_ns)(ibv_context*);
};

__attribute__((visibility("default"))) const softhca_direct_verbs* softhca_get_direct_verbs(void);
}
