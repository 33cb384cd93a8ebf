// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "unit/ucp/cluster.h"

namespace ucp::test {

// What the host has between the workers of a cluster: TCP over its devices, shared memory.
class HostWire final : public Wire {
  public:
    // @param component  outlives the wire
    explicit HostWire(uct::Component& component) : component_(component) {}
    uct::Component& component() override { return component_; }
    void enter(size_t) override {}
    void leave(size_t) override {}
    void advance_to(ucs::Time) override {}
    void kill(size_t) override {}
    size_t dedicated_endpoints(size_t) const override { return 0; }

  private:
    uct::Component& component_;
};

}  // namespace ucp::test
