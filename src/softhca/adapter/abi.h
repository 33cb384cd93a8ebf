// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The verbs headers, with their functions visible: the rest of this library is hidden.
#pragma GCC visibility push(default)
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#pragma GCC visibility pop

#include <cerrno>
#include <cstddef>

// The names below are macros in verbs.h that lead to the plain functions; this library defines
// those.
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

// What a function that makes an object returns where it makes none.
inline std::nullptr_t refuse(int error) {
    errno = error;
    return nullptr;
}

#define SOFTHCA_API extern "C" __attribute__((visibility("default")))
