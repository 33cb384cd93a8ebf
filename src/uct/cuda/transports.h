// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "uct/api/types.h"

/**
 * The names that programs give the ways of CUDA memory in UCX_TLS. They have no interfaces: device
 * buffers are staged, or copied by the devices, beside the transports that carry messages
 * (docs/design/gpu.md). gdr_copy is taken as a name of UCX's.
 */
namespace uct::cuda {

namespace declared {

inline constexpr std::string_view kWords[] = {"cuda"};

}  // namespace declared

inline constexpr TransportDeclaration kTransports[] = {
    {"cuda_copy", DeviceType::kAccelerator, Reach::kInterface, 0, declared::kWords},
    {"cuda_ipc", DeviceType::kAccelerator, Reach::kInterface, 0, declared::kWords},
    {"gdr_copy", DeviceType::kAccelerator, Reach::kInterface, 0, declared::kWords},
};

}  // namespace uct::cuda
