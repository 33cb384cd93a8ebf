// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "uct/base/refusing_endpoint.h"

namespace ucp::wireup {

/**
 * The lane of an endpoint whose peer is not known yet: it never has room, so that everything waits
 * in the endpoint's queues. Nothing is kept of who waits: the endpoint takes its waits back when
 * its real lanes come, and starts anew.
 */
class WaitingLane final : public uct::RefusingEndpointWith<UCS_ERR_NO_RESOURCE> {
  public:
    ucs_status_t check(uct::Completion*) override { return UCS_OK; }
    ucs_status_t pending_add(uct::Pending*) override { return UCS_OK; }
    bool is_connected(const uct::RemoteAddress&) const override { return false; }
};

}  // namespace ucp::wireup
