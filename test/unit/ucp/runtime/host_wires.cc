// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/component.h"
#include "uct/tcp/component.h"
#include "unit/ucp/host_wire.h"
#include "unit/ucp/runtime/sender_wires.h"

namespace ucp::test {
std::vector<SenderWire> sender_wires() {
    const auto memory = [] { return std::make_unique<HostWire>(uct::sm::component()); };
    const auto tcp = [] { return std::make_unique<HostWire>(uct::tcp::component()); };
    return {{"tcp", tcp, false, {}}, {"sm_fifo", memory, false, {}}, {"sm_ring", memory, true, {}}};
}

}  // namespace ucp::test
