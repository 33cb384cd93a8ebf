// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ucp/proto/stream/stream.h"
#include "ucp/wireup/connection.h"

namespace ucp {

/** What only some endpoints have: apart, so that the others stay small. */
struct EndpointExtras {
    std::string name;                //!< from ucp_ep_params_t
    std::unique_ptr<Stream> stream;  //!< bytes received, and receives that wait for some
    std::unique_ptr<wireup::Connection> connection;  //!< to a peer known by socket address
    std::vector<uint32_t> finished_early;  //!< remote operations that earlier ones outlast
};

}  // namespace ucp
