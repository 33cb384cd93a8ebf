// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "ucp/api/ucp.h"

namespace ucp::test {

// An operation without options.
inline constexpr ucp_request_param_t kNothing{};

}  // namespace ucp::test
