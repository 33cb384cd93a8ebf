// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "uct/tcp/component.h"
#include "unit/ucp/cluster.h"

namespace ucp::test {

/** TCP between the workers of a cluster, over the loopback and what else the host has. */
class TcpWire final : public Wire {
  public:
    uct::Component& component() override { return uct::tcp::component(); }
    void enter(size_t) override {}
    void leave(size_t) override {}
    void advance_to(ucs::Time) override {}
    void kill(size_t) override {}
    size_t dedicated_endpoints(size_t) const override { return 0; }
};

}  // namespace ucp::test
