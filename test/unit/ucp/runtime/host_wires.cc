// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/component.h"
#include "unit/ucp/runtime/sender_wires.h"
#include "unit/ucp/tcp_wire.h"

namespace ucp::test {
namespace {

/** Queues in shared memory between the workers of a cluster. */
class MemoryWire final : public Wire {
  public:
    uct::Component& component() override { return uct::sm::component(); }
    void enter(size_t) override {}
    void leave(size_t) override {}
    void advance_to(ucs::Time) override {}
    void kill(size_t) override {}
    size_t dedicated_endpoints(size_t) const override { return 0; }
};

}  // namespace

std::vector<SenderWire> sender_wires() {
    const auto memory = [] { return std::make_unique<MemoryWire>(); };
    return {{"tcp", [] { return std::make_unique<TcpWire>(); }, false, {}},
            {"sm_fifo", memory, false, {}},
            {"sm_ring", memory, true, {}}};
}

}  // namespace ucp::test
