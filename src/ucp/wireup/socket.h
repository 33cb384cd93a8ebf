// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "ucp/api/ucp.h"
#include "ucs/net/socket.h"

namespace ucp::wireup {

using ucs::net::Socket;
using ucs::net::SocketAddress;

}  // namespace ucp::wireup
